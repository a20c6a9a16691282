"""Side tasks in the background of a process: of `Store.side_tasks`, pools, queries and managers.

They run when they are due, in a thread of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from queue_core.catalog import queues
from queue_core.catalog.poller import BLIND_SECONDS
from queue_core.errors import BadOption
from queue_core.support.interruption import shielded
from queue_core.support.loop import Loop
from queue_core.upkeep.tasks import task
from queue_core.upkeep.tasks.registry import check_tasks
from queue_core.values.model import QueueInfo
from queue_core.values.names import check_queue
from queue_core.values.options import CLIENT_ID

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog
    from queue_core.segments.storage import Storage
    from queue_core.upkeep.leader import Candidate
    from queue_core.upkeep.tasks.runner import SideTasks
    from queue_core.upkeep.tasks.shovel import Retries

#: Makes the runner of some tasks, and its leader, not yet started.
Made: TypeAlias = "tuple[SideTasks, Candidate]"

#: Seconds between two searches for due tasks. Tasks are due every few minutes: an idle process
#: costs little more than a heartbeat.
LOOK_SECONDS = 10.0
#: The same in a process that has read its queues itself, and the seconds before its first search:
#: the first batch of a query does not compete with the imports of tasks.
KNOWN_LOOK_SECONDS = 1.0
#: The most seconds between two looks for messages whose time comes. A message may get an earlier
#: time than all others meanwhile.
RETRIES_LOOK_SECONDS = 0.5
#: Seconds until the next look after an error.
_ERROR_SECONDS = 5.0
#: The least seconds that a task in progress has where others are stopped with it.
TASK_SECONDS = 5.0


@shielded
class TaskThread(AbstractContextManager["TaskThread"]):
    """
    A thread that runs due tasks, one at a time; a ``with`` statement starts and stops it.

    Nothing waits for it, and its errors go to the log alone. It ends with its process: another
    runner repeats what a task has not committed by then.

    Args:
        make: Makes the runner; called in the thread, so that nothing waits for its imports.
        queues: Returns the queues whose tasks are run.
        sweeps: Whether to stand for election, since the leader alone sweeps.
        start: Seconds until the first search for due tasks.
        look: Seconds between two searches.
        retries: The thread for messages whose time comes, started and stopped with this one.
    """

    def __init__(
        self,
        make: Callable[[], Made],
        queues: Callable[[], Sequence[QueueInfo]],
        *,
        sweeps: bool,
        start: float,
        look: float,
        retries: Loop | None = None,
    ) -> None:
        self._make = make
        self._queues = queues
        self._sweeps = sweeps
        self._retries = retries
        self._made: Made | None = None
        self._loop = Loop(
            "side tasks",
            self._run_due,
            every=look,
            first=start,
            retry=task.RETRY_SECONDS,
            at_end=self._resign,
        )

    def prepare(self) -> Made:
        """Make the runner, if it is not made yet; raises what is wrong with it."""
        if self._made is None:
            self._made = self._make()
        return self._made

    def start(self) -> None:
        """Begin to run due tasks."""
        self._loop.start()
        if self._retries is not None:
            self._retries.start()

    def stop(self, timeout: float | None = None) -> None:
        """
        End after the task that is running now, and let others lead.

        After *timeout* seconds, it ends by itself: a shovel with a rate may take hours.
        """
        end = None if timeout is None else time.monotonic() + timeout
        self._loop.end()
        for loop in (self._retries, self._loop):
            if loop is not None:
                loop.stop(None if end is None else max(end - time.monotonic(), 0.0))

    def __enter__(self) -> TaskThread:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _resign(self) -> None:
        if self._made is not None:
            self._made[1].stop()

    def _run_due(self) -> None:
        tasks, leader = self.prepare()
        if self._sweeps:
            leader.start()
        tasks.run_due(self._queues())


def retry_thread(
    catalog: Catalog,
    storage: Storage,
    names: Collection[str] | None,
    *,
    start: float = RETRIES_LOOK_SECONDS,
    quiet: Callable[[], float] = lambda: -inf,
) -> Loop:
    """
    Return the thread that runs `Retries`; one of its own, since other tasks may take minutes.

    *names*: those of the queues; None: all. *start*: seconds until the first look. *quiet* returns
    when the queues were last seen without messages and jobs. The next look is then due
    `BLIND_SECONDS` later.
    """
    made: list[Retries] = []

    def look() -> float:
        rest = quiet() + BLIND_SECONDS - time.monotonic()
        if rest > 0:
            return min(rest, RETRIES_LOOK_SECONDS)
        if not made:
            # Not at the top: nothing waits for what it imports.
            from queue_core.upkeep.tasks.shovel import Retries

            made.append(Retries(catalog, storage))
        _, left = made[0].run(names)
        return min(left, RETRIES_LOOK_SECONDS)

    return Loop("retries", look, first=start, retry=_ERROR_SECONDS)


def background_tasks(
    catalog: Catalog,
    storage: Storage,
    names: Sequence[str] | None,
    *,
    known: Callable[[], Sequence[QueueInfo]] | None = None,
    tasks: Collection[str],
    zookeeper: str | None = None,
    client_id: str = CLIENT_ID,
    quiet: Callable[[], float] = lambda: -inf,
) -> TaskThread:
    """
    Return the thread, not yet started, for *tasks* of the queues of these names (None: of all).

    *known* returns these queues in a process that has read them for itself. *quiet* is that of
    `retry_thread`. Raises `BadOption` if *zookeeper* is malformed, or its client is not installed.
    """

    def make() -> Made:
        # Not at the top: no pool waits for what tasks import.
        from queue_core.upkeep.leader import candidate
        from queue_core.upkeep.tasks.runner import SideTasks

        leader = candidate(
            catalog,
            zookeeper=zookeeper,
            client_id=client_id,
            partitions=lambda: [info.name for info in present() if info.deactivated_at is None],
        )
        return SideTasks(catalog, storage, leader, tasks=tasks), leader

    def present() -> Sequence[QueueInfo]:
        if known is not None:
            return known()
        # Anew each time: queues come and go, and their settings say when tasks are due.
        with catalog.read() as connection:
            if names is None:
                return queues.find_all(connection)
            # The tasks of the others are run all the same if one was dropped.
            found = queues.named(connection, names)
            return [found[name] for name in names if name in found]

    start, look = (0.0, LOOK_SECONDS) if known is None else (KNOWN_LOOK_SECONDS, KNOWN_LOOK_SECONDS)
    retries = None
    if "shovel" in tasks:
        first = max(start, RETRIES_LOOK_SECONDS)
        retries = retry_thread(catalog, storage, names, start=first, quiet=quiet)
    thread = TaskThread(
        make, present, sweeps="sweep" in tasks, start=start, look=look, retries=retries
    )
    if zookeeper is not None:
        # The user must correct a wrong address or a missing library.
        thread.prepare()
    return thread


def checked(
    catalog: Catalog,
    storage: Storage,
    names: str | Sequence[str] | None,
    tasks: Collection[str],
    zookeeper: str | None,
    client_id: str,
) -> TaskThread:
    """Return the thread, not yet started, if its arguments are valid; `Store.side_tasks`."""
    if names is not None:
        names = [check_queue(name) for name in ([names] if isinstance(names, str) else names)]
        if not names:
            raise BadOption("queues is empty: name at least one queue, or leave it out for all")
        with catalog.read() as connection:
            queues.find_many(connection, names)
    return background_tasks(
        catalog,
        storage,
        names,
        tasks=check_tasks(tasks),
        zookeeper=zookeeper,
        client_id=client_id,
    )
