"""The side tasks of a pool: a thread that runs them when they are due, beside the workers."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from queue_core.catalog import queues
from queue_core.model import QueueInfo
from queue_core.store import Store
from queue_core.tasks.thread import Made, TaskThread

#: Seconds between the start of a pool and its first search for due tasks, and between two of them.
#: Tasks are due every few minutes: an idle pool costs little more than its heartbeat.
LOOK_SECONDS = 10.0


def side_tasks(store: Store, names: Sequence[str], tasks: Collection[str]) -> TaskThread:
    """Return the thread, not yet started, for *tasks* of the queues of these names."""

    def make() -> Made:
        # Not at the top: no pool waits for what tasks import.
        from queue_core.leader import candidate
        from queue_core.tasks.runner import SideTasks

        leader = candidate(store.catalog)
        return SideTasks(store.catalog, store.storage, leader, tasks=tasks), leader

    def known() -> list[QueueInfo]:
        # Anew each time, since settings say when tasks are due.
        with store.catalog.read() as connection:
            return [queues.find(connection, name) for name in names]

    return TaskThread(make, known, sweeps="sweep" in tasks, start=LOOK_SECONDS, look=LOOK_SECONDS)
