"""Held bytes: how many bytes of messages a pool holds, fired and not yet settled.

A firing reserves room before it knows what it gets. Each worker that takes part has an equal share
of the room, so that one of them does not take the messages of all. A message can be larger than the
room, and each firing takes one at least; so the bytes exceed the limit by one message at most, or
by one of each queue, as the queues of a pool are fired from at the same time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

#: The bytes that a pool holds by default: enough for many small batches, and little memory.
MAX_BYTES = 64 << 20


class HeldBytes:
    """
    A bounded number of bytes, some of them in use. Thread-safe.

    Args:
        limit: The most bytes in use.
        workers: Returns the number of workers that share them.
    """

    def __init__(self, limit: int = MAX_BYTES, workers: Callable[[], int] = lambda: 1) -> None:
        self.limit = limit
        self.used = 0
        self.workers = workers
        self._lock = threading.Lock()
        self._waiting: set[Callable[[], None]] = set()

    @property
    def few(self) -> int:
        """How many bytes a worker may hold beside its batch without keeping others from theirs."""
        return self.limit // max(self.workers(), 1) // 8

    def reserve(self, requests: int, look_again: Callable[[], None]) -> int:
        """
        Reserve the shares of some workers, as far as there is room, and return how many bytes.

        If there is no room, return 0; *look_again* is called once when there is some.
        """
        share = self.limit * requests // max(self.workers(), requests, 1)
        with self._lock:
            room = min(self.limit - self.used, max(share, 1))
            if room <= 0:
                self._waiting.add(look_again)
                return 0
            self.used += room
        return room

    def add(self, count: int) -> None:
        """Note that so many bytes more are held."""
        with self._lock:
            self.used += count

    def give_back(self, count: int) -> None:
        """Note that so many bytes are not held any more."""
        with self._lock:
            self.used -= count
            if not self._waiting or self.used >= self.limit:
                return
            waiting, self._waiting = self._waiting, set()
        for look_again in waiting:
            look_again()
