"""The part of the task shovel that is due by the times of messages, not at intervals.

One query finds the next time of all queues, in an index, by the database's clock; so neither the
number of waiting messages nor a restart matters. No process claims the work: a second one finds
nothing left to move. Only with the setting `shovel_rate` does one of them claim each second.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from math import inf

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import retries, schedule
from queue_core.errors import IgnisError, NoSuchQueue
from queue_core.segments.storage import Storage
from queue_core.upkeep.tasks.ran import RETRY_SECONDS, Ran, failed
from queue_core.values.model import QueueInfo
from queue_core.verbs.quarantine import quarantining
from queue_core.verbs.retry import retry

#: The name of the claims in the schedule.
_CLAIM = "retry"
#: Seconds after which a queue is tried again in which others have locked the due messages.
_LOCKED_SECONDS = 1.0


class Retries:
    """
    Moves messages back to main whose time has come. Threads can share it.

    Args:
        catalog: The store's catalog.
        storage: The store's storage.
        clock: The process's stopwatch, in seconds.
    """

    def __init__(
        self, catalog: Catalog, storage: Storage, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._catalog = catalog
        self._storage = storage
        self._clock = clock
        #: Queues that are not tried before a time.
        self._resting: dict[str, float] = {}

    def run(self, names: Collection[str] | None = None) -> tuple[list[Ran], float]:
        """
        Move the due messages of the queues of these names (None: of all).

        Return what was run, and in how many seconds the next message is due; infinity if none
        waits. Raises only the errors of the search.
        """
        ran = []
        with self._catalog.read() as connection:
            found = retries.next_due(connection, names)
        for each in found:
            if each.left <= 0 and self._left(each.queue) <= 0:
                ran += self._attempt(each.queue)
        if ran:
            with self._catalog.read() as connection:
                found = retries.next_due(connection, names)
        lefts = (max(each.left / 1e6, self._left(each.queue), 0.0) for each in found)
        return ran, min(lefts, default=inf)

    def _left(self, queue: str) -> float:
        return self._resting.get(queue, -inf) - self._clock()

    def _attempt(self, name: str) -> list[Ran]:
        try:
            with self._catalog.read() as connection:
                queue = queues.find(connection, name)
            with quarantining(self._catalog, self._storage):
                moved = self._retry(queue)
        except NoSuchQueue:
            return []
        except IgnisError as error:
            self._rest(name, RETRY_SECONDS)
            return [failed("shovel", name, error)]
        return [Ran(task="shovel", queue=name, moved=moved)] if moved else []

    def _retry(self, queue: QueueInfo) -> int:
        rate = queue.settings.shovel_rate
        limit = None if rate is None else max(int(rate), 1)
        if rate is not None and limit is not None:
            every = limit / rate
            if not self._claims(queue, every):
                self._rest(queue.name, every / 4)
                return 0
        done = retry(self._catalog, queue, self._storage.uri, limit)
        if done.stopped and not done.moved:
            self._rest(queue.name, _LOCKED_SECONDS)
        else:
            self._resting.pop(queue.name, None)
        return done.moved

    def _claims(self, queue: QueueInfo, every: float) -> bool:
        return self._catalog.write(
            lambda connection: schedule.claim(connection, queue.id, _CLAIM, every, first=0.0)
        )

    def _rest(self, queue: str, seconds: float) -> None:
        self._resting[queue] = self._clock() + seconds
