"""Prefetch: messages that are fired before workers ask for them.

A firing costs about the same however many messages it takes, so where handlers are quick one firing
serves several batches. While the fired messages are used up within `LINGER_SECONDS`, the next
firing takes twice as many; where handlers are slow, nothing is fired before a worker asks for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import pyarrow as pa

from queue_core.pool.timings import LINGER_SECONDS

#: A firing takes at most this many times the messages that were requested.
MAX_FACTOR = 16
#: A thread is served this often in a row while others may be ready. Python by itself would let it
#: run for so long that it takes hundreds of batches.
MAX_IN_A_ROW = 2


class Prefetch:
    """Messages that are fired and not requested yet; with *max_factor* 1 there are never any."""

    def __init__(self, max_factor: int = MAX_FACTOR) -> None:
        self._max_factor = max_factor
        self._factor = 1
        self._fired_at = 0.0
        #: The thread that was served last, and how often in a row.
        self._last_thread = self._in_a_row = 0
        self._lock = threading.Lock()
        self._waiting: deque[pa.RecordBatch] = deque()

    def next(self, limit: int) -> pa.RecordBatch | None:
        """Return up to *limit* of the messages that are here, or None."""
        self._let_others_run()
        with self._lock:
            if not self._waiting:
                return None
            batch = self._waiting.popleft()
            if batch.num_rows > limit:
                self._waiting.appendleft(batch.slice(limit))
            return batch.slice(0, limit)

    def amount(self, requested: int) -> int:
        """Return how many messages to fire when *requested* are asked for."""
        took = time.monotonic() - self._fired_at
        if took > LINGER_SECONDS:
            self._factor = max(self._factor // 2, 1)
        else:
            self._factor = min(self._factor * 2, self._max_factor)
        return requested * self._factor

    def put(self, messages: pa.RecordBatch | None) -> None:
        """Keep messages that were fired beyond those requested, if there are any."""
        self._fired_at = time.monotonic()
        if messages is not None and messages.num_rows:
            with self._lock:
                self._waiting.append(messages)

    def clear(self) -> list[pa.RecordBatch]:
        """Remove and return the messages that are here, which are to be given back."""
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
