"""Binary values in JSON, which has none: each is a text in base64, as Spark writes and reads it."""

from __future__ import annotations

import base64
import json
from typing import Any

import pyarrow as pa

from queue_core.values.schema import is_binary


def has_bytes(kind: pa.DataType) -> bool:
    """Return whether values of a type are binary, or have binary values inside."""
    inner = (kind.field(at).type for at in range(kind.num_fields))
    return is_binary(kind) or any(map(has_bytes, inner))


def as_texts(kind: pa.DataType) -> pa.DataType:
    """Return a type without maps, with texts instead of binary values: Arrow reads it from JSON."""
    if is_binary(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(as_texts(field.type)) for field in kind])
    if has_bytes(kind):
        return pa.list_(as_texts(kind.value_type))
    return kind


def decoded(value: Any, kind: pa.DataType) -> Any:
    """Return a value without maps, with bytes instead of base64; raises `ValueError`."""
    if value is None or not has_bytes(kind):
        return value
    if is_binary(kind):
        return of_text(value)
    if pa.types.is_struct(kind):
        return {field.name: decoded(value.get(field.name), field.type) for field in kind}
    return [decoded(item, kind.value_type) for item in value]


def of_text(text: Any) -> bytes:
    """Return the bytes of a text in base64; raises `ValueError`."""
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        shown = json.dumps(text, ensure_ascii=False)[:60]
        raise ValueError(f"{shown} is not base64, which a binary column needs") from None
