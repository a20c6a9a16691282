"""How much of a log is kept, and how late a reader may be: a time, a size, or both."""

from __future__ import annotations

import math
import re
from functools import lru_cache
from typing import NamedTuple

from queue_core.values.durations import LONGEST_SECONDS, parse_seconds

#: The forms, for errors and for the documentation of settings.
FORM = "a time such as 7 days, a size such as 50 GB, or both as in '7 days, 50 GB', or none"

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) *([KMGT]?)B", re.IGNORECASE)
_UNITS = {unit: 1000**power for power, unit in enumerate(("", "K", "M", "G", "T"))}


class LogLimits(NamedTuple):
    """What is trimmed from a log: whatever exceeds one of these."""

    #: The age in seconds at which messages are trimmed; None: they do not age.
    seconds: float | None = None
    #: The bytes above which the oldest messages are trimmed; None: no limit.
    bytes: int | None = None


class Lag(NamedTuple):
    """What a subscription has not handed out, in its log or waiting in main."""

    messages: int
    #: The time since the first of them was loaded, or came back; None: there are none.
    seconds: float | None
    bytes: int
    #: Seconds since somebody chose its place: no message counts as later than that.
    placed: float = math.inf

    def exceeds(self, budget: LogLimits) -> bool:
        """Return whether it is more than the subscription may have."""
        return self.used(budget) > 1

    def used(self, budget: LogLimits) -> float:
        """Return the used part of a budget: 1 where it ends."""
        wait = None if self.seconds is None else min(self.seconds, self.placed)
        parts = ((wait, budget.seconds), (self.bytes, budget.bytes))
        used = [got / max(most, 1e-6) for got, most in parts if got and most is not None]
        return max(used, default=0.0)

    def headroom(self, budget: LogLimits) -> float | None:
        """
        Return after how many seconds a budget ends if nothing is handed out; None: never.

        The bytes are expected to grow at their mean rate so far.
        """
        if self.seconds is None:
            return None
        left = [] if budget.seconds is None else [budget.seconds - min(self.seconds, self.placed)]
        if budget.bytes is not None and self.bytes:
            left.append((budget.bytes / self.bytes - 1) * self.seconds)
        return max(min(left), 0.0) if left else None


@lru_cache(maxsize=256)
def parsed(text: str | None) -> LogLimits | None:
    """Return the limits of a text; the text None has none. Returns None if it is malformed."""
    if text is None:
        return LogLimits()
    found = LogLimits()
    for part in text.split(","):
        size = _SIZE.fullmatch(part.strip())
        if size is not None and found.bytes is None:
            found = found._replace(bytes=int(float(size[1]) * _UNITS[size[2].upper()]))
            continue
        if not part.strip() or found.seconds is not None:
            return None
        try:
            found = found._replace(seconds=min(parse_seconds(part), LONGEST_SECONDS))
        except ValueError:
            return None
    return found


def limits_of(text: str | None) -> LogLimits:
    """Return the limits of a setting that was checked."""
    found = parsed(text)
    assert found is not None
    return found
