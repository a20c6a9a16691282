"""Task shovel: move sidelined messages back to main, at intervals, or at times of their own.

Messages that have a time return then, and jobs take a step then: `Retries`. One query finds the
next time of all queues, in an index, by the database's clock; so neither the number of waiting
messages nor a restart matters. No process claims the work: a second one finds nothing left to move.
Only with the setting `shovel_rate` does one of them claim each second. The task itself, which runs
at intervals, also moves the messages without a time.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from math import inf

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import retries, schedule
from queue_core.catalog.records.retries import Next
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.conditions import READY, WAITING, in_magazines
from queue_core.errors import IgnisError, NoSuchQueue
from queue_core.segments.storage import Storage
from queue_core.upkeep.tasks.task import RETRY_SECONDS, Ran, TaskContext, failed, works
from queue_core.values.model import Magazine, QueueInfo
from queue_core.verbs.operator.jobs import Jobs
from queue_core.verbs.quarantine import quarantining
from queue_core.verbs.retry import retry
from queue_core.verbs.shovel import shovel, workers

#: The name of the claims in the schedule. The runs of a stream have another name: otherwise, they
#: would wait for themselves.
_CLAIM = "rate"
#: Seconds after which a queue is tried again in which others have locked the due messages.
_LOCKED_SECONDS = 1.0
#: Seconds for which the shovels with a rate in one batch move messages while its other runs wait,
#: and the least for each of them.
RATED_SECONDS, _LEAST_SECONDS = 3.0, 0.5


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages came back."""
    share = context.share
    shards = None if share.of == 1 else share.shards(queue)
    shovelful = replace(context.shovelful(queue), early=context.asked_for, shards=shards)
    rate = shovelful.rate
    if not context.waited_for or rate is None or shovelful.limit is not None:
        return shovel(context.catalog, queue, shovelful)
    # They may run one after the other.
    seconds = max(RATED_SECONDS / context.waited_for, _LEAST_SECONDS)
    most, begun = max(int(rate * seconds), 1), time.monotonic()
    moved = shovel(context.catalog, queue, replace(shovelful, limit=most))
    if moved == most:
        # The rest comes as soon as the rate allows it, after what waited meanwhile.
        left = most / rate - (time.monotonic() - begun)
        context.catalog.write(lambda c: schedule.hasten(c, queue.id, "shovel", max(left, 0.0)))
    return moved


def with_work(catalog: Catalog, some: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the queues with sidelined messages that may return."""
    ready = (*in_magazines([Magazine.SIDELINE]), *WAITING, *READY)
    with catalog.read() as connection:
        chosen = amounts.queues_with(connection, [queue.id for queue in some], *ready)
    return [queue for queue in some if queue.id in chosen]


def shares(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many shovels can divide the shards among them."""
    return workers(context.catalog, queue, context.shovelful(queue))


class Retries:
    """
    Moves messages back to main whose time has come, and takes due steps of jobs.

    Threads can share it.
    """

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage
        self._jobs = Jobs(catalog, storage)
        #: Queues and jobs that are not tried before a time.
        self._resting: dict[tuple[str, str | None], float] = {}

    def run(
        self, names: Collection[str] | None = None, job: str | None = None
    ) -> tuple[list[Ran], float]:
        """
        Do what is due in the queues of these names (None: in all); with *job*, only its next step.

        Return what was run, and in how many seconds something is due again; infinity if nothing
        is. Raises only the errors of the search.
        """
        ran = []
        found = self._find(names, job)
        for each in found:
            if self._left(each) <= 0:
                ran += self._attempt(each)
        if ran:
            found = self._find(names, job)
        return ran, min((max(self._left(each), 0.0) for each in found), default=inf)

    def due(self, names: Collection[str]) -> list[str]:
        """
        Take the due steps of jobs; return the queues whose messages another process is to `move`.

        A queue is not returned again within a second.
        """
        found = [each for each in self._find(names, None) if self._left(each) <= 0]
        for each in found:
            if each.job is not None:
                self._attempt(each)
            else:
                self.rest(each.queue, _LOCKED_SECONDS)
        return [each.queue for each in found if each.job is None]

    def move(self, queue: QueueInfo) -> int:
        """Move the messages of a queue back to main whose time has come; return how many."""
        rate = queue.settings.shovel_rate
        limit = None if rate is None else max(int(rate), 1)
        if rate is not None and limit is not None:
            every = limit / rate
            if not self._catalog.write(
                lambda c: schedule.claim(c, queue.id, _CLAIM, every, first=0.0)
            ):
                self.rest(queue.name, every / 4)
                return 0
        with quarantining(self._catalog, self._storage):
            moved, stopped = retry(self._catalog, queue, self._storage.uri, limit)
        if stopped and not moved:
            self.rest(queue.name, _LOCKED_SECONDS)
        else:
            self._resting.pop((queue.name, None), None)
        return moved

    def rest(self, queue: str, seconds: float, job: str | None = None) -> None:
        """Leave a queue or a job alone for some seconds."""
        now = time.monotonic()
        for key, until in self._resting.copy().items():
            if until <= now:
                self._resting.pop(key, None)
        self._resting[queue, job] = now + seconds

    def _find(self, names: Collection[str] | None, job: str | None) -> list[Next]:
        with self._catalog.read(apart=True) as connection:
            found = retries.next_due(connection, names)
        self._jobs.keep({each.job for each in found})
        return found if job is None else [each for each in found if each.job == job]

    def _left(self, each: Next) -> float:
        left = each.left / 1e6
        if each.job is not None:
            left = self._jobs.left(each.job, left)
        return max(left, self._resting.get((each.queue, each.job), -inf) - time.monotonic())

    def _attempt(self, each: Next) -> list[Ran]:
        name = each.queue
        # Not that of the task, which may work where a job or a message in its time fails.
        outage = "retry" if each.job is None else f"job {each.job}"
        try:
            if each.job is not None:
                moved = self._jobs.step(each.job)
            else:
                with self._catalog.read() as connection:
                    queue = queues.find(connection, name)
                moved = self.move(queue)
        except NoSuchQueue:
            return []
        except IgnisError as error:
            self.rest(name, RETRY_SECONDS, each.job)
            return [failed(self._catalog, outage, name, error)]
        works(self._catalog, outage, name)
        # A job may have more to move, or to wait for: look again.
        return [Ran(task="shovel", queue=name, moved=moved)] if moved or each.job else []
