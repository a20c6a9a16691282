"""Statistics of columns: bounds of their values, to skip data without reading it.

Bounds need not be tight: the minimum can be less than every value, and the maximum greater. So long
texts can be cut, and nanoseconds rounded. None means unknown. Values are the Python values of
`pyarrow`, timestamps to the microsecond.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from queue_core.values.arrow_types import is_binary, is_number, is_text

#: Characters or bytes of a long value that its bound keeps.
LONGEST_BOUND = 64
#: Rows in which distinct values are counted at a time, so that a large number is noticed early.
_BLOCK = 1 << 16
_NANOSECONDS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
#: The types of values that have bounds, of those that a queue stores.
_ORDERED = (
    is_number,
    pt.is_boolean,
    pt.is_date,
    pt.is_time,
    pt.is_timestamp,
    is_text,
    is_binary,
)

_Json: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Bounds and counts of the values of one column in some rows."""

    #: A lower bound of the values; None: unknown. NaN is greater than all numbers.
    min: Any
    #: An upper bound of the values; None: unknown.
    max: Any
    null_count: int
    row_count: int
    #: All distinct values without null; None if there are too many, or they are unknown.
    distinct: frozenset[Any] | None = None


def column_stats(array: pa.Array | pa.ChunkedArray, *, max_distinct: int = 16) -> ColumnStats:
    """
    Return the statistics of a column.

    Numbers, texts, binaries, booleans, dates, times and timestamps have bounds; for other types
    only the nulls are counted. More than *max_distinct* distinct values are not kept.
    """
    rows, nulls = len(array), array.null_count
    if nulls == rows:
        return ColumnStats(None, None, nulls, rows, frozenset())
    if not any(holds(array.type) for holds in _ORDERED):
        return ColumnStats(None, None, nulls, rows)
    low, high = _extremes(array)
    distinct = _distinct(array, max_distinct)
    return ColumnStats(_shorten(low, up=False), _shorten(high, up=True), nulls, rows, distinct)


def python_value(scalar: pa.Scalar, *, up: bool = False) -> Any:
    """
    Return the Python value of a scalar, or None if there is none: for NaN or the year 10000.

    Nanoseconds are rounded to microseconds: up if *up* is true, else down. Timestamps with a zone
    become UTC; others stay without a zone.
    """
    if not scalar.is_valid:
        return None
    try:
        if pt.is_timestamp(scalar.type):
            return _moment(scalar, up)
        if pt.is_time64(scalar.type) and scalar.type.unit == "ns" and scalar.value % 1000:
            return None
        value = scalar.as_py()
    except (OverflowError, ValueError):
        return None
    return None if isinstance(value, float) and math.isnan(value) else value


def stats_to_json(stats: Mapping[str, ColumnStats]) -> str:
    """Return statistics by column as compact JSON, which `stats_from_json` reads."""
    return json.dumps(
        {name: _pack(one) for name, one in stats.items()},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def stats_of(rows: pa.Table, names: Sequence[str]) -> str | None:
    """Return the statistics of some columns as JSON, or None without columns."""
    if not names:
        return None
    return stats_to_json({name: column_stats(rows.column(name)) for name in names})


def stats_from_json(text: str, schema: pa.Schema) -> dict[str, ColumnStats]:
    """Read statistics that `stats_to_json` wrote, except columns that *schema* lacks."""
    return {
        name: _unpack(packed, schema.field(name).type)
        for name, packed in json.loads(text).items()
        if name in schema.names
    }


def _extremes(values: pa.Array | pa.ChunkedArray) -> tuple[Any, Any]:
    # Not at the top: a query waits for imports, and many queues have no attributes.
    import pyarrow.compute as pc

    if pt.is_floating(values.type) and pc.any(nan := pc.is_nan(values)).as_py():
        return pc.min(values.filter(pc.invert(nan))).as_py(), None
    found = pc.min_max(values)
    return python_value(found["min"]), python_value(found["max"], up=True)


def _distinct(values: pa.Array | pa.ChunkedArray, limit: int) -> frozenset[Any] | None:
    """Return all values if they are at most *limit*, short, and distinct in Python too."""
    found: set[Any] = set()
    for start in range(0, len(values), _BLOCK):
        block = values.slice(start, _BLOCK).unique().drop_null()
        if len(block) > limit:
            return None
        exact = {python_value(value) for value in block}
        # Fewer: Python merges -0.0 with 0.0, which a cast to text distinguishes.
        if len(exact) < len(block) or any(_is_inexact(value) for value in exact):
            return None
        if pt.is_timestamp(values.type) and exact != {python_value(v, up=True) for v in block}:
            return None
        found |= exact
        if len(found) > limit:
            return None
    return frozenset(found)


def _is_inexact(value: Any) -> bool:
    if isinstance(value, float):
        return value == 0 and math.copysign(1, value) < 0
    return value is None or (isinstance(value, str | bytes) and len(value) > LONGEST_BOUND)


def _moment(scalar: pa.Scalar, up: bool) -> datetime:
    nanoseconds = scalar.value * _NANOSECONDS[scalar.type.unit]
    microseconds = -(-nanoseconds // 1000) if up else nanoseconds // 1000
    epoch = datetime(1970, 1, 1, tzinfo=UTC if scalar.type.tz else None)
    return epoch + timedelta(microseconds=microseconds)


def _shorten(value: Any, *, up: bool) -> Any:
    """Shorten a bound: a prefix is less than the whole text, and its successor is greater."""
    if not isinstance(value, str | bytes) or len(value) <= LONGEST_BOUND:
        return value
    prefix = value[:LONGEST_BOUND]
    if not up:
        return prefix
    return _text_after(prefix) if isinstance(prefix, str) else _bytes_after(prefix)


def _text_after(prefix: str) -> str | None:
    """Return the least text greater than all texts with this prefix, or None."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    after = "\ue000" if stem[-1] == "\ud7ff" else chr(ord(stem[-1]) + 1)  # over the surrogates
    return stem[:-1] + after


def _bytes_after(prefix: bytes) -> bytes | None:
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _pack(stats: ColumnStats) -> list[Any]:
    packed: list[Any] = [
        _to_json(stats.min),
        _to_json(stats.max),
        stats.null_count,
        stats.row_count,
    ]
    if stats.distinct is not None:
        packed.append([_to_json(value) for value in sorted(stats.distinct)])
    return packed


def _unpack(packed: list[Any], type_: pa.DataType) -> ColumnStats:
    low, high, nulls, rows, *distinct = packed
    read = _from_json(type_)
    return ColumnStats(
        None if low is None else read(low),
        None if high is None else read(high),
        nulls,
        rows,
        frozenset(read(value) for value in distinct[0]) if distinct else None,
    )


def _to_json(value: Any) -> _Json:
    match value:
        case float() if math.isinf(value):
            return str(value)
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return base64.b64encode(value).decode()
        case Decimal():
            return str(value)
        case _:
            return str(value.isoformat())


def _from_json(type_: pa.DataType) -> Callable[[Any], Any]:
    """Return a function that turns a JSON value back into a value of *type_*."""
    readers: list[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]]] = [
        (pt.is_floating, float),
        (pt.is_decimal, Decimal),
        (pt.is_date, date.fromisoformat),
        (pt.is_time, time.fromisoformat),
        (pt.is_timestamp, datetime.fromisoformat),
        (is_binary, base64.b64decode),
    ]
    for holds, read in readers:
        if holds(type_):
            return read
    return lambda value: value
