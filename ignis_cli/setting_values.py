"""Settings on the command line: ``NAME=VALUE`` with durations, lists of columns, and none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from queue_core.errors import BadOption
from queue_core.values.durations import parse_seconds
from queue_core.values.options import words
from queue_core.values.settings import MAX_CONCURRENCY, descriptions, is_whole

#: The accepted forms of a text, for errors.
_FORMS = {
    "columns": ", separated by commas: amount,customer",
}


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Return values by the names of settings, from ``NAME=VALUE``; raises `BadOption`."""
    known = {each.name: each for each in descriptions()}
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise BadOption(f"setting {pair!r}: write NAME=VALUE")
        # The queue refuses unknown settings, because it can suggest the nearest name.
        kind = known[name].kind if name in known else "text"
        try:
            settings[name] = value = _value(kind, text)
            # In Python, more counts as 100; here, it is a slip that nobody would see.
            if name == "concurrency" and is_whole(value) and value > MAX_CONCURRENCY:
                raise ValueError
        except ValueError:
            allowed = f"{known[name].allowed}{_FORMS.get(kind, '')}"
            raise BadOption(f"{name}={text}: use {allowed}") from None
    return settings


def _value(kind: str, text: str) -> Any:
    """Parse one value; raises `ValueError`."""
    if text in ("none", "null"):
        return [] if kind == "columns" else None
    return _PARSERS[kind](text)


def _seconds(text: str) -> float:
    value = parse_seconds(text)
    return int(value) if value.is_integer() else value


def _columns(text: str) -> Any:
    if not text:
        return []
    return json.loads(text) if text.startswith("[") else list(words(text))


def _text(text: str) -> Any:
    return json.loads(text) if text.startswith('"') else text


_PARSERS: dict[str, Callable[[str], Any]] = {
    "seconds": _seconds,
    "columns": _columns,
    "number": json.loads,
    "text": _text,
}
