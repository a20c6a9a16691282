"""Durations: seconds as a number, a text such as ``"15m"``, or a ``timedelta``.

Each argument, setting and option that takes seconds reads them here. Numbers are checked here, too.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any, TypeAlias, TypeGuard

from queue_core.errors import BadOption

Duration: TypeAlias = float | str | timedelta

#: The forms, for errors and for the documentation of settings.
FORM = "seconds or a duration such as 90s, 15m, 2h or 2d"
#: The most seconds of any wait: a hundred years. A later time would not fit into a timestamp.
LONGEST_SECONDS = 3_155_760_000.0
#: The names of each unit, and its seconds. Spark's triggers have the long ones too.
_UNITS = {
    name: seconds
    for names, seconds in (
        ("ms millisecond milliseconds", 0.001),
        ("s sec secs second seconds", 1.0),
        ("m min mins minute minutes", 60.0),
        ("h hr hrs hour hours", 3600.0),
        ("d day days", 86_400.0),
        ("w week weeks", 7 * 86_400.0),
    )
    for name in names.split()
} | {"": 1.0}


def parse_seconds(text: str) -> float:
    """Parse a duration: ``5``, ``0.2``, ``200ms``, ``10 s``, ``15 minutes``, ``2h``, ``1 week``."""
    text = text.strip().lower()
    number = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    try:
        value = float(number) * _UNITS[text[len(number) :].strip()]
    except (KeyError, ValueError):
        raise ValueError("a duration such as 200ms, 5s, 20m, 2h or 1d") from None
    if not 0 <= value < inf:
        raise ValueError("a duration of 0 or more")
    return value


def in_seconds(given: Any) -> Any:
    """Return a duration in seconds; any other value as it is, for the caller's check."""
    if isinstance(given, timedelta):
        return given.total_seconds()
    if not isinstance(given, str):
        return given
    try:
        return parse_seconds(given)
    except ValueError:
        return given


def is_whole(value: object) -> bool:
    """Return whether a value is a whole number, which True and False are not."""
    return isinstance(value, int) and not isinstance(value, bool)


def check_whole(name: str, value: int, least: int, most: int | None = None) -> int:
    """Return a whole number within bounds; raises `BadOption`."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        bounds = f", {least} or more" if most is None else f" from {least} to {most}"
        raise BadOption(f"{name}={value!r}: use a whole number{bounds}")
    return value


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a number, which True and False are not."""
    return is_whole(value) or isinstance(value, float)


def is_seconds(value: object) -> bool:
    """Whether a value is a number of seconds, 0 or more."""
    return is_number(value) and 0 <= value < inf


def check_seconds(name: str, given: Duration) -> float:
    """Return a duration of 0 or more in seconds; raises `BadOption`."""
    found = in_seconds(given)
    if not is_seconds(found):
        raise BadOption(f"{name}={given!r}: use {FORM}, 0 or more")
    return float(found)


def check_timeout(name: str, given: Duration | None) -> float | None:
    """Return a duration of 0 or more in seconds, or None; raises `BadOption`."""
    return None if given is None else check_seconds(name, given)
