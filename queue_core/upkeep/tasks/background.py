"""Side tasks in the background of a process: of `Store.side_tasks`, pools, queries and managers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from math import inf
from typing import TYPE_CHECKING

from queue_core.catalog import queues
from queue_core.errors import BadOption
from queue_core.upkeep.tasks.registry import check_tasks
from queue_core.upkeep.tasks.thread import LOOK_SECONDS as RETRIES_LOOK_SECONDS
from queue_core.upkeep.tasks.thread import Made, TaskThread, retry_thread
from queue_core.values.model import QueueInfo
from queue_core.values.names import check_queue
from queue_core.values.options import CLIENT_ID

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog
    from queue_core.segments.storage import Storage

#: Seconds between two searches for due tasks. Tasks are due every few minutes: an idle process
#: costs little more than a heartbeat.
LOOK_SECONDS = 10.0
#: The same where the queues are known, and until the first search there: the first batch of a query
#: does not compete with the imports of tasks.
KNOWN_LOOK_SECONDS = 1.0


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
