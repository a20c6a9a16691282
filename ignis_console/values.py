"""Values of messages and of the pages' models as JSON has them."""

from __future__ import annotations

import base64
import dataclasses
import json
import math
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any


def plain(value: Any) -> Any:
    """
    Return a value in types of JSON.

    Dataclasses become objects, times ISO 8601 texts, decimal numbers texts, and bytes base64.
    The numbers that JSON lacks become the texts ``NaN``, ``Infinity`` and ``-Infinity``. Fields
    that are declared with ``api`` false are left out.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else json.dumps(value)
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        fields = [each for each in dataclasses.fields(value) if each.metadata.get("api", True)]
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return str(value)


def shown(value: Any, most: int = 2000) -> str:
    """Return a value of a message as text for a page, at most *most* characters."""
    if value is None:
        return "null"
    if isinstance(value, bytes):
        text = value[:most].hex(" ")
    elif isinstance(value, str):
        text = value
    else:
        held = plain(value)
        text = held if isinstance(held, str) else repr(held)
    return text if len(text) <= most else text[:most] + "…"
