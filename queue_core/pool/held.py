"""What a pool holds, fired and not yet settled: batches, bytes, and the credit of its workers.

A firing reserves room before it knows what it gets. Each worker that takes part has an equal share
of the room, so that one of them does not take the messages of all. A message can be larger than the
room, and each firing takes one at least; so the bytes exceed the limit by one message at most, or
by one of each queue, as the queues of a pool are fired from at the same time.

To measure a batch takes longer than to hand it out, so each firing is measured once, and its parts
share its bytes by their rows.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import pyarrow as pa

from queue_core.pool.timings import STALL_SECONDS

#: The bytes that a pool holds by default: enough for many small batches, and little memory.
MAX_BYTES = 64 << 20
#: Seconds for which suspects keep other queues back. Suspects that wait are seen again sooner.
KEPT_BACK_SECONDS = 10 * STALL_SECONDS


class Stalls:
    """The queues of a consumer whose suspects wait until it holds nothing. Thread-safe."""

    def __init__(self) -> None:
        #: When a firing has seen it last, by queue.
        self._seen: dict[str, float] = {}

    def note(self, queue: str, *, waits: bool) -> None:
        """Note what a firing from a queue has seen."""
        if waits:
            self._seen[queue] = time.monotonic()
        else:
            self._seen.pop(queue, None)

    def keep_back(self, queue: str) -> bool:
        """Return whether to fire nothing from a queue, for the suspects of another one."""
        since = time.monotonic() - KEPT_BACK_SECONDS
        waiting = [name for name, at in list(self._seen.items()) if at > since]
        return bool(waiting) and queue not in waiting


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
        #: Queues whose suspects keep all sources that share the bytes from firing.
        self.stalls = Stalls()
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


@dataclass(frozen=True, slots=True)
class HeldBatch:
    """Messages, one or more, and their bytes."""

    messages: pa.RecordBatch
    bytes: int
    #: Whether there may be others, which another worker could take.
    more: bool = True

    def __len__(self) -> int:
        return int(self.messages.num_rows)

    def split(self, count: int) -> tuple[HeldBatch, HeldBatch | None]:
        """Return the first messages, and the rest."""
        if count >= len(self):
            return self, None
        size = self.bytes * count // len(self)
        rest = HeldBatch(self.messages.slice(count), self.bytes - size)
        return HeldBatch(self.messages.slice(0, count), size), rest


def divided(
    messages: pa.Table, limits: Sequence[int], *, more: bool = True
) -> tuple[list[HeldBatch | None], list[HeldBatch]]:
    """
    Divide messages evenly, up to each limit; return the parts, and the rest.

    *more*: whether other messages may wait besides these. A part of the rest always says so.
    """
    rows = left = messages.num_rows
    size = messages.nbytes if rows else 0
    pieces = deque(HeldBatch(each, size * len(each) // rows) for each in combined(messages))
    parts: list[HeldBatch | None] = []
    for number, limit in enumerate(limits):
        part, rest = None, None
        if pieces:
            part, rest = pieces.popleft().split(min(limit, -(-left // (len(limits) - number))))
            left -= len(part)
        if rest is not None:
            pieces.appendleft(rest)
        parts.append(part)
    others = more or bool(pieces)
    return [part and replace(part, more=others) for part in parts], list(pieces)


def combined(messages: pa.Table) -> list[pa.RecordBatch]:
    """Return messages in few batches: in one, unless a column has more than 2 GiB."""
    if len(messages.to_batches()) > 1:
        # Nested columns of this size cannot be combined at all.
        with suppress(pa.ArrowInvalid):
            messages = messages.combine_chunks()
    return [batch for batch in messages.to_batches() if batch.num_rows]


class Credit:
    """
    A bounded number of messages in flight, some of them in use. Thread-safe.

    Args:
        limit: The most messages in use; None for no limit.
        on_change: Called with False when a reservation is refused because no credit is left, and
            with True when some is left again.
    """

    def __init__(self, limit: int | None, on_change: Callable[[bool], None]) -> None:
        self.limit = limit
        self.used = 0
        self._on_change = on_change
        self._lock = threading.Lock()
        self._reporting = threading.Lock()
        self._reported = True
        #: When the credit ran out; None while some is left.
        self._none_since: float | None = None

    def reserve(self, count: int) -> int:
        """Reserve up to *count* messages, and return how many."""
        with self._lock:
            granted = count if self.limit is None else max(min(count, self.limit - self.used), 0)
            self.used += granted
            self._note()
        if not granted:
            # Not earlier: the worker that reserves the last credit must use it first.
            self._report()
            # No report tells of what came back before it.
            return self.reserve(count) if self._reported else 0
        return granted

    def give_back(self, count: int) -> None:
        """Release *count* messages."""
        with self._lock:
            self.used -= count
            self._note()
        self._report()

    def missing_for(self) -> float:
        """Return for how many seconds there has been no credit; 0 while some is left."""
        since = self._none_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def _is_left(self) -> bool:
        return self.limit is None or self.used < self.limit

    def _note(self) -> None:
        if self._is_left:
            self._none_since = None
        elif self._none_since is None:
            self._none_since = time.monotonic()

    def _report(self) -> None:
        """Report changes one after another, so that the last report is true."""
        while self._reported != self._is_left:
            with self._reporting:
                left = self._is_left
                if self._reported != left:
                    self._reported = left
                    self._on_change(left)
