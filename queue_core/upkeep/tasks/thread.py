"""Side tasks in a process that also does other work: run when due, in a thread of their own."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from queue_core.catalog.poller import BLIND_SECONDS
from queue_core.support.interruption import shielded
from queue_core.support.loop import Loop
from queue_core.upkeep.tasks import task
from queue_core.values.model import QueueInfo

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog
    from queue_core.segments.storage import Storage
    from queue_core.upkeep.leader import Leader
    from queue_core.upkeep.tasks.runner import SideTasks
    from queue_core.upkeep.tasks.shovel import Retries

#: Makes the runner of some tasks, and its leader, not yet started.
Made: TypeAlias = "tuple[SideTasks, Leader]"

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
        self._leads = False
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
        if self._sweeps and not self._leads:
            leader.start()
            self._leads = True
        tasks.run_due(self._queues())


#: The most seconds between two looks. A message may get an earlier time than all others meanwhile.
LOOK_SECONDS = 0.5
#: Seconds until the next look after an error.
_ERROR_SECONDS = 5.0


def retry_thread(
    catalog: Catalog,
    storage: Storage,
    names: Collection[str] | None,
    *,
    start: float = LOOK_SECONDS,
    quiet: Callable[[], float] = lambda: -inf,
) -> Loop:
    """
    Return the thread that runs `Retries`; one of its own, since other tasks may take minutes.

    Args:
        catalog: The store's catalog.
        storage: The store's storage.
        names: The names of the queues; None: all.
        start: Seconds until the first look.
        quiet: Returns when the queues were last seen without messages and jobs. The next look is
            then due `BLIND_SECONDS` later.
    """
    made: list[Retries] = []

    def look() -> float:
        rest = quiet() + BLIND_SECONDS - time.monotonic()
        if rest > 0:
            return min(rest, LOOK_SECONDS)
        if not made:
            # Not at the top: nothing waits for what it imports.
            from queue_core.upkeep.tasks.shovel import Retries

            made.append(Retries(catalog, storage))
        _, left = made[0].run(names)
        return min(left, LOOK_SECONDS)

    return Loop("retries", look, first=start, retry=_ERROR_SECONDS)
