"""`Presence`: a consumer with a heartbeat, and its interest in queues, known to all processes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import interests
from queue_core.consumers.presence.heartbeat import Heartbeat
from queue_core.errors import IgnisError
from queue_core.values.model import Consumer


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
