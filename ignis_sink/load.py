"""mode=load: each task stages its rows; the commit publishes all of them, once per batch id.

Files of attempts that failed, and of jobs that were aborted, are left to vacuum: an abort may
follow a commit whose outcome nobody knows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from ignis_sink.message import LoadMessage, current_query
from ignis_sink.options import SinkOptions
from ignis_sink.target import Target, by_options, open_target
from queue_core import faults
from queue_core.errors import IgnisError
from queue_core.model import Staged
from queue_core.schema import conform


class LoadStreamWriter(DataSourceStreamArrowWriter):
    """
    Loads the micro-batches of a streaming query into a queue.

    Spark makes one to plan a batch, one more to commit it, and another if it has to abort, when the
    queue may look different. So what was planned travels with the tasks' messages; and what is
    wrong with the target is told by the tasks, since Spark tells nothing if an abort fails too.
    """

    def __init__(self, options: SinkOptions, target: Target | IgnisError) -> None:
        self._options = options
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LoadMessage:
        """On an executor: stage the rows of a partition."""
        if isinstance(self._target, IgnisError):
            raise self._target
        return stage(iterator, self._target)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Publish the batch, unless it was published before."""
        tasks = [message for message in messages if message is not None]
        faults.point("sink.before_commit")
        if tasks:
            target, query = tasks[0].target, tasks[0].query_id
            # Without it, batches of different queries would pass for one and the same.
            assert query is not None, "a task of a streaming query knows its query"
            queue = open_target(target, self._options)
            staged = in_turn(tasks, batchId * len(tasks), target.shards)
            publish(queue, staged, self._options, (query, batchId))
        faults.point("sink.committed")

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Leave staged files to vacuum."""


class LoadBatchWriter(DataSourceArrowWriter):
    """Loads a DataFrame into a queue."""

    def __init__(self, options: SinkOptions, target: Target) -> None:
        self._options = options
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> LoadMessage:
        """On an executor: stage the rows of a partition."""
        return stage(iterator, self._target)

    def commit(self, messages: list[Any]) -> None:
        """Publish all rows in one transaction."""
        tasks = [message for message in messages if message is not None]
        queue = open_target(self._target, self._options)
        staged = in_turn(tasks, random.randrange(self._target.shards), self._target.shards)
        publish(queue, staged, self._options, None)

    def abort(self, messages: list[Any]) -> None:
        """Leave staged files to vacuum."""


def stage(batches: Iterable[pa.RecordBatch], target: Target) -> LoadMessage:
    """Stage rows as durable segments that no slice names yet."""
    stager = target.stager()
    try:
        for batch in batches:
            faults.point("sink.writing")
            for part in conform(batch, target.schema, target.queue).to_batches():
                stager.add(part)
        staged = stager.finish()
    except BaseException:
        stager.discard()
        raise
    faults.point("sink.staged")
    return LoadMessage(target=target, staged=staged, query_id=current_query())


def publish(
    queue: Any, staged: list[Staged], options: SinkOptions, batch: tuple[str, int] | None
) -> None:
    """Load staged segments in one transaction; a batch only if it was not loaded before."""
    # Not at the top: executors import this module and need no SQL library.
    from queue_core.blocking import publish as blocking
    from queue_core.capacity.bounds import OnFull
    from queue_core.smart.decide import LoadPolicy
    from queue_core.smart.load import load_staged

    catalog, storage = queue.store.catalog, queue.store.storage
    when_full = OnFull(overflow=options.on_full, timeout=options.timeout)
    info = replace(queue.info, settings=by_options(queue.info.settings, options))
    rule = LoadPolicy.of(info)
    if rule is not None:
        load_staged(catalog, storage, info, rule, staged, when_full, batch)
    elif batch is not None:
        blocking.publish_once(catalog, storage, info, staged, *batch, when_full)
    else:
        blocking.publish(catalog, storage, info, staged, when_full)


def in_turn(tasks: list[LoadMessage], turn: int, shards: int) -> list[Staged]:
    """The segments of all tasks; those without a key go to one shard for each task, in turn."""
    return [
        segment.in_shard((turn + number) % shards)
        for number, task in enumerate(tasks)
        for segment in task.staged
    ]
