"""A side task: when it is due, which process runs it, and the function that does its work."""

from __future__ import annotations

import importlib
import logging
import zlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple

from queue_core.errors import IgnisError
from queue_core.support.outage_log import OutageLog
from queue_core.values.model import QueueInfo

if TYPE_CHECKING:
    # The registry is read by executors, which need no database.
    from queue_core.catalog.database import Catalog
    from queue_core.segments.storage import Storage
    from queue_core.upkeep.leader import Leader
    from queue_core.verbs.shovel import Shovelful


class Timing(NamedTuple):
    """How often a task is due, in seconds, from beginning to beginning."""

    every: float
    #: Seconds from the first look at the schedule to the first run; None: *every*.
    first: float | None = None


class Task(NamedTuple):
    """
    One row of the registry.

    Its *module* beside the registry has the function ``run``, and is imported when the task runs.
    ``run`` takes a `TaskContext` and the queue (None: the store), and returns how many messages it
    moved or removed (vacuum: files). Two further functions may be there. ``with_work`` takes the
    catalog and queues, and returns those with work for the task: so a thousand queues without work
    cost a few transactions. ``shares`` takes the same as ``run``, and returns into how many shares
    the work can be divided; without it, the work is one share.
    """

    name: str
    #: None: the module of its name.
    module: str | None = None
    #: When it is due; None: as the setting ``shovel_interval`` of the queue says.
    timing: Timing | None = None
    #: Whether it runs for the whole store, not for each queue.
    of_store: bool = False
    #: Whether only the leader runs it, for all queues of the store at once. Its function
    #: ``find_queues`` takes the catalog, and finds the queues with work for it.
    leader_only: bool = False
    #: Whether it skips deactivated queues.
    living_only: bool = False
    #: Whether it takes milliseconds and moves nothing: a stream then needs no micro-batch for it.
    brief: bool = False

    def due(self, queue: QueueInfo | None, *, replaced: bool = True) -> Timing | None:
        """
        Return when the task is due for a queue (None: for the store); None: never.

        *replaced*: whether messages come back at times of their own in queues with a ``retry``.
        """
        if queue is None or self.timing is not None:
            return self.timing
        if replaced and queue.settings.retry is not None:
            return None
        every = queue.settings.shovel_interval
        return None if every is None else Timing(every)

    def concerns(self, queue: QueueInfo) -> bool:
        """Return whether the task may have work in a queue."""
        return queue.deactivated_at is None or not self.living_only

    def function(self) -> Callable[[TaskContext, QueueInfo | None], int]:
        """Import the function that runs the task."""
        run: Callable[[TaskContext, QueueInfo | None], int] = self._module.run
        return run

    @property
    def chooses(self) -> bool:
        """Whether the task tells queues with work for it from others."""
        return hasattr(self._module, "with_work")

    def choose(self, catalog: Catalog, queues: Sequence[QueueInfo]) -> Sequence[QueueInfo]:
        """Return those of some queues in which the task may have work; all if it cannot tell."""
        if not self.chooses:
            return queues
        chosen: list[QueueInfo] = self._module.with_work(catalog, queues)
        return chosen

    def find_queues(self, catalog: Catalog) -> list[QueueInfo]:
        """Return the queues of the store in which a task of the leader has work."""
        found: list[QueueInfo] = self._module.find_queues(catalog)
        return [queue for queue in found if self.concerns(queue)]

    def shares(self, context: TaskContext, queue: QueueInfo | None, most: int) -> int:
        """Return into how many shares to divide the work in a queue, at most *most*."""
        if most == 1 or not hasattr(self._module, "shares"):
            return 1
        return max(1, min(most, int(self._module.shares(context, queue))))

    @property
    def _module(self) -> ModuleType:
        return importlib.import_module(f"queue_core.upkeep.tasks.{self.module or self.name}")


class Share(NamedTuple):
    """One of equal shares of the work of a task; by default, all of it."""

    number: int = 0
    of: int = 1

    def shards(self, queue: QueueInfo) -> tuple[int, ...]:
        """Return the shards of a queue that belong to this share."""
        return tuple(range(self.number, queue.shards, self.of))

    def has(self, name: str) -> bool:
        """Return whether something with a name belongs to this share, the same in any process."""
        return zlib.crc32(name.encode()) % self.of == self.number


class TaskContext(NamedTuple):
    """The context of a running task."""

    catalog: Catalog
    storage: Storage
    leader: Leader
    #: Which messages a shovel moves, for each queue.
    shovelful: Callable[[QueueInfo], Shovelful]
    #: Whether a person asked for the task, who wants messages moved before their time.
    asked_for: bool = True
    #: The share of the work to do.
    share: Share = Share()
    #: How many runs of a batch wait for all of them to end; 0: nothing waits for this one.
    waited_for: int = 0
    #: Whether a check also reads all segments.
    deep: bool = False


#: Seconds after which a task that failed is tried again. Source: IgnisMQ.
RETRY_SECONDS = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A task that was run, and its outcome."""

    task: str
    #: None: it ran for the store.
    queue: str | None
    #: The number of moved or removed messages; of files for a vacuum.
    moved: int = 0
    #: The error that ended it early.
    error: IgnisError | None = None


#: The outages of tasks, by the address of the catalog, task and queue.
_outages: dict[tuple[str, str, str | None], OutageLog] = {}


def ran(catalog: Catalog, task: str, queue: str | None, moved: int) -> Ran:
    """Log what a task has moved, and return it."""
    works(catalog, task, queue)
    if moved:
        fields = {"task": task, "queue": queue, "moved": moved}
        _log.info("%s moved %d", _named(task, queue), moved, extra=fields)
    return Ran(task=task, queue=queue, moved=moved)


def works(catalog: Catalog, task: str, queue: str | None) -> None:
    """Log the end of the failures of a task, if it had failed."""
    outage = _outages.pop((catalog.url, task, queue), None)
    if outage is not None:
        outage.over(f"{_named(task, queue)} works again")


def works_elsewhere(catalog: Catalog, task: str, working: Collection[str]) -> None:
    """Log the end of the failures of a task, but for those in queues where it has work."""
    for url, name, queue in [*_outages]:
        if (url, name) == (catalog.url, task) and queue not in working:
            works(catalog, task, queue)


def _named(task: str, queue: str | None) -> str:
    return f"task {task} of {'the store' if queue is None else repr(queue)}"


def failed(catalog: Catalog, task: str, queue: str | None, error: IgnisError) -> Ran:
    """Log the failure of a task, and return it."""
    fields = {"task": task, "queue": queue}
    outage = _outages.setdefault((catalog.url, task, queue), OutageLog(_log, fields))
    outage.failed(f"task {task} of {queue or 'the store'} failed: {error}", str(error))
    return Ran(task=task, queue=queue, error=error)
