"""The runner of side tasks: what keeps queues in order, done by whoever comes when it is due.

Any number of processes may ask at any time (`SideTasks.run_due`); of those that do, the catalog's
schedule tells one to run a task. Only the leader sweeps. A task that fails is due again in ten
seconds and keeps no other from running; what it had committed by then stays done.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from queue_core.catalog import schedule
from queue_core.catalog.database import Catalog
from queue_core.errors import BadOption, IgnisError, NotLeading
from queue_core.leader import Leader
from queue_core.model import QueueInfo
from queue_core.segments.storage import Storage
from queue_core.tasks.compaction import compact
from queue_core.tasks.purge import forget
from queue_core.tasks.registry import OF_THE_LEADER, OF_THE_STORE, TASKS, check_task, concerns
from queue_core.tasks.retirement import retire
from queue_core.tasks.vacuum import vacuum
from queue_core.verbs.abandon import abandon
from queue_core.verbs.expire import expire
from queue_core.verbs.quarantine import setting_apart
from queue_core.verbs.recover import recover
from queue_core.verbs.shovel import Shovelful, shovel
from queue_core.verbs.sweep import sweep

#: Seconds after which a task that failed is tried again. Source: IgnisMQ.
RETRY_SECONDS = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Timing:
    """How often a task is due, in seconds, from beginning to beginning."""

    every: float
    #: The first time, from when somebody first asked; None: as between two.
    first: float | None = None


#: When a task is due unless told otherwise; a shovel, when its queue's settings say.
TIMINGS = {
    # Source: IgnisMQ.
    "sweep": Timing(900.0, first=600.0),
    "expire": Timing(300.0),
    "compact": Timing(300.0),
    "vacuum": Timing(3600.0),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A task that was run: for which queue (None: for the store), and what came of it."""

    task: str
    queue: str | None
    #: Messages, or of a vacuum files, that were moved or removed.
    moved: int = 0
    #: Why it did not come to its end.
    error: IgnisError | None = None


class SideTasks:
    """
    The side tasks of a store, or some of them.

    *leader* must be started by its owner. *timings* overrides `TIMINGS`, and for ``"shovel"`` the
    queues' settings; *shovelful* tells what a shovel brings back. Safe for threads; one that runs a
    task does it in the caller's thread.
    """

    def __init__(
        self,
        catalog: Catalog,
        storage: Storage,
        leader: Leader,
        *,
        tasks: Collection[str] = TASKS,
        timings: Mapping[str, Timing] | None = None,
        shovelful: Callable[[QueueInfo], Shovelful] | None = None,
    ) -> None:
        for task in (*tasks, *(timings or {})):
            check_task(task)
        self._shovelful = shovelful or partial(Shovelful.of, storage_uri=storage.uri)
        self._catalog = catalog
        self._storage = storage
        self._leader = leader
        self._tasks = [task for task in TASKS if task in tasks]
        self._given = dict(timings or {})
        self._work: dict[str, Callable[[QueueInfo], int]] = {
            "shovel": lambda queue: shovel(catalog, queue, self._shovelful(queue)),
            "sweep": self._sweep,
            "expire": self._expire,
            "compact": lambda queue: compact(catalog, storage, queue),
        }
        self._store_work: dict[str, Callable[[], int]] = {"vacuum": self._vacuum}

    def run_due(self, queues: Sequence[QueueInfo]) -> list[Ran]:
        """
        Run what is due of these queues and of the store; what was run, with its errors.

        *queues* should be read anew now and then: their settings say when and how. One reading
        transaction when nothing is due. Raises only what the catalog says to the first look.
        """
        jobs = self._jobs(queues)
        intervals = {job: timing.every for job, (_, timing) in jobs.items()}
        with self._catalog.read() as connection:
            due = schedule.due(connection, intervals)
        ran = []
        for job in due:
            queue, timing = jobs[job]
            if self._claim(job, timing):
                ran.append(self._attempt(job, queue))
        return ran

    def run(
        self, task: str, queue: QueueInfo | None = None, shovelful: Shovelful | None = None
    ) -> int:
        """
        Run a task now, due or not; how many messages (of a vacuum: files) it moved or removed.

        *queue* is needed but for a vacuum; *shovelful* tells a shovel what to bring back. Raises
        what the task raises, and `NotLeading` where the leader alone runs it.
        """
        check_task(task)
        if task in OF_THE_STORE:
            return self._store_work[task]()
        if queue is None:
            raise BadOption(f"task={task!r} is of a queue: say of which")
        if task in OF_THE_LEADER and not self._leader.leads():
            raise NotLeading(f"task={task!r} is the leader's, which is another instance, or none")
        with setting_apart(self._catalog, self._storage):
            if task == "shovel" and shovelful is not None:
                return shovel(self._catalog, queue, shovelful or self._shovelful(queue))
            return self._work[task](queue)

    def _jobs(
        self, queues: Sequence[QueueInfo]
    ) -> dict[schedule.Job, tuple[QueueInfo | None, Timing]]:
        """What there is to do, by whom it can be done here, and how often."""
        jobs: dict[schedule.Job, tuple[QueueInfo | None, Timing]] = {}
        for task in self._tasks:
            if task in OF_THE_LEADER and not self._leader.leads():
                # Not even claimed: it is left to whoever leads.
                continue
            if task in OF_THE_STORE:
                jobs[schedule.STORE, task] = (None, self._given.get(task, TIMINGS[task]))
                continue
            for queue in queues:
                timing = self._timing(task, queue)
                if timing is not None and concerns(task, queue):
                    jobs[queue.id, task] = (queue, timing)
        return jobs

    def _timing(self, task: str, queue: QueueInfo) -> Timing | None:
        if task in self._given:
            return self._given[task]
        if task == "shovel":
            interval = queue.settings.shovel_interval
            return None if interval is None else Timing(interval)
        return TIMINGS[task]

    def _claim(self, job: schedule.Job, timing: Timing) -> bool:
        return self._catalog.write(
            lambda connection: schedule.claim(connection, *job, timing.every, timing.first)
        )

    def _attempt(self, job: schedule.Job, queue: QueueInfo | None) -> Ran:
        task, name = job[1], queue.name if queue else None
        try:
            return Ran(task=task, queue=name, moved=self.run(task, queue))
        except IgnisError as error:
            _log.warning("task %s of %s failed: %s", task, name or "the store", error)
            with contextlib.suppress(IgnisError):
                self._catalog.write(
                    lambda connection: schedule.hasten(connection, *job, RETRY_SECONDS)
                )
            return Ran(task=task, queue=name, error=error)

    def _sweep(self, queue: QueueInfo) -> int:
        # First what nobody has seen: it goes back to its place, and not to the sideline.
        recover(self._catalog)
        leads = self._leader.guard
        swept = sweep(self._catalog, queue, leads=leads)
        return swept + abandon(self._catalog, queue, leads)

    def _expire(self, queue: QueueInfo) -> int:
        retire(self._catalog, queue)
        return expire(self._catalog, self._storage.uri, queue)

    def _vacuum(self) -> int:
        forget(self._catalog)
        return len(vacuum(self._catalog, self._storage))
