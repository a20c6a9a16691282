"""Where a streaming query stands among the consumers of its queues: priority, claim and credit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from ignis_source.options import SourceOptions
from queue_core.catalog import Catalog, consumers, interests
from queue_core.consumers.heartbeat import Heartbeat
from queue_core.model import Consumer


class Standing:
    """
    One life of a query as a consumer: it says that it lives, and what it wants.

    *runs* tells whether any of the queues is not paused. Raises `QueueTaken` where another consumer
    has one of the queues to itself, or this one wants to and another one is there.
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
        self._most = options.max_in_flight
        self._runs = runs
        self._is_ranked = options.is_ranked
        interval, say = options.heartbeat_interval, consumers.heartbeat
        if self._is_ranked:
            interval, say = min(interval, interests.BEAT_SECONDS), self._beat
            claim = interests.claim_of(
                exclusive=options.exclusive, single_active=options.single_active
            )
            catalog.write(
                lambda connection: interests.register(
                    connection,
                    consumer,
                    queue_ids,
                    priority=options.priority,
                    claim=claim,
                )
            )
        self._heartbeat = Heartbeat(catalog, consumer, interval, say)
        self._heartbeat.start()

    def check(self) -> None:
        """Raise `ConsumerFenced` when another life of this consumer has begun."""
        self._heartbeat.check()

    def stop(self) -> None:
        """End this life."""
        self._heartbeat.stop()

    def credit(self) -> int | None:
        """How many messages more may be in flight; None: as many as there are."""
        if self._most is None:
            return None
        with self._catalog.read() as connection:
            return self._left(connection, self._most)

    def tell(self) -> None:
        """Say at once whether it wants messages, where its credit may have changed that."""
        if self._is_ranked and self._most is not None:
            self._catalog.write(lambda connection: self._beat(connection, self.consumer))

    def _beat(self, connection: Connection, consumer: Consumer) -> None:
        wants = self._runs()
        if wants and self._most is not None:
            wants = self._left(connection, self._most) > 0
        interests.beat(connection, consumer, interested=wants)

    def _left(self, connection: Connection, most: int) -> int:
        return most - consumers.in_flight(connection, self.consumer)
