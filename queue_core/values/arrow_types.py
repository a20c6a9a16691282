"""Arrow types: families of similar types, and the form in which a queue stores each.

It is the form in which Spark exchanges Arrow data: strings and binaries with 32-bit offsets,
timestamps in microseconds and UTC, decimals of 128 bits, no dictionaries.
"""

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from queue_core.errors import SchemaMismatch

_t = pa.types

_Matches: TypeAlias = Callable[[pa.DataType], bool]
_Convert: TypeAlias = Callable[[pa.DataType, str], pa.DataType]

_MARKS = (b"variant", b"geometry", b"geography", b"srid")
# The id of Arrow's year-month interval, for which pyarrow has no name.
_INTERVAL_MONTHS = 21


def is_number(kind: pa.DataType) -> bool:
    """Return whether values of a type are integers, floats or decimals."""
    return bool(_t.is_integer(kind) or _t.is_floating(kind) or _t.is_decimal(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether values of a type are strings, in any of Arrow's layouts."""
    return bool(_t.is_string(kind) or _t.is_large_string(kind) or _t.is_string_view(kind))


def is_binary(kind: pa.DataType) -> bool:
    """Return whether values of a type are bytes, in any of Arrow's layouts."""
    return bool(
        _t.is_binary(kind)
        or _t.is_large_binary(kind)
        or _t.is_binary_view(kind)
        or _t.is_fixed_size_binary(kind)
    )


def _is_list(kind: pa.DataType) -> bool:
    # Not list views: Arrow's cast of those can write too few offsets.
    return bool(_t.is_list(kind) or _t.is_large_list(kind) or _t.is_fixed_size_list(kind))


def are_alike(given: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a cast keeps the meaning of values, so that no text becomes a number."""
    if _t.is_null(given):
        return True
    if _t.is_dictionary(given):
        return are_alike(given.value_type, target)
    if _is_list(target):
        return _is_list(given) and are_alike(given.value_type, target.value_type)
    if _t.is_map(target):
        return bool(
            _t.is_map(given)
            and are_alike(given.key_type, target.key_type)
            and are_alike(given.item_type, target.item_type)
        )
    if _t.is_struct(target):
        # A field that the target lacks would be left out.
        return _t.is_struct(given) and all(
            target.get_field_index(field.name) >= 0
            and are_alike(field.type, target.field(field.name).type)
            for field in given
        )
    return any(family(given) and family(target) for family in _FAMILIES)


def canonical_field(field: pa.Field, column: str) -> pa.Field:
    """
    Return a field in the types that a queue stores; raises `SchemaMismatch`, which names *column*.

    Spark marks variants and geometries by field metadata; other metadata is dropped.
    """
    kept = {name: field.metadata[name] for name in _MARKS if name in (field.metadata or {})}
    return pa.field(
        field.name, _canonical_type(field.type, column), field.nullable, metadata=kept or None
    )


def _canonical_type(kind: pa.DataType, column: str) -> pa.DataType:
    for matches, convert in _CONVERSIONS:
        if matches(kind):
            return convert(kind, column)
    raise SchemaMismatch(
        f"column {column!r}: Spark does not support the type {kind}"
        + ("; use int64 or decimal128(20, 0)" if pa.types.is_uint64(kind) else "")
    )


def _list_type(kind: pa.DataType, column: str) -> pa.DataType:
    item = kind.value_field
    return pa.list_(pa.field("element", _canonical_type(item.type, column), item.nullable))


def _map_type(kind: pa.DataType, column: str) -> pa.DataType:
    return pa.map_(
        pa.field("key", _canonical_type(kind.key_type, column), nullable=False),
        pa.field("value", _canonical_type(kind.item_type, column), kind.item_field.nullable),
    )


def _struct_type(kind: pa.DataType, column: str) -> pa.DataType:
    fields = [kind.field(index) for index in range(kind.num_fields)]
    return pa.struct([canonical_field(field, f"{column}.{field.name}") for field in fields])


def _decimal_type(kind: pa.DataType, column: str) -> pa.DataType:
    if kind.precision > 38:
        raise SchemaMismatch(f"column {column!r}: Spark's decimals have at most 38 digits")
    if not 0 <= kind.scale <= kind.precision:
        raise SchemaMismatch(
            f"column {column!r}: {kind} has a scale that Spark does not support; "
            "use one from 0 to the number of digits"
        )
    return pa.decimal128(kind.precision, kind.scale)


#: Families of types that can be cast to each other; the cast checks whether the values fit.
_FAMILIES: tuple[_Matches, ...] = (
    is_number,
    is_text,
    is_binary,
    _t.is_boolean,
    _t.is_date,
    _t.is_timestamp,
    _t.is_time,
    _t.is_duration,
)
_CONVERSIONS: tuple[tuple[_Matches, _Convert], ...] = (
    (_t.is_dictionary, lambda kind, column: _canonical_type(kind.value_type, column)),
    (_t.is_signed_integer, lambda kind, _: kind),
    (_t.is_uint8, lambda *_: pa.int16()),
    (_t.is_uint16, lambda *_: pa.int32()),
    (_t.is_uint32, lambda *_: pa.int64()),
    (_t.is_boolean, lambda kind, _: kind),
    (_t.is_float16, lambda *_: pa.float32()),
    (_t.is_floating, lambda kind, _: kind),
    (is_text, lambda *_: pa.string()),
    (is_binary, lambda *_: pa.binary()),
    (_t.is_date, lambda *_: pa.date32()),
    (_t.is_timestamp, lambda kind, _: pa.timestamp("us", tz="UTC" if kind.tz else None)),
    (_t.is_time, lambda *_: pa.time64("ns")),
    (_t.is_duration, lambda *_: pa.duration("us")),
    (_t.is_decimal, _decimal_type),
    (_t.is_null, lambda kind, _: kind),
    (lambda kind: kind.id == _INTERVAL_MONTHS, lambda kind, _: kind),
    (_t.is_map, _map_type),
    (_is_list, _list_type),
    (_t.is_struct, _struct_type),
)
