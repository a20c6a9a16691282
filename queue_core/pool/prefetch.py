"""Prefetch: messages that are fired before workers ask for them.

A firing of many messages costs about as much as one of few. So with quick handlers, one firing
serves several batches. If the fired messages are used up within `LINGER_SECONDS`, the next firing
takes twice as many. With slow handlers, no message is fired before a worker asks for it. A firing
that finds nothing says nothing about the handlers.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from queue_core.pool.held import HeldBatch
from queue_core.pool.timings import LINGER_SECONDS

#: A firing takes at most this many times the messages that were requested.
MAX_FACTOR = 16
#: A thread is served this often in a row while others may be ready. Python alone would let it run
#: until it has taken hundreds of batches.
MAX_IN_A_ROW = 2


class Prefetch:
    """Messages that are fired and not requested yet; always none with *max_factor* 1."""

    def __init__(self, max_factor: int = MAX_FACTOR) -> None:
        self._max_factor = max_factor
        self._factor = 1
        self._fired_at = 0.0
        #: Whether messages were fired since an amount was last returned.
        self._found = False
        #: The thread that was served last, and the number of times in a row.
        self._last_thread = self._in_a_row = 0
        self._lock = threading.Lock()
        self._waiting: deque[HeldBatch] = deque()

    def next(self, limit: int) -> HeldBatch | None:
        """Return up to *limit* fired messages, or None."""
        self._let_others_run()
        with self._lock:
            if not self._waiting:
                return None
            first, rest = self._waiting.popleft().split(limit)
            if rest is not None:
                self._waiting.appendleft(rest)
            return first

    def amount(self, requested: int) -> int:
        """Return how many messages to fire when *requested* are asked for."""
        took = time.monotonic() - self._fired_at
        if took > LINGER_SECONDS:
            self._factor = max(self._factor // 2, 1)
        elif self._found:
            self._factor = min(self._factor * 2, self._max_factor)
        self._found = False
        return requested * self._factor

    def put(self, *messages: HeldBatch) -> None:
        """Note that messages were fired, and keep those beyond the requested ones."""
        self._fired_at = time.monotonic()
        self._found = True
        with self._lock:
            self._waiting.extend(messages)

    def clear(self) -> list[HeldBatch]:
        """Remove and return the fired messages, which the caller reloads."""
        with self._lock:
            left, self._waiting = list(self._waiting), deque()
        return left

    def _let_others_run(self) -> None:
        """Make a thread yield that was served several times in a row."""
        thread = threading.get_ident()
        self._in_a_row = self._in_a_row + 1 if thread == self._last_thread else 1
        self._last_thread = thread
        if self._in_a_row > MAX_IN_A_ROW:
            self._in_a_row = 0
            time.sleep(0)
