"""Ahead: messages that are fired before workers ask for them, as many as are handled in a moment.

A firing costs about the same however many messages it takes, so where handlers are quick one firing
serves for several batches. While what was fired is used up within a moment, the next firing takes
twice as much; where handlers take their time, nothing is fired before it is asked for.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import pyarrow as pa

#: What is fired ahead is handled within about so many seconds.
MOMENT_SECONDS = 0.05
#: How many times what was asked for is fired at most.
MOST = 16
#: How often the same thread is served while others may be ready: Python itself would let it go on
#: for so long that it has hundreds of batches.
IN_A_ROW = 2


class Prefetch:
    """What was fired and not asked for yet; with *most* 1, nothing ever is."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._times = 1
        self._fired_at = 0.0
        #: Who asked last, and how often without anybody in between.
        self._last = self._row = 0
        self._lock = threading.Lock()
        self._waiting: deque[pa.RecordBatch] = deque()

    def next(self, limit: int) -> pa.RecordBatch | None:
        """At most so many of the messages that are there."""
        self._let_others()
        with self._lock:
            if not self._waiting:
                return None
            batch = self._waiting.popleft()
            if batch.num_rows > limit:
                self._waiting.appendleft(batch.slice(limit))
            return batch.slice(0, limit)

    def how_many(self, asked: int) -> int:
        """How many messages to fire for those who have asked for some, and ahead."""
        took = time.monotonic() - self._fired_at
        if took > MOMENT_SECONDS:
            self._times = max(self._times // 2, 1)
        else:
            self._times = min(self._times * 2, self._most)
        return asked * self._times

    def put(self, messages: pa.RecordBatch | None) -> None:
        """These were fired, and nobody has asked for them yet."""
        self._fired_at = time.monotonic()
        if messages is not None and messages.num_rows:
            with self._lock:
                self._waiting.append(messages)

    def _let_others(self) -> None:
        """Who has had some in a row lets others go on, who may be as ready as it is."""
        me = threading.get_ident()
        self._row = self._row + 1 if me == self._last else 1
        self._last = me
        if self._row > IN_A_ROW:
            self._row = 0
            time.sleep(0)

    def clear(self) -> list[pa.RecordBatch]:
        """Nobody will ask for what is there: it has to be given back."""
        with self._lock:
            left, self._waiting = list(self._waiting), deque()
        return left
