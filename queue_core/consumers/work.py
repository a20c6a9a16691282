"""Work: a batch in a handler's hands, from its firing to its settlement."""

from __future__ import annotations

import threading
from collections import Counter

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.consumers.taking import Taking
from queue_core.errors import Unavailable
from queue_core.handling.handlers import Handling, settlement
from queue_core.outcomes import DELETE, RELOAD, SIDELINE

#: Seconds after which a settlement is tried again for which the catalog could not be reached.
RETRY_SECONDS = 1.0


class Work:
    """What a worker is doing; another one can go on with it."""

    def __init__(self, batch: pa.RecordBatch, taking: Taking, handling: Handling) -> None:
        self.batch = batch
        self.judging = handling.judging(batch)
        self._handler = handling.handler
        self._taking = taking

    def do(self, ending: threading.Event) -> Counter[str]:
        """Handle what is left, and settle; how many messages had which outcome."""
        self.judging.run(self._handler)
        return self.settle(ending)

    def settle(self, ending: threading.Event) -> Counter[str]:
        """Settle what was decided; while the catalog is out of reach, again, until the end."""
        settled = settlement(self.batch, self.judging)
        while True:
            try:
                self._taking.settle(settled)
            except Unavailable:
                if ending.wait(RETRY_SECONDS):
                    raise
            else:
                return _counted(settled)


def _counted(settled: pa.RecordBatch) -> Counter[str]:
    outcomes, told = settled.column("outcome"), settled.column("kind").is_valid()
    deleted = pc.equal(outcomes, DELETE)
    ignored = _sum(pc.and_(deleted, told))
    return Counter(
        deleted=_sum(deleted) - ignored,
        ignored=ignored,
        sidelined=_sum(pc.equal(outcomes, SIDELINE)),
        reloaded=_sum(pc.equal(outcomes, RELOAD)),
    )


def _sum(which: pa.Array) -> int:
    return int(pc.sum(which, min_count=0).as_py())
