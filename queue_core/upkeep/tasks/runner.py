"""The runner of side tasks: it runs due tasks, in the process that asks.

Any number of processes may ask at any time (`SideTasks.run_due`); the catalog's schedule assigns a
due task to one of them. A task that fails is due again in ten seconds. It does not keep other tasks
from running, and its committed transactions remain. The tasks themselves are in
`queue_core.upkeep.tasks.registry`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from sqlalchemy import Connection

from queue_core.catalog import queues as queue_rows
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import schedule, task_runs
from queue_core.errors import IgnisError, NotLeading
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.upkeep.leader import Leader
from queue_core.upkeep.tasks.registry import REGISTRY, TASKS, check_task
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.upkeep.tasks.task import (
    RETRY_SECONDS,
    Ran,
    Share,
    Task,
    TaskContext,
    Timing,
    failed,
    ran,
    works,
    works_elsewhere,
)
from queue_core.values.model import QueueInfo
from queue_core.verbs.quarantine import quarantining
from queue_core.verbs.shovel import Shovelful

#: The most queues for which a task is claimed in one transaction. If the process dies, the task
#: runs for all of them when it is next due.
TOGETHER = 64
#: The task of a stream's run that moves the messages of a queue whose time has come.
RETRY = "retry"
#: The most shares of a task of the store, unless a stream wants others.
DEFAULT_SHARES = 8

#: Jobs, each with its queue, or None for a task of the store, and how often it is due.
Jobs: TypeAlias = dict[schedule.Job, tuple[QueueInfo | None, Timing]]

_log = logging.getLogger(__name__)


class StreamClaim(NamedTuple):
    """Who claims a round of runs."""

    #: The stream's name, and the number of the last round that it knows.
    stream: str
    after: int
    #: The most shares of a task in one queue, or in the store; None: as many as usual.
    shares: int | None = None


class SideTasks:
    """
    The side tasks of a store, or some of them.

    Threads can share it. A task runs in the caller's thread. The *leader* is started and stopped by
    its owner. Raises `BadOption` if a name is not that of a task.

    *timings*: when tasks are due, instead of the registry's timings and the queues' settings.
    *shovelful*: which messages a shovel moves; by default, the queue's settings decide. *deep*:
    whether the task fsck also reads all segments. *retries*: whether messages come back as soon as
    their time comes: rounds of a stream move them, and `retry_thread` elsewhere. If not, the shovel
    moves what it chooses.
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
        deep: bool = False,
        retries: bool = True,
    ) -> None:
        for name in (*tasks, *(timings or {})):
            check_task(name)
        self._context = TaskContext(
            catalog=catalog,
            storage=storage,
            leader=leader,
            shovelful=shovelful or partial(Shovelful.of, storage_uri=storage.uri),
            deep=deep,
        )
        self._tasks = [task for task in REGISTRY.values() if task.name in tasks]
        self._retries = Retries(catalog, storage) if retries and "shovel" in tasks else None
        self._timings = dict(timings or {})

    def run_due(self, queues: Sequence[QueueInfo]) -> list[Ran]:
        """
        Run the due tasks of these queues and of the store; return them with their errors.

        What is due by the times of messages and jobs is left to `retry_thread`, which looks often.

        A task of the leader runs for all queues of the store, only in the leader. A process with a
        shorter interval for it asks the leader to run it. Refresh *queues* regularly, because their
        settings decide when and how tasks run. If no task is due, this costs one or two reading
        transactions. Raises only the errors of reading the schedule.
        """
        self._context.catalog.timings.flush(self._context.catalog.write)
        ran: list[Ran] = []
        jobs, due = self._due(queues)
        for name, of_task in groupby(due, key=itemgetter(1)):
            ran += self._run_claimed(REGISTRY[name], [*of_task], jobs)
        return ran

    def claim_due(self, queues: Sequence[QueueInfo], wanted: StreamClaim) -> int | None:
        """
        Claim the due tasks of these queues and of the store as a new round of a stream.

        Return its number, or None if nothing is due. The claim, the schedule and the runs of the
        round are one transaction. Brief tasks and the steps of jobs are run at once. Otherwise as
        `run_due`, which runs the tasks.
        """
        jobs, due = self._due(queues)
        brief = [job for job in due if REGISTRY[job[1]].brief]
        for job in brief:
            self._run_claimed(REGISTRY[job[1]], [job], jobs)
        targets: dict[schedule.Job, Sequence[QueueInfo | None]] = {}
        for name, of_task in groupby(due, key=itemgetter(1)):
            if not REGISTRY[name].brief:
                targets |= self._targets(REGISTRY[name], {job: jobs[job][0] for job in of_task})
        named = {queue.name: queue for queue in queues}
        moving = self._retries.due(named) if self._retries is not None else []
        moving = [name for name in moving if name in named]
        if not targets and not moving:
            return None
        runs = {job: self._runs(job, of_job, wanted.shares) for job, of_job in targets.items()}

        def work(connection: Connection) -> int | None:
            claimed = []
            for job in sorted(runs):
                if schedule.claim(connection, *job, *jobs[job][1]):
                    claimed += runs[job]
            for queue in (named[name] for name in moving):
                if not task_runs.is_held(connection, queue.id, RETRY):
                    claimed += self._runs((queue.id, RETRY), [queue], wanted.shares)
            return self._begin(connection, wanted, claimed)

        return self._context.catalog.write(work)

    def claim_all(self, queues: Sequence[QueueInfo], wanted: StreamClaim) -> int | None:
        """Claim all tasks as a new round, due or not; those of the leader if it leads."""
        runs: list[dict[str, Any]] = []
        for task in self._tasks:
            concerned = (
                [None] if task.of_store else [each for each in queues if task.concerns(each)]
            )
            for queue in concerned:
                if task.leader_only and not self._context.leader.leads():
                    named = queue.name if queue else "the store"
                    _log.warning("task %s of %s is left to the leader", task.name, named)
                    continue
                job = (queue.id if queue else schedule.STORE, task.name)
                runs += self._runs(job, [queue], wanted.shares)
        return self._context.catalog.write(lambda c: self._begin(c, wanted, runs))

    def run_share(self, run: task_runs.TaskRun, *, asked_for: bool, together: int = 1) -> int:
        """
        Run a share of a task, due or not; return how many messages (vacuum: files) it moved.

        *together*: how many runs its batch has. Raises the errors of the task, `NoSuchQueue`, and
        `NotLeading` if only the leader runs it.
        """
        queue = None
        if run.target_id != schedule.STORE:
            with self._context.catalog.read() as connection:
                queue = queue_rows.by_id(connection, run.target_id)
        if run.task == RETRY:
            assert queue is not None, "messages are due in a queue"
            return Retries(self._context.catalog, self._context.storage).move(queue)
        share = Share(run.share, run.shares)
        waited_for = 0 if asked_for else together
        context = self._context._replace(asked_for=asked_for, share=share, waited_for=waited_for)
        return self._run(context, REGISTRY[run.task], queue)

    def rest(self, queue: QueueInfo) -> None:
        """Leave the due messages of a queue alone for a while, because moving them failed."""
        if self._retries is not None:
            self._retries.rest(queue.name, RETRY_SECONDS)

    def _targets(
        self, task: Task, queues: Mapping[schedule.Job, QueueInfo | None]
    ) -> dict[schedule.Job, Sequence[QueueInfo | None]]:
        """Return where the jobs of a task have work."""
        if task.leader_only:
            return {job: task.find_queues(self._context.catalog) for job in queues}
        working = self._with_work(task, [queue for queue in queues.values() if queue])
        return {
            job: [queue] if queue is None or queue.id in working else []
            for job, queue in queues.items()
        }

    def _runs(
        self, job: schedule.Job, targets: Sequence[QueueInfo | None], most: int | None
    ) -> list[dict[str, Any]]:
        """Return the runs of a job, by default as many for a queue as its concurrency says."""
        queue_id, name = job
        runs = []
        for queue in targets:
            count = 1
            if name in REGISTRY:
                usual = queue.settings.concurrency if queue else DEFAULT_SHARES
                count = REGISTRY[name].shares(self._context, queue, most or max(usual, 1))
            target = queue.id if queue else schedule.STORE
            row = {"queue_id": queue_id, "task": name, "target_id": target, "shares": count}
            runs += [row | {"share": number} for number in range(count)]
        return runs

    def _begin(
        self, connection: Connection, wanted: StreamClaim, runs: Sequence[dict[str, Any]]
    ) -> int | None:
        """Write the runs of a new round; return its number, or None if there are none."""
        if not runs:
            return None
        number = max(task_runs.last_round(connection, wanted.stream), wanted.after) + 1
        task_runs.claim(connection, wanted.stream, number, runs)
        faults.point("task.before_claim")
        return number

    def _run(self, context: TaskContext, task: Task, queue: QueueInfo | None) -> int:
        if task.of_store:
            return task.function()(context, None)
        if task.leader_only and not self._context.leader.leads():
            raise NotLeading(
                f"task={task.name!r} runs in the leader only, and this process is not it"
            )
        with quarantining(self._context.catalog, self._context.storage):
            return task.function()(context, queue)

    def _due(self, queues: Sequence[QueueInfo]) -> tuple[Jobs, list[schedule.Job]]:
        """Return the jobs of this process, and those that are due."""
        jobs = self._jobs(queues)
        intervals = {job: timing.every for job, (_, timing) in jobs.items()}
        with self._context.catalog.read() as connection:
            return jobs, schedule.due(connection, intervals)

    def _jobs(self, queues: Sequence[QueueInfo]) -> Jobs:
        """
        Return the jobs of this process, and how often each is due; ask the leader for its own.

        They include those of the queues whose logs *queues* read: perhaps no other process does.
        """
        if roots := {queue.log_of for queue in queues if queue.log_of} - {q.id for q in queues}:
            with self._context.catalog.read() as connection:
                queues = [*queues, *queue_rows.by_ids(connection, roots)]
        jobs: Jobs = {}
        for task in self._tasks:
            if task.leader_only and not self._context.leader.leads():
                # Not even claimed: the leader does it, as often as this process was told to.
                if timing := self._timings.get(task.name):
                    job = (schedule.STORE, task.name)
                    schedule.ask_for(self._context.catalog, job, timing.every)
                continue
            # One job of the leader serves all queues of the store.
            at_once = task.of_store or task.leader_only
            concerned = [None] if at_once else [each for each in queues if task.concerns(each)]
            for queue in concerned:
                due = task.due(queue, replaced=self._retries is not None)
                timing = self._timings.get(task.name) or due
                if timing is not None:
                    jobs[queue.id if queue else schedule.STORE, task.name] = (queue, timing)
        return jobs

    def _run_claimed(self, task: Task, due: Sequence[schedule.Job], jobs: Jobs) -> list[Ran]:
        """Claim and run the due jobs of a task; of queues without work, many at once."""
        ran: list[Ran] = []
        at_once = TOGETHER if task.chooses else 1
        for first in range(0, len(due), at_once):
            claimed = self._claim(due[first : first + at_once], jobs)
            working = self._with_work(task, [queue for queue in claimed.values() if queue])
            for job, queue in claimed.items():
                if queue is None or queue.id in working:
                    ran += self._attempt(job, queue)
                else:
                    works(self._context.catalog, task.name, queue.name)
                    ran.append(Ran(task=task.name, queue=queue.name))
        return ran

    def _with_work(self, task: Task, queues: Sequence[QueueInfo]) -> set[int]:
        """Return the ids of the queues in which a task may have work."""
        if not queues:
            return set()
        try:
            return {queue.id for queue in task.choose(self._context.catalog, queues)}
        except IgnisError:
            # Each of them tries by itself, and reports what is wrong.
            return {queue.id for queue in queues}

    def _claim(
        self, due: Sequence[schedule.Job], jobs: Jobs
    ) -> dict[schedule.Job, QueueInfo | None]:
        """Claim jobs in one transaction; return those that no other process has claimed."""
        # In one order, so that no two processes wait for each other.
        return self._context.catalog.write(
            lambda connection: {
                job: jobs[job][0]
                for job in sorted(due)
                if schedule.claim(connection, *job, *jobs[job][1])
            }
        )

    def _attempt(self, job: schedule.Job, queue: QueueInfo | None) -> list[Ran]:
        """Run a claimed job; a job of the leader runs for each queue that has work for it."""
        task = REGISTRY[job[1]]
        ran: list[Ran] = []
        try:
            concerned = [queue]
            if task.leader_only:
                found = task.find_queues(self._context.catalog)
                concerned = [*found]
                works_elsewhere(self._context.catalog, task.name, {each.name for each in found})
        except IgnisError as error:
            concerned, ran = [], [failed(self._context.catalog, task.name, None, error)]
        for each in concerned:
            ran.append(self._try(task, each))
            if isinstance(ran[-1].error, NotLeading):
                break
        if any(done.error for done in ran):
            with contextlib.suppress(IgnisError):
                self._context.catalog.write(
                    lambda connection: schedule.hasten(connection, *job, RETRY_SECONDS)
                )
        return ran

    def _try(self, task: Task, queue: QueueInfo | None) -> Ran:
        name = queue.name if queue else None
        try:
            moved = self._run(self._context._replace(asked_for=False), task, queue)
            return ran(self._context.catalog, task.name, name, moved)
        except IgnisError as error:
            return failed(self._context.catalog, task.name, name, error)
