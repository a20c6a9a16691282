"""Which columns a field of a class fits: those of its own type, and some with other bounds."""

from __future__ import annotations

import pyarrow as pa

_t = pa.types


def fits(needed: pa.DataType, column: pa.DataType) -> bool:
    """
    Return whether values of a column have the Python type of a field.

    The column may have narrower numbers, other digits of decimals, more fields in structs, and
    nulls where the field has none. Values are checked when they are loaded and read.
    """
    if _t.is_list(needed) and _t.is_list(column):
        return fits(needed.value_type, column.value_type)
    if _t.is_map(needed) and _t.is_map(column):
        return fits(needed.key_type, column.key_type) and fits(needed.item_type, column.item_type)
    if _t.is_struct(needed) and _t.is_struct(column):
        return all(
            column.get_field_index(field.name) >= 0
            and fits(field.type, column.field(field.name).type)
            for field in needed
        )
    if _t.is_timestamp(needed) and _t.is_timestamp(column):
        return bool(needed.tz) == bool(column.tz)
    alike = (_t.is_integer, _t.is_floating, _t.is_decimal)
    return bool(needed.equals(column) or any(one(needed) and one(column) for one in alike))
