"""Types in a selector: the type in which a column is read, and the common type of two values."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import pyarrow as pa
import pyarrow.types as pt

from queue_core.values.arrow_types import is_binary, is_number, is_text

#: The type of all timestamps in a selector: UTC, without a zone.
MOMENT = pa.timestamp("us")

_UNITS = ("s", "ms", "us", "ns")
_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}
_DECIMAL128_DIGITS = 38
_DECIMAL256_DIGITS = 76


def read_type(declared: pa.DataType) -> pa.DataType:
    """Return the type in which a column is read, which reduces the number of types."""
    if pt.is_dictionary(declared):
        return read_type(declared.value_type)
    if is_text(declared):
        return pa.string()
    if is_binary(declared):
        return pa.binary()
    if pt.is_uint64(declared):
        return pa.decimal128(20, 0)
    if pt.is_float16(declared):
        return pa.float32()
    if pt.is_date64(declared):
        return pa.date32()
    if pt.is_timestamp(declared):
        return pa.timestamp(declared.unit)
    return declared


def is_ordered(type_: pa.DataType) -> bool:
    """Return whether values can be compared."""
    return is_number(type_) or any(
        holds(type_)
        for holds in (
            pt.is_string,
            pt.is_binary,
            pt.is_boolean,
            pt.is_date,
            pt.is_time,
            pt.is_timestamp,
            pt.is_null,
        )
    )


def decimal(precision: int, scale: int) -> pa.DataType:
    """Return a decimal with *precision* digits, or a double if no decimal has that many."""
    if precision <= _DECIMAL128_DIGITS:
        return pa.decimal128(max(precision, 1), scale)
    if precision <= _DECIMAL256_DIGITS:
        return pa.decimal256(precision, scale)
    return pa.float64()


def digits(type_: pa.DataType) -> tuple[int, int]:
    """Return the digits before and after the point for every value of a number type."""
    if pt.is_decimal(type_):
        return type_.precision - type_.scale, type_.scale
    return _DIGITS[type_.bit_width], 0


def common_type(types: Iterable[pa.DataType]) -> pa.DataType | None:
    """Return the type in which values of all these types can be compared, or None."""
    return reduce(_meet, types)


def _meet(left: pa.DataType | None, right: pa.DataType | None) -> pa.DataType | None:
    if left is None or right is None:
        return None
    if left.equals(right) or pt.is_null(right):
        return left
    if pt.is_null(left):
        return right
    if is_number(left) and is_number(right):
        return _meet_numbers(left, right)
    if _is_day_or_moment(left) and _is_day_or_moment(right):
        return pa.timestamp(_finer(left, right))
    if pt.is_time(left) and pt.is_time(right):
        unit = _finer(left, right)
        return pa.time32(unit) if unit in ("s", "ms") else pa.time64(unit)
    return None


def _meet_numbers(left: pa.DataType, right: pa.DataType) -> pa.DataType:
    if pt.is_floating(left) or pt.is_floating(right):
        return pa.float64()
    if pt.is_integer(left) and pt.is_integer(right):
        return pa.int64()
    (whole, fraction), (other_whole, other_fraction) = digits(left), digits(right)
    scale = max(fraction, other_fraction)
    return decimal(max(whole, other_whole) + scale, scale)


def _is_day_or_moment(type_: pa.DataType) -> bool:
    return bool(pt.is_date(type_) or pt.is_timestamp(type_))


def _finer(left: pa.DataType, right: pa.DataType) -> str:
    units = [t.unit if not pt.is_date(t) else "us" for t in (left, right)]
    return max(units, key=_UNITS.index)
