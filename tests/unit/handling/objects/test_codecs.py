"""Codecs: types of values are checked before Arrow could cut them."""

import datetime as dt

import pandas as pd
import pyarrow as pa
import pytest

from queue_core.handling.objects.codecs import Codec, Misfit

WHOLE = Codec(pa.int64(), (int,))
DAY = Codec(pa.date32(), (dt.date,))
ROMAN = Codec(pa.string(), (int,), nullable=True, encode="I".__mul__, decode=len)


def test_values_without_a_conversion_stay_the_same_list():
    values = [1, 2]
    assert WHOLE.encoded(values) is values
    assert WHOLE.decoded(values) is values


def test_values_are_converted_both_ways_and_none_is_not():
    assert ROMAN.encoded([3, None]) == ["III", None]
    assert ROMAN.decoded(["III", None]) == [3, None]


@pytest.mark.parametrize(
    ("codec", "value", "problem"),
    [
        (WHOLE, 1.5, "int is needed, not float"),
        (WHOLE, True, "int is needed, not bool"),
        (WHOLE, None, "int is needed, not None"),
        (DAY, dt.datetime(2020, 1, 1, 5), "date is needed, not datetime"),
        (DAY, pd.Timestamp(2020, 1, 1, 5), "date is needed, not Timestamp"),
    ],
)
def test_values_of_another_type_are_refused(codec, value, problem):
    with pytest.raises(Misfit, match=problem):
        codec.encoded([value])


def test_a_subclass_of_datetime_is_one():
    times = [pd.Timestamp(2020, 1, 1, 5)]
    assert Codec(pa.timestamp("us"), (dt.datetime,)).encoded(times) is times


def test_a_null_is_refused_when_it_is_read():
    with pytest.raises(Misfit, match="is null"):
        WHOLE.decoded([1, None])


def test_a_codec_is_a_column():
    assert WHOLE.field("n").equals(pa.field("n", pa.int64(), nullable=False))
    assert ROMAN.field("n").nullable
