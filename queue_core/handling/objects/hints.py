"""The codec of each type that a field can have, from its annotation."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from numbers import Integral
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin
from uuid import UUID

import numpy as np
import pyarrow as pa

from queue_core.handling.objects.codecs import Codec, Misfit, one_of

#: Returns the codec of a class with fields, and None for any other class.
Record: TypeAlias = Callable[[type], Codec | None]

#: Digits of a decimal without an annotation, and those after the point. Source: Spark.
_DIGITS, _PLACES = 38, 18


def codec_of(hint: Any, record: Record) -> Codec:
    """Return the codec of a type; raises `Misfit` for a type that no column can hold."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _annotated(codec_of(args[0], record), args[1:])
    if origin is Union or origin is types.UnionType:
        return _optional(hint, args, record)
    if origin is Literal:
        return _literal(hint, args)
    if origin in _MANY:
        return _many(hint, _MANY[origin], args, record)
    if origin in (dict, Mapping) and len(args) == 2:
        return _named(codec_of(args[0], record), codec_of(args[1], record))
    if hasattr(hint, "__supertype__"):  # a NewType
        return codec_of(hint.__supertype__, record)
    if hasattr(hint, "__value__"):  # a type alias, from Python 3.12
        return codec_of(hint.__value__, record)
    if isinstance(hint, type):
        found = _PLAIN.get(hint) or _of_pydantic(hint) or record(hint)
        if found is not None:
            return found
        if issubclass(hint, Enum):
            return _enum(hint)
    raise Misfit(f"no column can hold {_name(hint)}")


def _annotated(codec: Codec, marks: Sequence[Any]) -> Codec:
    """Return a codec with the Arrow type of an annotation, or with the digits of a decimal."""
    for mark in marks:
        if isinstance(mark, pa.DataType):
            codec = replace(codec, kind=mark)
            if codec.accepts == (datetime,):
                codec = replace(codec, encode=_aware if getattr(mark, "tz", None) else _naive)
            return codec
    # Pydantic's Field(max_digits=10, decimal_places=2).
    digits = next((found for one in marks if (found := getattr(one, "max_digits", None))), None)
    places = [found for one in marks if (found := getattr(one, "decimal_places", None)) is not None]
    if codec.accepts == (Decimal,) and digits and places:
        return replace(codec, kind=pa.decimal128(digits, places[0]))
    return codec


def _optional(hint: Any, args: Sequence[Any], record: Record) -> Codec:
    others = [arg for arg in args if arg is not type(None)]
    if len(others) != 1:
        raise Misfit(f"{_name(hint)} is several types, and a column has one")
    return replace(codec_of(others[0], record), nullable=True)


def _many(hint: Any, make: Callable[[Any], Any], args: Sequence[Any], record: Record) -> Codec:
    if not args or (make is tuple and (len(args) != 2 or args[1] is not Ellipsis)):
        raise Misfit(f"no column can hold {_name(hint)}; use list[T] or tuple[T, ...]")
    inner = codec_of(args[0], record)
    return Codec(
        pa.list_(inner.field("element")),
        (Set,) if make in (set, frozenset) else (list, tuple),
        encode=lambda values: inner.encoded(list(values)),
        decode=lambda values: make(inner.decoded(values)),
    )


def _named(key: Codec, item: Codec) -> Codec:
    return Codec(
        pa.map_(pa.field("key", key.kind, nullable=False), item.field("value")),
        (Mapping,),
        encode=lambda one: list(
            zip(key.encoded(list(one)), item.encoded(list(one.values())), strict=True)
        ),
        decode=lambda one: dict(
            zip(key.decoded(list(one)), item.decoded(list(one.values())), strict=True)
        ),
    )


def _enum(kind: type[Enum]) -> Codec:
    members = {member.value: member for member in kind}
    values = _common(kind, list(members))

    def decode(value: Any) -> Enum:
        try:
            return members.get(value) or kind(value)
        except ValueError as error:
            raise Misfit(f"{value!r} is not a {kind.__name__}") from error

    def encode(value: Any) -> Any:
        # A model may hold the values instead of the members.
        return value.value if isinstance(value, kind) else decode(value).value

    return replace(values, accepts=(kind, *values.accepts), encode=encode, decode=decode)


def _literal(hint: Any, values: Sequence[Any]) -> Codec:
    checked = one_of(values)
    return replace(_common(hint, values), encode=checked, decode=checked)


def _common(hint: Any, values: Sequence[Any]) -> Codec:
    """Return the codec of some values, which have one type."""
    for base in (bool, int, str, float, bytes):
        if values and all(isinstance(value, base) for value in values):
            return _PLAIN[base]
    raise Misfit(f"the values of {_name(hint)} are not of one type that a column can hold")


def _of_pydantic(hint: type) -> Codec | None:
    """Return the codec of a class of pydantic that stands for a type; pydantic may be missing."""
    return _PYDANTIC.get(hint.__name__) if hint.__module__.startswith("pydantic.") else None


def _aware(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise Misfit(f"{value!r} has no time zone; give it one, as datetime.now(UTC) does")
    return value


def _naive(value: datetime | time) -> datetime | time:
    if value.tzinfo is not None:
        raise Misfit(f"{value!r} has a time zone, and the field is for times without one")
    return value


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_args(hint) else repr(hint)


#: Classes of many values, and what makes them of a list.
_MANY: Mapping[Any, Callable[[Any], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
    Sequence: list,
    Set: set,
}
#: Types of one value.
_PLAIN: Mapping[type, Codec] = {
    str: Codec(pa.string(), (str,)),
    int: Codec(pa.int64(), (int, Integral)),
    float: Codec(pa.float64(), (float, np.floating, int, Integral)),
    bool: Codec(pa.bool_(), (bool, np.bool_)),
    bytes: Codec(pa.binary(), (bytes, bytearray)),
    datetime: Codec(pa.timestamp("us", tz="UTC"), (datetime,), encode=_aware),
    date: Codec(pa.date32(), (date,)),
    time: Codec(pa.time64("ns"), (time,), encode=_naive),
    timedelta: Codec(pa.duration("us"), (timedelta,)),
    Decimal: Codec(pa.decimal128(_DIGITS, _PLACES), (Decimal,)),
    UUID: Codec(pa.string(), (UUID,), encode=str, decode=UUID),
}
#: Classes of pydantic that stand for types of one value, by their names.
_PYDANTIC: Mapping[str, Codec] = {
    "AwareDatetime": _PLAIN[datetime],
    "PastDatetime": _PLAIN[datetime],
    "FutureDatetime": _PLAIN[datetime],
    "NaiveDatetime": Codec(pa.timestamp("us"), (datetime,), encode=_naive),
    "PastDate": _PLAIN[date],
    "FutureDate": _PLAIN[date],
    "EmailStr": _PLAIN[str],
}
