"""The column of each type that a field may have."""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType, Optional
from uuid import UUID

import pyarrow as pa
import pytest
from pydantic import AwareDatetime, Field, NaiveDatetime, PositiveInt

from queue_core.handling.objects.codecs import Misfit
from queue_core.handling.objects.hints import codec_of


class Size(Enum):
    SMALL = "s"
    LARGE = "l"


class Level(IntEnum):
    LOW = 1


class Mixed(Enum):
    ONE = 1
    TWO = "two"


Number = NewType("Number", int)
AT = dt.datetime(2020, 5, 17, 12, tzinfo=dt.UTC)


def codec(hint):
    return codec_of(hint, lambda kind: None)


def there_and_back(hint, value):
    """Store a value in a column of its type, and read it."""
    found = codec(hint)
    stored = pa.array(found.encoded([value]), found.kind)
    return found.decoded(stored.to_pylist(maps_as_pydicts="strict"))[0]


@pytest.mark.parametrize(
    ("hint", "kind"),
    [
        (str, pa.string()),
        (int, pa.int64()),
        (float, pa.float64()),
        (bool, pa.bool_()),
        (bytes, pa.binary()),
        (dt.datetime, pa.timestamp("us", tz="UTC")),
        (AwareDatetime, pa.timestamp("us", tz="UTC")),
        (NaiveDatetime, pa.timestamp("us")),
        (dt.date, pa.date32()),
        (dt.time, pa.time64("ns")),
        (dt.timedelta, pa.duration("us")),
        (Decimal, pa.decimal128(38, 18)),
        (Annotated[Decimal, pa.decimal128(10, 2)], pa.decimal128(10, 2)),
        (Annotated[Decimal, Field(max_digits=8, decimal_places=3)], pa.decimal128(38, 18)),
        (Annotated[int, pa.int16()], pa.int16()),
        (UUID, pa.string()),
        (Size, pa.string()),
        (Level, pa.int64()),
        (Literal["a", "b"], pa.string()),
        (Number, pa.int64()),
        (PositiveInt, pa.int64()),
        (list[int], pa.list_(pa.field("element", pa.int64(), nullable=False))),
        (Sequence[int | None], pa.list_(pa.field("element", pa.int64()))),
        (Mapping[str, int | None], pa.map_(pa.string(), pa.field("value", pa.int64()))),
    ],
)
def test_each_type_has_a_column(hint, kind):
    found = codec(hint)
    assert found.kind.equals(kind)
    assert not found.nullable


@pytest.mark.parametrize("hint", [int | None, Optional[int], None | int])  # noqa: UP045 - both forms
def test_an_optional_type_is_nullable(hint):
    assert codec(hint).nullable
    assert codec(hint).kind == pa.int64()


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (dt.datetime, AT),
        (Annotated[dt.datetime, pa.timestamp("us")], AT.replace(tzinfo=None)),
        (dt.timedelta, dt.timedelta(days=1, microseconds=3)),
        (Decimal, Decimal("12.50")),
        (UUID, UUID(int=5)),
        (Size, Size.LARGE),
        (Level, Level.LOW),
        (list[Size], [Size.SMALL, Size.LARGE]),
        (tuple[int, ...], (1, 2)),
        (set[str], {"a", "b"}),
        (frozenset[Size], frozenset([Size.SMALL])),
        (dict[str, list[int]], {"a": [1], "b": []}),
        (dict[Size, UUID], {Size.SMALL: UUID(int=1)}),
        (list[list[int | None]], [[1, None], []]),
    ],
)
def test_values_come_back_as_they_were(hint, value):
    found = there_and_back(hint, value)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("hint", "told"),
    [
        (Any, "no column can hold"),
        (object, "no column can hold object"),
        (int | str, "several types"),
        (dict, "no column can hold dict"),
        (list, "no column can hold list"),
        (tuple[int, str], r"use list\[T\] or tuple\[T, ...\]"),
        (Mixed, "the values of Mixed are not of one type"),
        (Literal[1, "a"], "not of one type"),
        (complex, "no column can hold complex"),
    ],
)
def test_a_type_without_a_column_is_refused(hint, told):
    with pytest.raises(Misfit, match=told):
        codec(hint)


@pytest.mark.parametrize(
    ("hint", "value", "told"),
    [
        (dt.datetime, AT.replace(tzinfo=None), "has no time zone"),
        (NaiveDatetime, AT, "has a time zone"),
        (dt.time, dt.time(12, tzinfo=dt.UTC), "has a time zone"),
        (Size, "xl", "'xl' is not a Size"),
        (list[int], [1.5], "int is needed, not float"),
        (list[int], "12", "list is needed, not str"),
        (dict[str, int], {1: 1}, "str is needed, not int"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(hint, value, told):
    with pytest.raises(Misfit, match=told):
        codec(hint).encoded([value])


def test_a_value_that_is_no_longer_a_member_is_refused_when_it_is_read():
    with pytest.raises(Misfit, match="'xl' is not a Size"):
        codec(Size).decoded(["xl"])


def test_a_literal_has_its_values_only():
    found = codec(Literal["small", "large"])

    assert found.decoded(found.encoded(["small", "large"])) == ["small", "large"]
    with pytest.raises(Misfit, match="'medium' is not one of 'small', 'large'"):
        found.encoded(["medium"])
