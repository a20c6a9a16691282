"""The driver's side of a query of side tasks: runs them, and follows their log.

There is one per query and process, as `ignis_source.session` is for messages.
"""

from __future__ import annotations

import logging
import time

import pyarrow as pa
from sqlalchemy import Connection

from ignis_source.offset import ReportOffset
from ignis_source.options import SourceOptions
from ignis_source.queue_refresh import Queues
from ignis_source.task_runner import make_runner
from queue_core.catalog import queues
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.poller import BLIND_SECONDS, Poller
from queue_core.catalog.records import task_log
from queue_core.errors import CatalogUnavailable, IgnisError, Invalid, NotLeading
from queue_core.upkeep.tasks.registry import REGISTRY
from queue_core.upkeep.tasks.task import RETRY_SECONDS
from queue_core.upkeep.tasks.thread import LOOK_SECONDS
from queue_core.values.model import QueueInfo

#: Attempts of a one-shot task before its query fails.
TRIES = 3
#: Seconds to wait until ZooKeeper has elected a leader, or until a report is written.
PATIENCE_SECONDS = 10.0

_Job = tuple[str, QueueInfo | None]

_log = logging.getLogger(__name__)


class TaskSession:
    """The state that a reader of side tasks keeps between Spark's calls."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self.store = StoreHandle(options.address)
        try:
            self._queues = Queues(lambda _: self._requested(), options.refresh_interval)
            self._tasks, self._leader = make_runner(self.store, options, lambda: self._queues.infos)
        except IgnisError:
            self.store.close()
            raise
        # Tasks become due without a change of the catalog.
        look = LOOK_SECONDS if "shovel" in options.tasks else BLIND_SECONDS
        self._poller = Poller(None, first=look, last=look, blind=look)
        self._once = False
        #: The last report of a query that runs its tasks once; None before the run.
        self._end: int | None = None

    def begin(self) -> ReportOffset:
        """Return the offset at which a query without a checkpoint begins."""
        newest = self._newest()
        return ReportOffset(since=newest, report=newest)

    def run_once(self) -> None:
        """Run the tasks once, due or not, at the next call of `next`; then end the query."""
        self._once, self._end = True, None

    def next(self, start: ReportOffset) -> ReportOffset:
        """
        Run the due tasks, and return the offset of the newest report; *start* if there is none.

        If it is too early to look again, it waits a moment, so that Spark does not call it eighty
        times a second. Raises the error of a one-shot task that failed at each attempt.
        """
        if self._once:
            if self._end is None:
                self._run_all()
                self._end = self._newest()
            newest: int | None = self._end
        else:
            newest = self._look()
        return start._replace(report=max(start.report, newest or 0))

    def reports(self, start: ReportOffset, end: ReportOffset) -> pa.Table:
        """Return the reports after *start* up to *end*."""
        # The start of batch 0 is not logged, so a restarted query has made up another one.
        after = start.report if start.since == end.since else end.since
        with self.store.catalog.read() as connection:
            return task_log.read(
                connection, self._about(connection), self._options.tasks, after, end.report
            )

    def close(self) -> None:
        """Stop leading and close the store. Spark does not call this; tests do."""
        self._leader.stop()
        self.store.close()

    def _look(self) -> int | None:
        if not self._poller.wait(time.monotonic() + self._options.idle_wait):
            return None
        self._poller.looked()
        self._queues.refresh_if_due()
        if any(REGISTRY[task].leader_only for task in self._options.tasks):
            self._leader.start()
        self._tasks.run_due(self._queues.infos)
        return self._last()

    def _run_all(self) -> None:
        """Run all requested tasks; a failed one does not stop the others, and is retried."""
        self._queues.refresh()
        left: list[_Job] = []
        for task in self._options.tasks:
            if REGISTRY[task].of_store:
                left.append((task, None))
            else:
                left.extend(
                    (task, queue) for queue in self._queues.infos if REGISTRY[task].concerns(queue)
                )
        leads = any(REGISTRY[task].leader_only for task, _ in left)
        try:
            if leads:
                self._stand()
            for attempt in range(1, TRIES + 1):
                failed = [(job, error) for job in left if (error := self._run(*job))]
                if not failed:
                    return
                left = [job for job, _ in failed]
                error = failed[0][1]
                if attempt == TRIES or isinstance(error, Invalid):
                    raise error
                time.sleep(RETRY_SECONDS)
        finally:
            self._leader.stop()

    def _run(self, task: str, queue: QueueInfo | None) -> IgnisError | None:
        """Run a task; return its error, if it failed."""
        name = queue.name if queue else "the store"
        try:
            self._tasks.run(task, queue)
        except NotLeading as error:
            _log.warning("task %s of %s is left to the leader: %s", task, name, error)
        except IgnisError as error:
            _log.warning("task %s of %s failed: %s", task, name, error)
            return error
        return None

    def _stand(self) -> None:
        """Stand for election, and wait for ZooKeeper to hold it; a lease needs no wait."""
        self._leader.start()
        end = time.monotonic() + (PATIENCE_SECONDS if self._options.zookeeper else 0.0)
        while not self._leader.leads() and time.monotonic() < end:
            time.sleep(0.05)

    def _newest(self) -> int:
        """Return the number of the newest report, after waiting for those being written."""
        end = time.monotonic() + PATIENCE_SECONDS
        while (newest := self._last()) is None:
            if time.monotonic() > end:
                raise CatalogUnavailable(
                    f"{self.store.catalog!r}: a side task has been writing its report for "
                    f"{PATIENCE_SECONDS:g} seconds; try again later"
                )
            time.sleep(0.02)
        return newest

    def _last(self) -> int | None:
        with self.store.catalog.read(locking=True) as connection:
            return task_log.last(connection, self._about(connection), self._options.tasks)

    def _about(self, connection: Connection) -> list[QueueInfo | None]:
        """Return the queues whose reports to read: the named ones, or all and the store (None)."""
        if self._options.queues:
            return [*self._queues.infos]
        return [*queues.find_all(connection), None]

    def _requested(self) -> list[QueueInfo]:
        if self._options.queues:
            return self.store.queues(self._options.queues)
        with self.store.catalog.read() as connection:
            return queues.find_all(connection)
