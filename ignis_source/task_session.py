"""The driver's side of a query of side tasks: claims them for its batches, and follows their log.

There is one per query and process, as `ignis_source.session` is for messages. Executors do the
work (`ignis_source.task_partition`).

An offset is a round of claimed runs, as a ticket is for messages (`queue_core.catalog.records.
task_runs`). The rows of a batch come from the catalog's task log. So a batch that is planned again
has the same rows, even if another process did its work.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pyspark.sql.datasource import InputPartition

from ignis_source.offset import TaskOffset
from ignis_source.options import SourceOptions
from ignis_source.partition import TablePartition
from ignis_source.queue_refresh import Queues
from ignis_source.task_partition import TaskPartition, make_tasks
from queue_core import errors
from queue_core.catalog import queues
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.poller import BLIND_SECONDS, Poller
from queue_core.catalog.records import schedule, task_log, task_runs
from queue_core.catalog.records.task_runs import TaskRun
from queue_core.errors import CatalogUnavailable, IgnisError
from queue_core.support import faults
from queue_core.upkeep.leader import candidate
from queue_core.upkeep.tasks.background import RETRIES_LOOK_SECONDS
from queue_core.upkeep.tasks.registry import REGISTRY
from queue_core.upkeep.tasks.runner import RETRY, StreamClaim
from queue_core.values.model import QueueInfo

#: Seconds to wait until ZooKeeper has elected a leader, or until a report is written.
PATIENCE_SECONDS = 10.0
#: The most partitions of a batch, unless an option says otherwise: each costs some milliseconds.
MOST_PARTITIONS = 64

_log = logging.getLogger(__name__)


class TaskSession:
    """The state that a reader of side tasks keeps between Spark's calls."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.store = StoreHandle(options.address)
        try:
            self._queues = Queues(self._requested, options.refresh_interval)
            self.leader = candidate(
                self.store.catalog,
                zookeeper=options.zookeeper,
                client_id=options.client_id,
                partitions=lambda: [queue.name for queue in self._present],
            )
            self._tasks = make_tasks(self.store, options, self._present, self.leader)
        except IgnisError:
            self.store.close()
            raise
        # Tasks become due without a change of the catalog.
        look = RETRIES_LOOK_SECONDS if "shovel" in options.tasks else BLIND_SECONDS
        self._poller = Poller(None, first=look, last=look, blind=look)
        self._once = False
        #: Whether the tasks of a query that runs them once are claimed.
        self._asked = False
        self._latest: TaskOffset | None = None
        #: The last round whose errors are known.
        self._noted = 0
        #: A round, and how many shares of each task it has.
        self._claimed: tuple[int, Counter[str]] = (0, Counter())

    def first(self) -> dict[str, Any]:
        """Return the offset after all present reports."""
        return self.begin().to_json()

    def after(self, start: dict[str, Any], *, everything: bool) -> dict[str, Any]:
        """Claim the due tasks, which no limit concerns; return the offset of their round."""
        return self.next(self._own(start)).to_json()

    def parts(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the runs of the rounds after *start* up to *end*."""
        return self.plan(self._own(start), self._own(end))

    def commit(self, end: dict[str, Any]) -> None:
        """Keep the reports: other queries read them too."""

    def report(self) -> dict[str, Any] | None:
        """Return the newest offset, and how many shares of each task its round has."""
        if self._latest is None:
            return None
        stream, number = self._latest.stream, self._latest.round
        if self._claimed[0] != number:
            with self.store.catalog.read() as connection:
                runs = task_runs.of_rounds(connection, stream, number - 1, number)
            self._claimed = number, Counter(run.task for run in runs)
        return self._latest.to_json() | {"claimed": dict(self._claimed[1])}

    def begin(self) -> TaskOffset:
        """Return the offset at which a query without a checkpoint begins."""
        newest = self._newest("")
        stream = TaskOffset.new_stream(str(self.store.catalog.store))
        return TaskOffset(stream, since=newest, round=0, report=newest)

    def set_horizon(self) -> None:
        """
        Claim the tasks once, due or not, at the next call of `next`; then end the query.

        Later, because Spark has not requested the first offset yet.
        """
        self._once, self._asked = True, False

    def next(self, start: TaskOffset) -> TaskOffset:
        """
        Claim the due tasks, and return the offset of their round; *start* if there is nothing new.

        A round that an earlier run has claimed comes first. If it is too early to look again, it
        waits a moment, so that Spark does not call it eighty times a second. Raises the error of a
        one-shot task that failed at each attempt.
        """
        left = 0
        if self._latest != start:
            with self.store.catalog.read() as connection:
                left = task_runs.last_round(connection, start.stream)
        elif self._noted != start.round:
            self._note_errors(start)
        if left > start.round:
            _log.info("%s: round %d, which an earlier run claimed, comes first", start.stream, left)
            number: int | None = left
        elif self._once:
            number = None if self._asked else self._claim_all(start)
            if not self._asked:
                start = start._replace(report=max(start.report, self._newest(start.stream)))
            self._asked = True
            if number is None:
                self.leader.stop()
        else:
            number, start = self._look(start)
        if number is not None:
            faults.point("task.claimed")
            start = start._replace(round=number)
        self._latest = start
        return start

    def plan(self, start: TaskOffset, end: TaskOffset) -> Sequence[InputPartition]:
        """Return the runs of the rounds after *start* up to *end*, and the reports of others."""
        # The start of batch 0 is not logged, so a restarted query has made up another one.
        same = start.stream == end.stream
        after = start.report if same else end.since
        about = self._about()
        with self.store.catalog.read() as connection:
            runs = task_runs.of_rounds(
                connection, end.stream, start.round if same else 0, end.round
            )
            told = task_log.read(
                connection, about, self.options.tasks, after, end.report, end.stream
            )
        planned: list[InputPartition] = [*self._spread(runs, about)]
        if told.num_rows or not planned:
            planned.append(TablePartition.of(told))
        return planned

    def close(self) -> None:
        """Stop leading and close the store. Spark does not call this; tests do."""
        self.leader.stop()
        self.store.close()

    def _own(self, logged: dict[str, Any]) -> TaskOffset:
        offset = TaskOffset.from_json(logged)
        offset.check_store(str(self.store.catalog.store))
        return offset

    def _look(self, start: TaskOffset) -> tuple[int | None, TaskOffset]:
        """Return the number of a new round, and *start* with the newest report of others."""
        if not self._poller.wait(time.monotonic() + self.options.idle_wait):
            return None, start
        self._poller.looked()
        self._queues.refresh_if_due()
        if any(REGISTRY[task].leader_only for task in self.options.tasks):
            self.leader.start()
        number = self._tasks.claim_due(self._present, self._wanted(start))
        return number, start._replace(report=max(start.report, self._last(start.stream) or 0))

    def _claim_all(self, start: TaskOffset) -> int | None:
        self._queues.refresh()
        if any(REGISTRY[task].leader_only for task in self.options.tasks):
            self._stand()
        return self._tasks.claim_all(self._present, self._wanted(start))

    def _wanted(self, start: TaskOffset) -> StreamClaim:
        return StreamClaim(start.stream, start.round, self.options.partitions)

    def _note_errors(self, start: TaskOffset) -> None:
        """Raise the first error of a round that ran once; let queues rest where others failed."""
        self._noted = start.round
        with self.store.catalog.read() as connection:
            failed = task_runs.errors(connection, start.stream, start.round)
        if failed and self._once and self._asked:
            self.leader.stop()
            name, _, message = failed[0][1].partition(": ")
            raise getattr(errors, name, IgnisError)(message)
        resting = {run.target_id for run, _ in failed if run.task == RETRY}
        for queue in self._present:
            if queue.id in resting:
                self._tasks.rest(queue)

    def _spread(
        self, runs: Sequence[TaskRun], about: Sequence[QueueInfo | None]
    ) -> list[TaskPartition]:
        """Deal runs to partitions, so that the shares of one task are in different ones."""
        names: dict[int, str | None] = {
            queue.id: queue.name for queue in about if queue is not None
        }
        names |= {} if self.options.queues else {schedule.STORE: None}
        count = min(len(runs), self.options.partitions or MOST_PARTITIONS)
        return [
            TaskPartition(tuple(runs[n::count]), names, self.leader.grant(), self._once, len(runs))
            for n in range(count)
        ]

    def _stand(self) -> None:
        """Stand for election, and wait for ZooKeeper to hold it; a lease needs no wait."""
        self.leader.start()
        end = time.monotonic() + (PATIENCE_SECONDS if self.options.zookeeper else 0.0)
        while not self.leader.leads() and time.monotonic() < end:
            time.sleep(0.05)

    def _newest(self, stream: str) -> int:
        """Return the number of the newest report, after waiting for those being written."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (newest := self._last(stream)) is None:
            if time.monotonic() > end:
                raise CatalogUnavailable(
                    f"{self.store.catalog!r}: a side task has been writing its report for "
                    f"{PATIENCE_SECONDS:g} seconds; try again later"
                )
            time.sleep(0.02)
        return newest

    def _last(self, stream: str) -> int | None:
        about = self._about()
        with self.store.catalog.read(locking=True) as connection:
            return task_log.last(connection, about, self.options.tasks, stream)

    def _about(self) -> list[QueueInfo | None]:
        """Return the queues whose reports to read: the named ones, or all and the store (None)."""
        if self.options.queues:
            return [*self._queues.infos]
        with self.store.catalog.read() as connection:
            return [*queues.find_all(connection), None]

    @property
    def _present(self) -> list[QueueInfo]:
        """The queues whose tasks are run: those that were dropped since the start are left out."""
        return [queue for queue in self._queues.infos if not queue.is_dropped]

    def _requested(self, known: Sequence[QueueInfo]) -> list[QueueInfo]:
        if self.options.queues and not known:
            return self.store.queues(self.options.queues)
        with self.store.catalog.read() as connection:
            if self.options.queues:
                return queues.as_they_were(connection, known)
            return queues.find_all(connection)
