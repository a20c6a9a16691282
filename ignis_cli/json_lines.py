"""JSON lines as columns, and values of columns for JSON.

Arrow reads lines, but no maps, bytes, dates, times of day and intervals. A map is an object, or a
list of pairs, since a map of Arrow may have other keys than texts, or a key twice. Bytes are a text
in base64, as in Spark, and an interval is its seconds.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from datetime import time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.json

from queue_core.values.arrow_types import is_binary, is_text
from queue_core.values.names import nearest


def table_of(lines: bytes, schema: pa.Schema | None) -> pa.Table:
    """
    Return the rows of some lines, in the types of a schema if there is one.

    Columns that the schema lacks have types of their own: the queue refuses them, because it can
    suggest the nearest name. Raises `ValueError` and errors of Arrow.
    """
    kinds = {} if schema is None else {field.name: field.type for field in schema}
    texts = {name for name, kind in kinds.items() if is_binary(kind) or pa.types.is_date(kind)}
    taken = {n: kind for n, kind in kinds.items() if n not in texts and _has(kind, _is_foreign)}
    if taken:
        # The lines are written again, which would round decimals.
        taken |= {n: kind for n, kind in kinds.items() if _has(kind, pa.types.is_decimal)}
    lines, columns = _taken_out(lines, taken)
    # The queue checks for nulls later.
    explicit = {
        name: pa.string() if name in texts else kind
        for name, kind in kinds.items()
        if name not in taken
    }
    rows = pyarrow.json.read_json(
        pa.BufferReader(lines),
        pyarrow.json.ReadOptions(block_size=len(lines)),
        pyarrow.json.ParseOptions(
            explicit_schema=None if schema is None else pa.schema(explicit),
            unexpected_field_behavior="infer",
        ),
    )
    for number, name in enumerate(rows.column_names):
        if name in texts:
            column, kind = rows.column(number), kinds[name]
            if is_binary(kind):
                column = pa.array([value_of(text, kind) for text in column.to_pylist()], kind)
            rows = rows.set_column(number, name, column.cast(kind))
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


def value_for(value: Any, kind: pa.DataType) -> Any:
    """Return a value of Arrow for JSON: each map with texts as keys as an object."""
    if value is None or not _has(kind, pa.types.is_map):
        return value
    if pa.types.is_map(kind):
        pairs = [
            (value_for(key, kind.key_type), value_for(item, kind.item_type)) for key, item in value
        ]
        texts = is_text(kind.key_type)
        named = dict(pairs) if texts else {}
        return named if texts and len(named) == len(pairs) else pairs
    if pa.types.is_struct(kind):
        return {field.name: value_for(value.get(field.name), field.type) for field in kind}
    return [value_for(item, kind.value_type) for item in value]


def value_of(value: Any, kind: pa.DataType) -> Any:
    """Return a value of JSON as Arrow takes it: maps as pairs, bytes and times; or `ValueError`."""
    if isinstance(value, Decimal) and not pa.types.is_decimal(kind):
        value = float(value)
    if isinstance(value, float) and pa.types.is_integer(kind) and not value.is_integer():
        # Arrow would cut it.
        raise _misfit(value, "a whole number")
    if value is None or is_text(kind):
        return value
    if is_binary(kind):
        try:
            return base64.b64decode(value, validate=True)
        except (TypeError, ValueError):
            raise _misfit(value, "base64, which a binary column needs") from None
    if pa.types.is_map(kind):
        pairs = list(value.items()) if isinstance(value, dict) else value
        if not isinstance(pairs, list) or any(
            not isinstance(pair, list | tuple) or len(pair) != 2 for pair in pairs
        ):
            raise _misfit(value, "an object, which a map needs")
        return [
            (value_of(key, kind.key_type), value_of(item, kind.item_type)) for key, item in pairs
        ]
    if pa.types.is_struct(kind):
        if not isinstance(value, dict):
            raise _misfit(value, "an object, which a struct needs")
        names = [field.name for field in kind]
        for name in value.keys() - {*names}:
            raise ValueError(f"a struct has no field {name!r}{nearest(name, names)}")
        return {field.name: value_of(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        if not isinstance(value, list):
            raise _misfit(value, "a list")
        return [value_of(item, kind.value_type) for item in value]
    try:
        if pa.types.is_duration(kind):
            return timedelta(seconds=float(value))
        if not isinstance(value, str):
            return value
        if pa.types.is_time(kind):
            return time.fromisoformat(value)
        return pa.scalar(value).cast(kind).as_py()
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        raise _misfit(value, str(kind)) from None


def _misfit(value: Any, needed: str) -> ValueError:
    return ValueError(
        f"{json.dumps(value, ensure_ascii=False, default=float)[:60]} is not {needed}"
    )


def _taken_out(lines: bytes, taken: Mapping[str, pa.DataType]) -> tuple[bytes, dict[str, pa.Array]]:
    """Return lines without some columns, and these columns."""
    if not taken:
        return lines, {}
    rows = [_object(line) for line in lines.splitlines() if line.strip()]
    columns = {
        name: pa.array([value_of(row.pop(name, None), kind) for row in rows], kind)
        for name, kind in taken.items()
    }
    return b"\n".join(json.dumps(row, default=float).encode() for row in rows), columns


def _object(line: bytes) -> dict[str, Any]:
    # A float would round decimals.
    row = json.loads(line, parse_float=Decimal)
    if not isinstance(row, dict):
        raise ValueError(f"a line is not a JSON object: {line[:60].decode(errors='replace')}")
    return row


def _has(kind: pa.DataType, test: Callable[[pa.DataType], bool]) -> bool:
    """Return whether a type, or one inside it, passes a test."""
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return test(kind) or any(_has(each, test) for each in inner)


def _is_foreign(kind: pa.DataType) -> bool:
    """Return whether Arrow does not read a type from JSON."""
    types = pa.types
    tests = (is_binary, types.is_map, types.is_date, types.is_time, types.is_duration)
    return any(test(kind) for test in tests)
