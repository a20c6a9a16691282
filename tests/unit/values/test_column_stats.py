"""Statistics hold for the values that they are of, and come back from JSON as they were."""

import datetime as dt
import json
import math
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.values.column_stats import (
    LONGEST_BOUND,
    ColumnStats,
    column_stats,
    stats_from_json,
    stats_to_json,
)

PARIS = dt.datetime(2024, 7, 1, tzinfo=dt.timezone(dt.timedelta(hours=2)))


@pytest.mark.parametrize(
    ("type_", "values", "low", "high"),
    [
        (pa.int32(), [3, None, -1], -1, 3),
        (pa.uint64(), [0, 2**64 - 1], 0, 2**64 - 1),
        (pa.float64(), [1.5, None, -math.inf], -math.inf, 1.5),
        (pa.float32(), [1.5, 0.25], 0.25, 1.5),
        (
            pa.decimal128(10, 2),
            [Decimal("1.50"), Decimal("-2.00")],
            Decimal("-2.00"),
            Decimal("1.50"),
        ),
        (pa.bool_(), [True, None], True, True),
        (pa.string(), ["b", "é", "a"], "a", "é"),
        (pa.large_string(), ["b", "a"], "a", "b"),
        (pa.binary(), [b"b", b"\xff", b""], b"", b"\xff"),
        (pa.binary(1), [b"b", b"a"], b"a", b"b"),
        (
            pa.date32(),
            [dt.date(2024, 1, 1), dt.date(1900, 1, 1)],
            dt.date(1900, 1, 1),
            dt.date(2024, 1, 1),
        ),
        (pa.time64("us"), [dt.time(2), dt.time(1)], dt.time(1), dt.time(2)),
        (
            pa.timestamp("us"),
            [dt.datetime(2024, 1, 1)],
            dt.datetime(2024, 1, 1),
            dt.datetime(2024, 1, 1),
        ),
        (pa.timestamp("ms", "Europe/Paris"), [PARIS], PARIS, PARIS),
    ],
    ids=str,
)
def test_bounds_and_values_by_type(type_, values, low, high):
    array = pa.array(values, type_)
    stats = column_stats(array)

    assert (stats.min, stats.max) == (low, high)
    assert (stats.null_count, stats.row_count) == (values.count(None), len(values))
    assert stats.distinct == {value for value in values if value is not None}
    assert column_stats(pa.chunked_array([array, array])).distinct == stats.distinct
    assert_round_trip(stats, type_)


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (pa.list_(pa.int32()), [1]),
        (pa.struct([("a", pa.int32())]), {"a": 1}),
        (pa.duration("s"), dt.timedelta(1)),
    ],
    ids=str,
)
def test_of_other_types_only_nulls_are_counted(type_, value):
    array = pa.array([value, None], type_)

    assert column_stats(array) == ColumnStats(None, None, 1, 2)
    assert_round_trip(column_stats(array), type_)


def test_of_nulls_alone_it_is_known_that_there_are_no_values():
    assert column_stats(pa.nulls(3, pa.int32())) == ColumnStats(None, None, 3, 3, frozenset())
    assert column_stats(pa.nulls(2)) == ColumnStats(None, None, 2, 2, frozenset())
    assert column_stats(pa.array([], pa.string())) == ColumnStats(None, None, 0, 0, frozenset())


def test_nan_leaves_no_upper_bound():
    stats = column_stats(pa.array([1.0, math.nan, 3.0]))
    assert (stats.min, stats.max, stats.distinct) == (1.0, None, None)

    stats = column_stats(pa.array([math.nan]))
    assert (stats.min, stats.max, stats.distinct) == (None, None, None)


def test_zeros_of_both_signs_are_no_known_values():
    assert column_stats(pa.array([0.0, -0.0])).distinct is None
    assert column_stats(pa.array([-0.0])).distinct is None
    assert column_stats(pa.array([0.0, 1.0])).distinct == {0.0, 1.0}


def test_values_are_known_while_they_are_few():
    assert column_stats(pa.array(range(16))).distinct == set(range(16))
    assert column_stats(pa.array(range(17))).distinct is None
    assert column_stats(pa.array([1, 1, 2]), max_distinct=1).distinct is None
    assert column_stats(pa.array([1]), max_distinct=0).distinct is None
    late = pa.array([0] * 70_000 + list(range(20)))
    assert column_stats(late).distinct is None
    assert column_stats(late, max_distinct=20).distinct == set(range(20))


@pytest.mark.parametrize(
    ("value", "low", "high"),
    [
        ("k" * 100, "k" * 64, "k" * 63 + "l"),
        ("k" * 63 + "\ud7ff" + "k", "k" * 63 + "\ud7ff", "k" * 63 + "\ue000"),
        ("k" * 63 + "\U0010ffff" + "k", "k" * 63 + "\U0010ffff", "k" * 62 + "l"),
        ("\U0010ffff" * 65, "\U0010ffff" * 64, None),
        (b"k" * 100, b"k" * 64, b"k" * 63 + b"l"),
        (b"k" + b"\xff" * 100, b"k" + b"\xff" * 63, b"l"),
        (b"\xff" * 100, b"\xff" * 64, None),
    ],
)
def test_long_bounds_are_cut_so_that_they_still_hold(value, low, high):
    stats = column_stats(pa.array([value]))

    assert (stats.min, stats.max, stats.distinct) == (low, high, None)
    assert stats.min <= value
    assert stats.max is None or stats.max > value
    longest = value[:LONGEST_BOUND]
    assert column_stats(pa.array([longest])) == ColumnStats(longest, longest, 0, 1, {longest})


def test_nanoseconds_are_rounded_outwards():
    stats = column_stats(pa.array([-1, 1], pa.timestamp("ns")))
    epoch, microsecond = dt.datetime(1970, 1, 1), dt.timedelta(microseconds=1)

    assert (stats.min, stats.max) == (epoch - microsecond, epoch + microsecond)
    assert stats.distinct is None
    assert column_stats(pa.array([2000], pa.timestamp("ns"))).distinct == {epoch + 2 * microsecond}
    assert column_stats(pa.array([1], pa.time64("ns"))).max is None


@pytest.mark.parametrize(
    "array",
    [
        pa.array([2**62], pa.timestamp("us")),
        pa.array([2**31 - 1], pa.date32()),
        pa.Array.from_buffers(
            pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
        ),
    ],
    ids=["a moment", "a day", "a text that is none"],
)
def test_what_python_cannot_hold_is_unknown(array):
    assert column_stats(array) == ColumnStats(None, None, 0, 1)


def test_json_is_compact_and_leaves_out_columns_that_are_gone():
    stats = {"a": column_stats(pa.array([1, 2, None])), "b": column_stats(pa.array(["é"] * 20))}

    text = stats_to_json(stats)

    assert text == '{"a":[1,2,1,3,[1,2]],"b":["é","é",0,20,["é"]]}'
    schema = pa.schema([("a", pa.int64()), ("c", pa.string())])
    assert stats_from_json(text, schema) == {"a": stats["a"]}


def assert_round_trip(stats, type_):
    text = stats_to_json({"c": stats})
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    again = stats_from_json(text, pa.schema([("c", type_)]))["c"]
    assert again == stats
    assert type(again.min) is type(stats.min)
    assert type(again.max) is type(stats.max)


TYPES = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float64(): st.floats(),
    pa.decimal128(38, 4): st.decimals(-(10**20), 10**20, places=4),
    pa.string(): st.text(max_size=80),
    pa.binary(): st.binary(max_size=80),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.timestamp("us"): st.datetimes(),
}


@given(
    st.sampled_from(list(TYPES)).flatmap(
        lambda type_: st.tuples(st.just(type_), st.lists(st.none() | TYPES[type_], max_size=20))
    ),
    st.integers(0, 20),
)
def test_no_value_is_out_of_bounds(typed, max_distinct):
    type_, values = typed
    stats = column_stats(pa.array(values, type_), max_distinct=max_distinct)
    known = [value for value in values if value is not None]

    for value in known:
        if isinstance(value, float) and math.isnan(value):
            assert stats.max is None
        else:
            assert stats.min is None or stats.min <= value
            assert stats.max is None or stats.max >= value
    assert stats.null_count == len(values) - len(known)
    if stats.distinct is not None:
        assert stats.distinct == set(known)
        assert len(stats.distinct) <= max_distinct
    assert_round_trip(stats, type_)
