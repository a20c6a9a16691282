"""Consumers report that they are alive, and their interest in queues, to all processes.

Also this process as a consumer: of `Queue.fire` where none is given, and of `get_and_keep`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from weakref import WeakSet

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, interests
from queue_core.catalog.identity.clock import stopwatch
from queue_core.catalog.records import restored
from queue_core.errors import Conflict, IgnisError
from queue_core.support.loop import Loop
from queue_core.values.model import Consumer
from queue_core.values.names import of_keeper, of_process

#: Seconds to wait for a beat in progress at the end.
STOP_SECONDS = 2.0
#: Microseconds for which `OwnConsumer` uses a name.
RENEW_AFTER = 24 * 3600 * 1_000_000
#: Seconds between two heartbeats of a `Keeper`; a sweep waits for several of them.
KEEPER_SECONDS = 10.0
#: The heartbeats that threads of this process send.
_beating: WeakSet[Heartbeat] = WeakSet()


class Heartbeat:
    """
    A thread of the consumer's process that regularly reports that it is alive.

    The next beat follows after the seconds that `announce` returned, or else after *interval*.
    """

    def __init__(self, catalog: Catalog, consumer: Consumer, interval: float) -> None:
        self.consumer = consumer
        self._catalog = catalog
        self._fenced: Conflict | None = None
        self._loop = Loop("heartbeat", self._beat_once, every=interval)
        #: Has the thread send the next beat now.
        self.hurry = self._loop.wake

    def start(self) -> None:
        """Start the thread."""
        _beating.add(self)
        self._loop.start()

    def stop(self) -> None:
        """Stop beating. After a while, the consumer counts as dead."""
        _beating.discard(self)
        # A beat after the end of the store would leave its connection open.
        self._loop.stop(STOP_SECONDS)

    def check(self) -> None:
        """Raise `ConsumerFenced` when the consumer was started again elsewhere."""
        if self._fenced is not None:
            raise self._fenced

    def announce(self) -> float | None:
        """Send a beat now; return the seconds until the next one, or None for the interval."""
        self._catalog.write(lambda connection: consumers.heartbeat(connection, self.consumer))
        return None

    def _beat_once(self) -> float | None:
        # While the catalog is unavailable, the consumer's own work reports it.
        with suppress(IgnisError):
            try:
                return self.announce()
            except Conflict as error:
                self._fenced = error
                self._loop.end()
        return None


def beat_now(catalog: Catalog) -> None:
    """Send the heartbeats of all consumers of *catalog*, since a test has moved its clock."""
    for each in [*_beating]:
        if each._catalog is catalog:
            each._beat_once()


class Presence(Heartbeat):
    """
    A consumer with a heartbeat, and its interest in some queues.

    It begins when it is made. Soon after `stop`, the consumer counts as gone.

    Args:
        catalog: The catalog to report to.
        consumer: The consumer.
        queue_ids: The queues.
        interested: Returns whether the consumer wants messages now; it may read the catalog.
        priority: The consumer's priority; None to precede all.
        claim: How it shares the queues; see `interests.claim_of`.
        at_first: Whether it counts as interested until the first heartbeat.
        saw: Called after each heartbeat with the time at which it began, and what it has seen.

    Raises:
        QueueTaken: Another consumer has one of the queues to itself, or this one claims a queue
            that has another consumer.
    """

    def __init__(
        self,
        catalog: Catalog,
        consumer: Consumer,
        queue_ids: Sequence[int],
        interested: Callable[[Connection], bool],
        *,
        priority: int | None,
        claim: str,
        at_first: bool = True,
        saw: Callable[[float, interests.Seen], object] = lambda *_: None,
    ) -> None:
        super().__init__(catalog, consumer, interests.BEAT_SECONDS)
        self._queue_ids = queue_ids
        self._saw = saw
        self._interested = interested
        self._register: Callable[[Connection], None] = lambda connection: interests.register(
            connection, consumer, queue_ids, priority=priority, claim=claim, interested=at_first
        )
        catalog.write(self._register)
        #: The lock of those who change its interest.
        self._telling = threading.Lock()
        self.start()

    def announce(self) -> float:
        """Report the interest now, without waiting for the next beat; return when that is due."""
        with self._telling:
            at = time.monotonic()
            seen = self._catalog.write(self._tell)
        self._saw(at, seen)
        return interests.QUIET_BEAT_SECONDS if seen.quiet else interests.BEAT_SECONDS

    def leave(self) -> None:
        """Stop, and release the consumers that this one holds back."""
        self.stop()
        # Without a heartbeat, it soon counts as gone.
        with suppress(IgnisError):
            self._catalog.write(lambda connection: interests.leave(connection, self.consumer))

    def _tell(self, connection: Connection) -> interests.Seen:
        interested = self._interested(connection)
        seen = interests.beat(connection, self.consumer, self._queue_ids)
        told = {row.told for row in seen.queues}
        if None in told:
            # It was silent for so long that another consumer has removed it.
            self._register(connection)
        if told - {interested}:
            interests.tell(connection, self.consumer, interested=interested)
        return seen


class OwnConsumer:
    """
    This process as a consumer of a store. Thread-safe.

    It sends no heartbeats, so the process takes a new name each day. A purge removes a name after a
    week, when the last firing under it is long over.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._since = 0
        #: The restore after which it was enlisted.
        self._restore: int | None = None

    def consumer(self) -> Consumer:
        """Return the consumer; the first call of a day enlists it."""
        with self._lock:
            now = stopwatch()
            if self._consumer is None or now - self._since > RENEW_AFTER:
                self._consumer = self._catalog.write(self._enlist)
                self._since = now
            return self._consumer

    def _enlist(self, connection: Connection) -> Consumer:
        restore = restored.restored_at(connection)
        if self._consumer is not None and restore != self._restore:
            # A restore fences all processes that were not stopped, this one too.
            consumers.check(connection, self._consumer)
        self._restore = restore
        return consumers.enlist(connection, f"python:{of_process()}", beats=False)


class Keeper:
    """This process as a consumer whose messages are not swept while it runs. Thread-safe."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None
        self._heartbeat: Heartbeat | None = None

    def consumer(self) -> Consumer:
        """Return the consumer; the first call starts it."""
        with self._lock:
            if self._consumer is None:
                name = of_keeper(of_process())
                consumer = self._catalog.write(lambda c: consumers.enlist(c, name, beats=True))
                heartbeat = Heartbeat(self._catalog, consumer, KEEPER_SECONDS)
                heartbeat.start()
                self._consumer, self._heartbeat = consumer, heartbeat
            return self._consumer

    def known(self) -> Consumer | None:
        """Return the consumer, if it was started."""
        return self._consumer

    def stop(self) -> None:
        """Stop the consumer. After a while, its messages are swept, or others reset them."""
        with self._lock:
            if self._heartbeat is not None:
                self._heartbeat.stop()
            self._consumer = self._heartbeat = None
