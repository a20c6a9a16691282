"""Load the rows of a write (mode=load): tasks stage them, and the commit publishes all at once.

A batch is published once per batch id. Vacuum removes the files of failed attempts and aborted
jobs: an abort may follow a commit whose outcome is unknown, so the writers have none.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter

from ignis_sink.arrow_streams import DataSourceStreamArrowWriter
from ignis_sink.intake import Intake
from ignis_sink.message import (
    LoadMessage,
    Target,
    current_batch,
    current_query,
    read_entry,
)
from ignis_sink.options import SinkOptions
from queue_core.errors import IgnisError
from queue_core.segments.row_digest import MODULUS, digest_of
from queue_core.support import faults
from queue_core.support.brief_errors import briefly
from queue_core.support.collector import pass_over_imports
from queue_core.values.model import Batch
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
        # Before a file is written, which would stand in the way of a store that is brought back.
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
