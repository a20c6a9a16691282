"""A streaming query among the consumers of its queues: heartbeat, priority, claim and credit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from ignis_source.options import SourceOptions
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, interests
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.conditions import IN_FLIGHT, held_by
from queue_core.consumers.presence import Heartbeat, Presence
from queue_core.values.model import Consumer, Magazine

#: The least time between two heartbeats: each is a write.
LEAST_SECONDS = 0.1


class QueryPresence:
    """
    One life of a query as a consumer; reports that it is alive, and its interest in messages.

    *runs* returns whether any of the queues is not paused. Raises `QueueTaken` as `Presence` does.
    """

    def __init__(
        self,
        catalog: Catalog,
        options: SourceOptions,
        consumer: Consumer,
        queue_ids: Sequence[int],
        runs: Callable[[], bool],
    ) -> None:
        self.consumer = consumer
        self._catalog = catalog
        self._queue_ids = queue_ids
        self._most = options.max_in_flight
        # As in a pool: without a priority, a consumer of the sideline holds back nobody in main.
        precedes = options.magazine is Magazine.MAIN or options.priority is not None
        self._runs = runs if precedes else lambda: False
        #: Its heartbeat; it knows when another life of the consumer has begun.
        self.life: Heartbeat
        if options.is_ranked:
            claim = interests.claim_of(
                exclusive=options.exclusive, single_active=options.single_active
            )
            self.life = Presence(
                catalog,
                consumer,
                queue_ids,
                self._wants,
                priority=options.priority,
                claim=claim,
                at_first=precedes,
            )
        else:
            # With fewer heartbeats, it would count as dead between two of them.
            most = consumers.DEAD_AFTER_SECONDS / 3
            interval = max(min(options.heartbeat_interval, most), LEAST_SECONDS)
            self.life = Heartbeat(catalog, consumer, interval)
            self.life.start()

    def credit(self) -> int | None:
        """Return how many more messages may be in flight; None for any number."""
        if self._most is None:
            return None
        with self._catalog.read() as connection:
            return self._left(connection, self._most)

    def announce(self) -> None:
        """Report at once whether it wants messages, if its credit may have changed."""
        if isinstance(self.life, Presence) and self._most is not None:
            self.life.announce()

    def held_back(self) -> float | None:
        """Return in how many seconds preceding consumers may be gone; None if none precedes."""
        if not isinstance(self.life, Presence):
            return None
        with self._catalog.read() as connection:
            found = [interests.held_back(connection, self.consumer, id) for id in self._queue_ids]
        return min((seconds for seconds in found if seconds is not None), default=None)

    def _wants(self, connection: Connection) -> bool:
        return self._runs() and (self._most is None or self._left(connection, self._most) > 0)

    def _left(self, connection: Connection, most: int) -> int:
        return most - amounts.messages(connection, *held_by(self.consumer.id), *IN_FLIGHT)
