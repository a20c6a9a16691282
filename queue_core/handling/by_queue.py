"""A handler for each of many queues: each batch is split by queue, and each part handled apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.handling.handler import HandlerRunner
from queue_core.handling.results import REFUSAL

#: The column that says to which queue a message belongs.
QUEUE = "_queue"


@dataclass(frozen=True, slots=True)
class RunnerByQueue:
    """Runs the handler of each message's queue, as `HandlerRunner` runs the one of all messages."""

    #: By the name of the queue; each contract has the columns that its handler is given.
    runners: Mapping[str, HandlerRunner]

    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle batch after batch, in a process's main thread: the function for `mapInArrow`."""
        # New runners, because a handler's first result in a task decides whether it is refused.
        runners = {name: replace(each) for name, each in self.runners.items()}
        for batch in batches:
            for name, part in _parts(batch):
                runner = runners[name]
                for settled in runner.run([part.select(runner.contract.columns)], queue=name):
                    refusal = runner.refusal
                    why = None if refusal is None else f"queue {name!r}: {refusal}"
                    noted = pa.repeat(pa.scalar(why, pa.string()), settled.num_rows)
                    yield settled.append_column(REFUSAL, noted)


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by the queue of its messages; each part keeps their order."""
    queues = batch.column(QUEUE)
    names = pc.unique(queues).to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(queues, name))
