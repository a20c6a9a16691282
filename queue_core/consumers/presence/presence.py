"""Consumers report that they are alive, and their interest in queues, to all processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, interests
from queue_core.errors import Conflict, IgnisError
from queue_core.support.loop import Loop
from queue_core.values.model import Consumer

#: Seconds to wait for a beat in progress at the end.
STOP_SECONDS = 2.0


class Heartbeat:
    """
    A thread of the consumer's process that regularly reports that it is alive.

    There are *interval* seconds between two beats, or as many as the last one has returned.
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
        self._loop.start()

    def stop(self) -> None:
        """Stop beating. After a while, the consumer counts as dead."""
        # A beat after the end of the store would leave its connection open.
        self._loop.stop(STOP_SECONDS)

    def check(self) -> None:
        """Raise `ConsumerFenced` when the consumer was started again elsewhere."""
        if self._fenced is not None:
            raise self._fenced

    def _beat(self) -> float | None:
        """Send a beat; return the seconds until the next one, or None for the interval."""
        self._catalog.write(lambda connection: consumers.heartbeat(connection, self.consumer))
        return None

    def _beat_once(self) -> float | None:
        # While the catalog is unavailable, the consumer's own work reports it.
        with suppress(IgnisError):
            try:
                return self._beat()
            except Conflict as error:
                self._fenced = error
                self._loop.end()
        return None


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
        saw: Callable[[float, interests.Seen], object] = lambda *_: None,
    ) -> None:
        super().__init__(catalog, consumer, interests.BEAT_SECONDS)
        self._queue_ids = queue_ids
        self._saw = saw
        self._interested = interested
        catalog.write(
            lambda connection: interests.register(
                connection, consumer, queue_ids, priority=priority, claim=claim
            )
        )
        #: What the catalog says of its interest, and the lock of those who change it.
        self._told = True
        self._telling = threading.Lock()
        self.start()

    def announce(self) -> float:
        """Report the interest now, without waiting for the next beat; return when that is due."""
        with self._telling:
            at = time.monotonic()
            self._told, seen = self._catalog.write(self._tell)
        self._saw(at, seen)
        return interests.QUIET_BEAT_SECONDS if seen.quiet else interests.BEAT_SECONDS

    def leave(self) -> None:
        """Stop, and release the consumers that this one holds back."""
        self.stop()
        try:
            self._catalog.write(lambda connection: interests.leave(connection, self.consumer))
        except IgnisError:
            # Without a heartbeat, it soon counts as gone.
            return

    def _beat(self) -> float:
        return self.announce()

    def _tell(self, connection: Connection) -> tuple[bool, interests.Seen]:
        interested = self._interested(connection)
        seen = interests.beat(connection, self.consumer, self._queue_ids)
        if interested != self._told:
            interests.tell(connection, self.consumer, interested=interested)
        return interested, seen
