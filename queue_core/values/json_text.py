"""Values of messages, rows and dataclasses as JSON, for the command line and the console."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import Field, fields, is_dataclass
from datetime import date, datetime, time, timedelta
from typing import Any

#: The metadata of a dataclass's field that JSON leaves out.
HIDDEN = {"json": False}


def as_json(value: Any) -> str:
    """
    Return a value as JSON.

    Dataclasses become objects, bytes base64 as in Spark, and other values that JSON lacks texts:
    NaN and infinity, times in ISO 8601, decimal numbers.
    """
    try:
        return json.dumps(value, default=_plain, ensure_ascii=False, allow_nan=False)
    except ValueError:
        texts = json.loads(json.dumps(value, default=_plain), parse_constant=str)
        return json.dumps(texts, ensure_ascii=False)


def shown_fields(kind: Any) -> list[Field[Any]]:
    """Return the fields of a dataclass that its JSON includes."""
    return [field for field in fields(kind) if field.metadata.get("json", True)]


def _plain(value: Any) -> Any:
    """Return a value of a type that JSON lacks, in terms of other types."""
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in shown_fields(value)}
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, set | frozenset) else str(value)
