"""The partitions of a stream of side tasks, and how executors do their work. Needs the catalog."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from sqlalchemy import Connection

from ignis_source.options import SourceOptions
from queue_core.catalog.identity.handle import StoreHandle, known_store
from queue_core.catalog.records import schedule, task_log, task_runs
from queue_core.catalog.records.task_runs import RENEW_SECONDS, TaskRun
from queue_core.errors import IgnisError, Invalid, NoSuchQueue, NotLeading
from queue_core.support import faults
from queue_core.support.loop import Loop
from queue_core.upkeep.leader import Leader
from queue_core.upkeep.leader.lease import Deputy
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.upkeep.tasks.task import RETRY_SECONDS, Timing
from queue_core.values.model import QueueInfo
from queue_core.values.views import REPORTS
from queue_core.verbs.shovel import Shovelful

#: Attempts of a task that was asked for, before its query fails.
TRIES = 3

_log = logging.getLogger(__name__)


@dataclass
class TaskPartition(InputPartition):
    """Some runs of a round, which one task of Spark does one after the other."""

    runs: tuple[TaskRun, ...]
    #: The numbers and names of the queues whose reports are told; 0: the store.
    names: Mapping[int, str | None]
    #: The lease of the leader that has claimed them; None: ZooKeeper has elected it.
    grant: tuple[str, int] | None
    #: Whether a person asked for the tasks, due or not.
    asked_for: bool
    #: How many runs the round has.
    together: int


def make_tasks(
    store: StoreHandle, options: SourceOptions, queues: Sequence[QueueInfo], leader: Leader
) -> SideTasks:
    """Return a runner of the tasks that the options name, for a leader; raises `BadSelector`."""

    def shovelful(queue: QueueInfo) -> Shovelful:
        usual = Shovelful.of(queue, store.storage.uri, options.selector)
        return replace(usual, limit=options.limit or usual.limit, rate=options.rate or usual.rate)

    for queue in queues:
        # A selector that does not fit a queue is refused before any task runs.
        shovelful(queue)
    timings = {}
    if options.interval is not None:
        timings = {task: Timing(options.interval) for task in options.tasks}
    return SideTasks(
        store.catalog,
        store.storage,
        leader,
        tasks=options.tasks,
        timings=timings,
        shovelful=shovelful,
        deep=options.deep,
        # Retries would move messages whatever the options choose.
        retries=not (options.selector or options.limit or options.rate),
    )


def do_runs(options: SourceOptions, partition: TaskPartition) -> pa.Table:
    """
    Do the runs of a partition, unless they are done; return the reports of what they moved.

    A run that is repeated continues, and a run that was done is only reported. An error does not
    keep other runs from being done, and is noted in the catalog.
    """
    store = known_store(options.address)
    ids = [run.id for run in partition.runs]

    def hold() -> None:
        store.catalog.write(lambda connection: task_runs.hold(connection, ids))

    loop = Loop("runs", hold, every=RENEW_SECONDS)
    loop.start()
    try:
        for run in partition.runs:
            if store.catalog.write(lambda c: task_runs.hold(c, [run.id])):  # noqa: B023
                _do(store, options, partition, run)
    finally:
        loop.stop()
    with store.catalog.read() as connection:
        told = [task_log.read_run(connection, run, partition.names) for run in ids]
    return pa.concat_tables([REPORTS.empty_table(), *told])


def _do(store: StoreHandle, options: SourceOptions, partition: TaskPartition, run: TaskRun) -> None:
    """Do a run, and note that it is done."""
    tasks = make_tasks(store, options, (), Deputy(partition.grant, run.id))
    name = partition.names.get(run.target_id) or f"queue {run.target_id}"
    if run.target_id == schedule.STORE:
        name = "the store"
    undone = False
    for left in reversed(range(TRIES if partition.asked_for else 1)):
        failure: IgnisError | None = None
        try:
            with task_log.belonging_to(run.id):
                tasks.run_share(run, asked_for=partition.asked_for, together=partition.together)
        except (NotLeading, NoSuchQueue) as error:
            undone = isinstance(error, NotLeading)
            _log.warning("task %s of %s is left to others: %s", run.task, name, error)
        except IgnisError as error:
            _log.warning("task %s of %s failed: %s", run.task, name, error)
            failure = error
        if failure is None or isinstance(failure, Invalid):
            break
        if left:
            time.sleep(RETRY_SECONDS)
    faults.point("task.done")
    told = None if failure is None else f"{type(failure).__name__}: {failure}"

    def finish(connection: Connection) -> None:
        task_runs.finish(connection, run.id, told)
        if failure is not None or undone:
            schedule.hasten(connection, run.queue_id, run.task, RETRY_SECONDS)

    store.catalog.write(finish)
