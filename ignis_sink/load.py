"""Load the rows of a write (mode=load): tasks stage them, and the commit publishes all at once.

A batch is published once per batch id. Vacuum removes the files of failed attempts and aborted
jobs: an abort may follow a commit whose outcome is unknown, so the writers have none.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter

from ignis_sink.arrow_streams import DataSourceStreamArrowWriter
from ignis_sink.message import LoadMessage, Target, current_batch, current_query, read_entry
from ignis_sink.options import SinkOptions
from queue_core.errors import IgnisError, SchemaMismatch
from queue_core.segments.row_digest import MODULUS, digest_of
from queue_core.segments.stager import RUN_BYTES, Stager
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.support.brief_errors import briefly
from queue_core.support.collector import pass_over_imports
from queue_core.values.model import Batch, Staged
from queue_core.values.schema import conform
from queue_core.values.settings import MAX_SHARDS

# The module `publishing` is imported by the commits alone: executors need no SQL library.


class LoadStreamWriter(DataSourceStreamArrowWriter):
    """
    Loads the micro-batches of a streaming query into a queue.

    Spark makes one writer to plan a batch, another to commit it, and another to abort it;
    meanwhile, the queue may have changed. So the tasks' messages contain the target. The tasks
    raise errors of the target, because Spark reports no error if the abort fails too.
    """

    def __init__(self, options: SinkOptions, target: Target | IgnisError) -> None:
        self._options = options
        self._target = target

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> LoadMessage:
        """On an executor: stage the rows of a partition."""
        if isinstance(self._target, IgnisError):
            raise self._target
        # Before any file is written: it would stand in the way of a store that is brought back.
        self._target.check_there(current_batch() or 0)
        return stage(iterator, self._target, digested=True)

    @briefly
    def commit(self, messages: list[Any], batchId: int) -> None:
        """Publish the batch, unless it was published before; raises `StaleCheckpoint`."""
        tasks = [message for message in messages if message is not None]
        faults.point("sink.before_commit")
        if tasks:
            from ignis_sink.publishing import publish_tasks

            pass_over_imports()
            query = tasks[0].query_id
            # Without it, batches of different queries would look the same.
            assert query is not None, "a task of a streaming query knows its query"
            entry, tickets = read_entry(self._options.checkpoint, batchId)
            batch = Batch(
                query_id=query,
                number=batchId,
                rows=sum(task.rows for task in tasks),
                digest=sum(task.digest for task in tasks) % MODULUS,
                entry=entry,
                tickets=tickets,
            )
            publish_tasks(tasks[0].target, tasks, self._options, batchId * len(tasks), batch)
        faults.point("sink.committed")


class LoadBatchWriter(DataSourceArrowWriter):
    """Loads a DataFrame into a queue."""

    def __init__(self, options: SinkOptions, target: Target) -> None:
        self._options = options
        self._target = target

    @briefly
    def write(self, iterator: Iterator[pa.RecordBatch]) -> LoadMessage:
        """On an executor: stage the rows of a partition."""
        return stage(iterator, self._target)

    @briefly
    def commit(self, messages: list[Any]) -> None:
        """Publish all rows in one transaction."""
        from ignis_sink.publishing import publish_tasks

        tasks = [message for message in messages if message is not None]
        turn, batch = random.randrange(MAX_SHARDS), self._options.transaction
        publish_tasks(self._target, tasks, self._options, turn, batch)


def stage(
    batches: Iterable[pa.RecordBatch], target: Target, *, digested: bool = False
) -> LoadMessage:
    """Stage rows as durable segments that no slice names yet; with *digested*, describe them."""
    pass_over_imports()
    intake = Intake(target)
    rows = digest = 0
    try:
        for batch in batches:
            rows += batch.num_rows
            if digested:
                digest += digest_of(batch)
            faults.point("sink.writing")
            intake.add(batch)
        staged = intake.finish()
    except BaseException:
        intake.discard()
        raise
    faults.point("sink.staged")
    return LoadMessage(
        target=target, staged=staged, query_id=current_query(), rows=rows, digest=digest % MODULUS
    )


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
            self._stage(self._target.spec.name, batch)
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
        for part in conform(rows, spec.schema, spec.name, mends=True).to_batches():
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
