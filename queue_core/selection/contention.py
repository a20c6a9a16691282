"""Contention: whether several consumers fire from the same queues at the same time.

A firing may take messages from many shards, and so lock all of them. If it meets a
turn that another firing has locked, this process takes messages from as few shards as possible for
a while, so that others can fire beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

#: Seconds for which a firing that met another one counts.
SECONDS = 10.0
#: How many queues are kept.
_MOST = 1024


class Contention:
    """Where firings of this process have met others lately. Threads can share it."""

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, *, seconds: float = SECONDS
    ) -> None:
        self._clock = clock
        self._seconds = seconds
        self._met: dict[Hashable, float] = {}

    def note(self, where: Hashable) -> None:
        """Note that a firing has met another one."""
        if len(self._met) >= _MOST:
            self._met = {}
        self._met[where] = self._clock()

    def is_near(self, where: Hashable) -> bool:
        """Return whether a firing has met another one within the last seconds, as many as count."""
        at = self._met.get(where)
        return at is not None and self._clock() - at < self._seconds
