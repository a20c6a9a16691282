"""Columns of maps in JSON lines, which Arrow does not read: each map is an object."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

#: A column of a row without any other, since Arrow counts no rows without columns.
NOTHING = "__nothing__"


def taken_out(lines: bytes, maps: Mapping[str, pa.DataType]) -> tuple[bytes, dict[str, pa.Array]]:
    """
    Return JSON lines without the columns in *maps*, and these columns.

    Raises `ValueError` for a line that is not an object, or a value that is not of its type.
    """
    if not maps:
        return lines, {}
    rows = [_object(line) for line in lines.splitlines() if line.strip()]
    columns = {
        name: pa.array([_pairs(row.pop(name, None), kind) for row in rows], kind)
        for name, kind in maps.items()
    }
    rest = [row or {NOTHING: None} for row in rows]
    return b"\n".join(json.dumps(row).encode() for row in rest), columns


def _object(line: bytes) -> dict[str, Any]:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError(f"a line is not a JSON object: {line[:60].decode(errors='replace')}")
    return row


def _pairs(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON as Arrow takes it: each object of a map as a list of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        if not isinstance(value, dict):
            raise ValueError(f"{json.dumps(value)[:60]} is not an object, which a map needs")
        return [(key, _pairs(item, kind.item_type)) for key, item in value.items()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_pairs(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _pairs(value.get(field.name), field.type) for field in kind}
    return value
