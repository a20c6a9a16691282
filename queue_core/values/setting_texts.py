"""Settings as texts: how the command line and the sink of Spark read the value of a setting."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

from queue_core.errors import BadOption
from queue_core.values.durations import is_whole, parse_seconds
from queue_core.values.options import words
from queue_core.values.settings import MAX_CONCURRENCY, QueueSettings

_NONE = ("none", "null")
#: Parses the values of each kind of setting; raises `ValueError`.
_PARSERS: dict[str, Callable[[str], Any]] = {
    "seconds": lambda text: int(value) if (value := parse_seconds(text)).is_integer() else value,
    "columns": lambda text: json.loads(text) if text.startswith("[") else list(words(text)),
    "number": json.loads,
    "text": lambda text: json.loads(text) if text.startswith('"') else text,
}


def parse_setting(name: str, text: str) -> Any:
    """
    Return the value of a setting from its text; for an unknown setting, the text itself.

    Raises `ValueError` with the allowed values. The queue checks the range.
    """
    known = {each.name: each.metadata["allowed"] for each in fields(QueueSettings)}
    if name not in known:
        return text
    kind = known[name].kind
    if text in ("", *_NONE) and kind == "columns":
        text = "[]"
    try:
        value: Any = None if text in _NONE else _PARSERS[kind](text)
        # In Python, a higher value counts as 100; in a text, it is a slip that nobody would notice.
        if name == "concurrency" and is_whole(value) and value > MAX_CONCURRENCY:
            raise ValueError
    except ValueError:
        form = ", separated by commas: amount,customer" if kind == "columns" else ""
        raise ValueError(f"{known[name].text}{form}") from None
    return value


def parse_settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Return values by the names of settings, from ``NAME=VALUE``; raises `BadOption`."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise BadOption(f"setting {pair!r}: write NAME=VALUE")
        try:
            # The queue refuses unknown settings, because it can suggest the nearest name.
            settings[name] = parse_setting(name, text)
        except ValueError as error:
            raise BadOption(f"{name}={text}: use {error}") from None
    return settings
