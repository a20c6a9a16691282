"""The runner of side tasks: it runs due tasks, in the process that asks.

Any number of processes may ask at any time (`SideTasks.run_due`); the catalog's schedule assigns a
due task to one of them. A task that fails is due again in ten seconds. It does not keep other tasks
from running, and its committed transactions remain. The tasks themselves are in
`queue_core.upkeep.tasks.registry`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import schedule
from queue_core.errors import BadOption, IgnisError, NotLeading
from queue_core.segments.storage import Storage
from queue_core.upkeep.leader import Leader
from queue_core.upkeep.tasks.registry import REGISTRY, TASKS, check_task
from queue_core.upkeep.tasks.shovel import Retries
from queue_core.upkeep.tasks.task import RETRY_SECONDS, Ran, Task, TaskContext, Timing, failed, ran
from queue_core.values.model import QueueInfo
from queue_core.verbs.quarantine import quarantining
from queue_core.verbs.shovel import Shovelful

#: The most queues for which a task is claimed in one transaction. If the process dies, the task
#: runs for all of them when it is next due.
TOGETHER = 64


class SideTasks:
    """
    The side tasks of a store, or some of them.

    Threads can share it. A task runs in the caller's thread.

    Args:
        catalog: The store's catalog.
        storage: The store's storage.
        leader: Started and stopped by its owner.
        tasks: The names of the tasks to run.
        timings: When tasks are due, instead of the registry's timings and the queues' settings.
        shovelful: Which messages a shovel moves. By default, the queue's settings decide.

    Raises:
        BadOption: if a name is not that of a task.
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
        for name in (*tasks, *(timings or {})):
            check_task(name)
        self._context = TaskContext(
            catalog=catalog,
            storage=storage,
            leader=leader,
            shovelful=shovelful or partial(Shovelful.of, storage_uri=storage.uri),
        )
        self._tasks = [task for task in REGISTRY.values() if task.name in tasks]
        self._retries = Retries(catalog, storage) if "shovel" in tasks else None
        self._timings = dict(timings or {})

    def run_due(self, queues: Sequence[QueueInfo], *, retries: bool = True) -> list[Ran]:
        """
        Run the due tasks of these queues and of the store; return them with their errors.

        *retries*: also do what is due by the times of messages and jobs, which is looked for more
        often than tasks: `RetryThread` does it for threads that run tasks.

        A task of the leader runs for all queues of the store, only in the leader. A process with a
        shorter interval for it asks the leader to run it. Refresh *queues* regularly, because their
        settings decide when and how tasks run. If no task is due, this costs two reading
        transactions. Raises only the errors of reading the schedule.
        """
        ran: list[Ran] = []
        if retries and self._retries is not None:
            ran, _ = self._retries.run([queue.name for queue in queues])
        self._ask_leader()
        jobs = self._jobs(queues)
        intervals = {job: timing.every for job, (_, timing) in jobs.items()}
        with self._context.catalog.read() as connection:
            due = schedule.due(connection, intervals)
        for name, of_task in groupby(due, key=itemgetter(1)):
            ran += self._run_claimed(REGISTRY[name], [*of_task], jobs)
        return ran

    def run(self, name: str, queue: QueueInfo | None = None) -> int:
        """
        Run a task now, due or not; return how many messages (vacuum: files) it moved or removed.

        *queue* is required, except for tasks of the whole store. Raises the errors of the task,
        `BadOption`, and `NotLeading` if only the leader runs it.
        """
        task = REGISTRY[check_task(name)]
        return self._run(self._context, task, queue)

    def _run(self, context: TaskContext, task: Task, queue: QueueInfo | None) -> int:
        name = task.name
        if task.of_store:
            return task.function()(context, None)
        if queue is None:
            raise BadOption(f"task={name!r} runs on a queue: pass queue=")
        if task.leader_only and not self._context.leader.leads():
            raise NotLeading(f"task={name!r} runs in the leader only, and this process is not it")
        with quarantining(self._context.catalog, self._context.storage):
            return task.function()(context, queue)

    def _jobs(
        self, queues: Sequence[QueueInfo]
    ) -> dict[schedule.Job, tuple[QueueInfo | None, Timing]]:
        """Return the jobs that this process may run, and how often each is due."""
        jobs: dict[schedule.Job, tuple[QueueInfo | None, Timing]] = {}
        for task in self._tasks:
            if task.leader_only and not self._context.leader.leads():
                # Not even claimed: the leader does it.
                continue
            # One job of the leader serves all queues of the store.
            at_once = task.of_store or task.leader_only
            concerned = [None] if at_once else [each for each in queues if task.concerns(each)]
            for queue in concerned:
                timing = self._timings.get(task.name) or task.due(queue)
                if timing is not None:
                    jobs[queue.id if queue else schedule.STORE, task.name] = (queue, timing)
        return jobs

    def _ask_leader(self) -> None:
        """Ask the leader for its tasks as often as this process was told to run them."""
        for task in self._tasks:
            timing = self._timings.get(task.name)
            if task.leader_only and timing is not None and not self._context.leader.leads():
                job = (schedule.STORE, task.name)
                schedule.ask_for(self._context.catalog, job, timing.every)

    def _run_claimed(
        self,
        task: Task,
        due: Sequence[schedule.Job],
        jobs: Mapping[schedule.Job, tuple[QueueInfo | None, Timing]],
    ) -> list[Ran]:
        """Claim and run the due jobs of a task; of queues without work, many at once."""
        ran: list[Ran] = []
        at_once = 1 if task.chooser is None else TOGETHER
        for first in range(0, len(due), at_once):
            timings = {job: jobs[job][1] for job in due[first : first + at_once]}
            claimed = {job: jobs[job][0] for job in self._claim(timings)}
            working = self._with_work(task, [queue for queue in claimed.values() if queue])
            for job, queue in claimed.items():
                if queue is None or queue.id in working:
                    ran += self._attempt(job, queue)
                else:
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

    def _claim(self, timings: Mapping[schedule.Job, Timing]) -> list[schedule.Job]:
        """Claim jobs in one transaction; return those that no other process has claimed."""
        # In one order, so that no two processes wait for each other.
        return self._context.catalog.write(
            lambda connection: [
                job
                for job in sorted(timings)
                if schedule.claim(connection, *job, timings[job].every, timings[job].first)
            ]
        )

    def _attempt(self, job: schedule.Job, queue: QueueInfo | None) -> list[Ran]:
        """Run a claimed job; a job of the leader runs for each queue that has work for it."""
        task = REGISTRY[job[1]]
        ran: list[Ran] = []
        try:
            concerned = [queue]
            if task.leader_only:
                concerned = [*task.find_queues(self._context.catalog)]
        except IgnisError as error:
            concerned, ran = [], [failed(task.name, None, error)]
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
            return ran(task.name, name, moved)
        except IgnisError as error:
            return failed(task.name, name, error)
