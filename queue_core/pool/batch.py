"""Work in a worker's hands: a batch that is being handled, and what was handled and not settled.

A settlement costs about the same however many messages it is of. So where handlers are quick, what
was handled is settled together, after a moment, or as soon as there is nothing more to handle;
where they take their time, each batch by itself. What a crash catches between is handled again.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import Unavailable
from queue_core.handlers.handler import Handling, settlement
from queue_core.outcomes import DELETE, RELOAD, SIDELINE
from queue_core.pool.prefetch import MOMENT_SECONDS
from queue_core.pool.source import MessageSource

#: Seconds after which a settlement is tried again for which the catalog could not be reached.
RETRY_SECONDS = 1.0


class Batch:
    """A batch that is being handled; another thread can go on with it."""

    def __init__(self, batch: pa.RecordBatch, taking: MessageSource, handling: Handling) -> None:
        self.taking = taking
        self.judging = handling.judging(batch)
        self._batch = batch
        self._handler = handling.handler

    def do(self) -> None:
        """Make the calls that are left."""
        self.judging.run(self._handler)

    @property
    def settlement(self) -> pa.RecordBatch:
        """What is to become of the messages, when all calls are made."""
        return settlement(self._batch, self.judging)


class Handled:
    """What was handled and is to be settled; *settled* hears what became of how many."""

    def __init__(self, settled: Callable[[Counter[str]], None], *, at_once: bool) -> None:
        self._settled = settled
        self._moment = 0.0 if at_once else MOMENT_SECONDS
        self._of: dict[MessageSource, list[pa.RecordBatch]] = {}
        self._since = 0.0

    def add(self, work: Batch) -> None:
        """All calls for a batch are made."""
        if not self._of:
            self._since = time.monotonic()
        self._of.setdefault(work.taking, []).append(work.settlement)

    @property
    def is_due(self) -> bool:
        """Whether to settle before anything else is handled."""
        return bool(self._of) and time.monotonic() - self._since >= self._moment

    def settle(self, ending: threading.Event) -> None:
        """Settle all of it; while the catalog is out of reach, again, until the end."""
        while self._of:
            taking, batches = next(iter(self._of.items()))
            rows = pa.Table.from_batches(batches)
            try:
                taking.settle(rows)
            except Unavailable:
                if ending.wait(RETRY_SECONDS):
                    raise
                continue
            del self._of[taking]
            self._settled(_counted(rows))


def _counted(settled: pa.Table) -> Counter[str]:
    outcomes, told = settled.column("outcome"), settled.column("kind").is_valid()
    deleted = pc.equal(outcomes, DELETE)
    ignored = _sum(pc.and_(deleted, told))
    return Counter(
        deleted=_sum(deleted) - ignored,
        ignored=ignored,
        sidelined=_sum(pc.equal(outcomes, SIDELINE)),
        reloaded=_sum(pc.equal(outcomes, RELOAD)),
    )


def _sum(which: pa.ChunkedArray) -> int:
    return int(pc.sum(which, min_count=0).as_py())
