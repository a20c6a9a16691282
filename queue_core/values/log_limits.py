"""How much of a queue's log is kept: for a time, up to a size, or both."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, NamedTuple

from queue_core.values.durations import parse_seconds

#: The forms, for errors and for the documentation of settings.
FORM = "a time such as 7 days, a size such as 50 GB, or both as in '7 days, 50 GB', or none"

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)B", re.IGNORECASE)
_UNITS = {unit: 1000**power for power, unit in enumerate(("", "K", "M", "G", "T"))}


class LogLimits(NamedTuple):
    """What is trimmed from a log: whatever exceeds one of these."""

    #: The age in seconds at which messages are trimmed; None: they do not age.
    seconds: float | None = None
    #: The bytes above which the oldest messages are trimmed; None: there may be any number.
    bytes: int | None = None


@lru_cache(maxsize=256)
def parsed(text: Any) -> LogLimits | None:
    """Return the limits that a text says, which None has not; None: it is no such text."""
    if text is None:
        return LogLimits()
    found = LogLimits()
    for part in text.split(",") if isinstance(text, str) else ("",):
        size = _SIZE.fullmatch(part.strip())
        if size is not None and found.bytes is None:
            found = found._replace(bytes=int(float(size[1]) * _UNITS[size[2].upper()]))
            continue
        if not part.strip() or found.seconds is not None:
            return None
        try:
            found = found._replace(seconds=parse_seconds(part))
        except ValueError:
            return None
    return found
