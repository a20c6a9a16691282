"""Outcomes of handled messages, which are settled together.

A settlement of many messages costs about as much as one of few. So with quick handlers, the
outcomes of several batches are settled together: after `LINGER_SECONDS`, or as soon as no message
is left to handle. With slow handlers, each batch is settled by itself. What would wait for a slow
call, the pool's watcher settles within about a second, since others of its groups, or below limits,
may wait for it. It tries once, and leaves rows for an output queue, whose load may wait for room,
and what transactional pools have, since the transaction of a slow call is open.

Crash: messages that were handled but not settled are handled again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import QueueFull, Unavailable
from queue_core.handling.took import CallTimes, by_outcome, measure
from queue_core.pool.batch import PoolBatch, as_committed, settlement_of, without_committed
from queue_core.pool.output import PoolOutcomes, Settled
from queue_core.pool.source import MessageSource
from queue_core.pool.timings import LINGER_SECONDS, LOAD_LINGER_SECONDS, RETRY_SECONDS
from queue_core.values.rows import Numbers


class OutcomeBuffer:
    """
    The outcomes of one worker's batches that are not settled yet.

    Args:
        on_settled: Called after each settlement with the number of messages per outcome, and the
            bytes of these messages.
        at_once: Whether every batch is settled before the next one is handled.
    """

    def __init__(self, on_settled: Callable[[Counter[str], int], None], *, at_once: bool) -> None:
        self._on_settled = on_settled
        self._linger = 0.0 if at_once else LINGER_SECONDS
        self._by_source: dict[MessageSource, list[PoolBatch]] = {}
        self._since = 0.0
        #: The bytes of its messages, which the pool holds until they are settled.
        self.bytes = 0

    def add(self, batch: PoolBatch) -> None:
        """Add the outcomes of a batch whose calls are all made."""
        if not self._by_source:
            self._since = time.monotonic()
        self._by_source.setdefault(batch.source, []).append(batch)
        self.bytes += batch.bytes

    @property
    def is_due(self) -> bool:
        """Whether to settle before the next batch is handled."""
        loads = any(source.output is not None for source in self._by_source)
        linger = LOAD_LINGER_SECONDS if loads and self._linger else self._linger
        return bool(self._by_source) and time.monotonic() - self._since >= linger

    def settle(self, stopping: threading.Event | None) -> None:
        """
        Settle everything; retry while the catalog is unavailable or the output queue has no room.

        Once *stopping* is set, what cannot be settled is put back. With None instead, which is not
        for messages with rows, it tries once, and keeps what it could not settle.
        """
        while self._by_source:
            source, batches = next(iter(self._by_source.items()))
            rows = settlement_of(batches)
            left = without_committed(rows, batches)
            outcomes = PoolOutcomes(left)
            if source.output is not None:
                parts = [(batch.fit(), batch.messages.num_rows) for batch in batches]
                outcomes = source.output.outcomes_of(left, parts)
            settled = _settled(source, outcomes, stopping)
            if left is rows:
                rows = settled.settlement
            rows, lost = as_committed(rows, settled.lost, batches)
            del self._by_source[source]
            size = sum(batch.bytes for batch in batches)
            self.bytes -= size
            masks = by_outcome(rows)
            times = [CallTimes(each.calls.seconds, each.messages.num_rows) for each in batches]
            source.note_handled(measure(rows, masks, times))
            counts = _counts(rows, masks, lost)
            self._on_settled(counts, size)


def _settled(
    source: MessageSource, outcomes: PoolOutcomes, stopping: threading.Event | None
) -> Settled:
    """
    Settle, and keep trying to settle what is left until *stopping* is set.

    If rows cannot be loaded by then, the messages that have rows are put back.
    """
    done: list[Settled] = []
    while True:
        try:
            done.append(source.settle(outcomes))
            source.trouble.over()
        except Unavailable as error:
            is_full = isinstance(error, QueueFull)
            # A load into a full queue has waited already.
            pause = 0.0 if is_full else RETRY_SECONDS
            if pause:
                source.trouble.failed(error, "settle")
            if stopping is None or stopping.wait(pause):
                if outcomes.output is None:
                    raise
                outcomes = outcomes.put_back()
        else:
            left = outcomes.after(done[-1])
            if left is None:
                return Settled.joint(done)
            outcomes = left


def _counts(
    rows: pa.Table, masks: Mapping[str, npt.NDArray[np.bool_]], lost: Numbers
) -> Counter[str]:
    """Return the number of messages per outcome. Those that were *lost* count for themselves."""
    gone = np.isin(rows.column("_message_id").to_numpy(), lost)
    counts = Counter(lost=int(np.count_nonzero(gone)))
    for outcome, mask in masks.items():
        counts[outcome] = int(np.count_nonzero(mask & ~gone))
    return counts
