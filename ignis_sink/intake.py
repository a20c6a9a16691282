"""Take the rows of a write, and route them into several queues by a column; runs on executors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from ignis_sink.message import Target
from queue_core.errors import SchemaMismatch
from queue_core.segments.stager import RUN_BYTES, Stager
from queue_core.segments.storage import Storage
from queue_core.values.model import Staged
from queue_core.values.schema import conform

#: The most bytes of rows that wait in a task for the files of their queues.
MOST_WAITING = 4 * RUN_BYTES
#: Files that are completed at once: each waits until it is durable.
THREADS = 8


class Intake:
    """Takes the rows of a task; `finish` returns the staged segments of each queue."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._storage = Storage.open(target.storage).of_store(target.store)
        self._stagers: dict[str, Stager] = {}
        #: Rows that are not divided among their queues yet.
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows; they are divided among several queues when there are many."""
        if self._target.routes is None:
            self._stage(self._target.spec.queue, batch)
        elif batch.num_rows:
            self._batches.append(batch)
            self._bytes += batch.nbytes
            if self._bytes >= RUN_BYTES:
                self._divide(self._target.routes.column)

    def finish(self) -> dict[str, tuple[Staged, ...]]:
        """Write the waiting rows; return the segments of each queue, which are durable."""
        if self._batches and self._target.routes is not None:
            self._divide(self._target.routes.column)
        if len(self._stagers) == 1:
            return {name: stager.finish() for name, stager in self._stagers.items()}
        with ThreadPoolExecutor(THREADS) as threads:
            staged = threads.map(Stager.finish, self._stagers.values())
            return dict(zip(self._stagers, staged, strict=True))

    def discard(self) -> None:
        """Remove the staged segments if possible."""
        for stager in self._stagers.values():
            stager.discard()

    def _stage(self, name: str, rows: pa.RecordBatch | pa.Table) -> None:
        """Take rows of one queue, with the columns that it has."""
        spec = self._target.spec_of(name)
        if name not in self._stagers:
            self._stagers[name] = Stager(self._storage, spec)
        # One row of a stranger must not stop the query.
        for part in conform(rows, spec.schema, spec.queue, mends=True).to_batches():
            self._stagers[name].add(part)

    def _divide(self, column: str) -> None:
        """Sort the rows by queue, each queue's in their order, and pass them on."""
        rows = pa.Table.from_batches(self._batches)
        self._batches, self._bytes = [], 0
        queues = rows.column(column).combine_chunks()
        if queues.null_count:
            raise SchemaMismatch(
                f"column {column!r} is null in {queues.null_count} rows, and must name the queue "
                "of each row; nothing was loaded"
            )
        rows = rows.drop_columns([column])
        coded = queues.cast(pa.string()).dictionary_encode()
        names, codes = coded.dictionary.to_pylist(), coded.indices.to_numpy()
        self._target.check_all(names)
        if len(names) > 1:
            # Numbers of two bytes are sorted in one pass over their digits.
            short = codes.astype(np.uint16) if len(names) < 1 << 16 else codes
            rows = rows.take(pa.array(np.argsort(short, kind="stable")))
        begin = 0
        for name, count in zip(names, np.bincount(codes).tolist(), strict=True):
            self._stage(name, rows.slice(begin, count))
            begin += count
        stagers = self._stagers.values()
        while sum(stager.waiting for stager in stagers) > MOST_WAITING:
            max(stagers, key=lambda each: each.waiting).flush()
