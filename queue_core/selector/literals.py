"""Constants: numbers as written, and texts converted to the type they are compared with."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import time
from decimal import Decimal
from typing import TypeAlias

import pyarrow as pa
import pyarrow.types as pt

from queue_core.selector.nodes import Literal, Unfit
from queue_core.selector.types import decimal
from queue_core.values.arrow_types import is_number

_WHOLE = re.compile(r"[+-]?\d+")
_DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)")
_FLOAT = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?inf(inity)?|nan", re.IGNORECASE)
_MOST_DIGITS = 76
_TRUTH = {"true": True, "false": False}


def number(text: str) -> Literal:
    """Return a number in its narrowest type: 1 is an int32, 1.5 a decimal, 1e3 a double."""
    text = text.strip()
    if _WHOLE.fullmatch(text):
        return _whole(text)
    if _DECIMAL.fullmatch(text):
        return _decimal(text)
    if _FLOAT.fullmatch(text) and not math.isinf(value := float(text)):
        return Literal(pa.scalar(value, pa.float64()))
    raise Unfit(f"{text!r} is not a number that a double can hold")


def read(literal: Literal, type_: pa.DataType) -> Literal:
    """Convert a text constant for a comparison with values of *type_*; raises `Unfit`."""
    text = literal.value.as_py().strip()
    for holds, reader, name in _READERS:
        if holds(type_):
            try:
                return Literal(reader(text, type_))
            except (ValueError, KeyError) as error:
                raise Unfit(f"{text!r} is not a {name}", literal) from error
    raise Unfit(f"a text cannot be compared with {type_}", literal)


def _whole(text: str) -> Literal:
    if len(text) > _MOST_DIGITS:
        raise Unfit(f"a number of {len(text)} digits is too long; {_MOST_DIGITS} are possible")
    value = int(text)
    for bits, type_ in ((31, pa.int32()), (63, pa.int64())):
        if -(1 << bits) <= value < (1 << bits):
            return Literal(pa.scalar(value, type_))
    return _decimal(text)


def _decimal(text: str) -> Literal:
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    scale = -int(exponent)
    precision = max(len(digits), scale)
    if precision > _MOST_DIGITS:
        raise Unfit(f"a number of {precision} digits is too long; {_MOST_DIGITS} are possible")
    return Literal(pa.scalar(value, decimal(precision, scale)))


def _number(text: str, type_: pa.DataType) -> pa.Scalar:
    if pt.is_floating(type_):
        if not _FLOAT.fullmatch(text):
            raise ValueError(text)
        return pa.scalar(float(text), pa.float64())
    if not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    return number(text).value


def _moment(text: str, type_: pa.DataType) -> pa.Scalar:
    """Parse a timestamp; it is UTC without a zone, and has nanoseconds if the type needs them."""
    finest = "ns" if type_.unit == "ns" or re.search(r"\.\d{7}", text) else "us"
    value = pa.scalar(text)
    try:
        return value.cast(pa.timestamp(finest))
    except pa.ArrowInvalid:
        zoned = value.cast(pa.timestamp(finest, "UTC"))
        return zoned.cast(pa.int64()).cast(pa.timestamp(finest))


_Reader: TypeAlias = Callable[[str, pa.DataType], pa.Scalar]
#: What reads the texts of each kind of types, and how errors call one of its values.
_READERS: list[tuple[Callable[[pa.DataType], bool], _Reader, str]] = [
    (is_number, _number, "number"),
    (pt.is_timestamp, _moment, "timestamp such as '2024-01-31 12:30:00'"),
    (pt.is_date, lambda text, t: pa.scalar(text).cast(t), "date such as '2024-01-31'"),
    (pt.is_time, lambda text, t: pa.scalar(time.fromisoformat(text), t), "time such as '12:30:00'"),
    (pt.is_boolean, lambda text, t: pa.scalar(_TRUTH[text.lower()]), "boolean, true or false"),
    (pt.is_binary, lambda text, t: pa.scalar(text.encode(), t), "binary value"),
]
