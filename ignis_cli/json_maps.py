"""Columns of maps in JSON lines, which Arrow does not read: each map is an object, or pairs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from ignis_cli import json_bytes
from queue_core.values.schema import is_binary

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


def of_pairs(value: Any, kind: pa.DataType) -> Any:
    """Return a value of Arrow for JSON: each map with texts as keys as an object."""
    if value is None or not _has_maps(kind):
        return value
    if pa.types.is_map(kind):
        pairs = [
            (of_pairs(key, kind.key_type), of_pairs(item, kind.item_type)) for key, item in value
        ]
        texts = pa.types.is_string(kind.key_type) or pa.types.is_large_string(kind.key_type)
        # A map of Arrow can have a key twice.
        named = dict(pairs) if texts else {}
        return named if texts and len(named) == len(pairs) else pairs
    if pa.types.is_struct(kind):
        return {field.name: of_pairs(value.get(field.name), field.type) for field in kind}
    return [of_pairs(item, kind.value_type) for item in value]


def _has_maps(kind: pa.DataType) -> bool:
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return pa.types.is_map(kind) or any(map(_has_maps, inner))


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2


def _pairs(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON as Arrow takes it: each map as a list of pairs."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        # Keys that are no texts cannot be those of an object: `peek` prints pairs.
        if not (isinstance(value, dict) or (isinstance(value, list) and all(map(_is_pair, value)))):
            raise ValueError(f"{json.dumps(value)[:60]} is not an object, which a map needs")
        return [(_pairs(key, kind.key_type), _pairs(item, kind.item_type)) for key, item in pairs]
    if is_binary(kind):
        return json_bytes.of_text(value)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_pairs(item, kind.value_type) for item in value]
    if pa.types.is_struct(kind):
        return {field.name: _pairs(value.get(field.name), field.type) for field in kind}
    return value
