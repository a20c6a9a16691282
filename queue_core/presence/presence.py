"""Presence: a consumer that all processes know of, and what it wants of some queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from queue_core.catalog import interests
from queue_core.catalog.database import Catalog
from queue_core.errors import IgnisError
from queue_core.model import Consumer
from queue_core.presence.heartbeat import Heartbeat


class Presence:
    """
    A consumer with a heartbeat, and its interest in some queues.

    *interested* tells whether it would take messages now, and may look into the catalog for that.
    Raises `QueueTaken` where another consumer has one of the queues to itself, or this one wants to
    and another one is there.
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
    ) -> None:
        self.consumer = consumer
        self._catalog = catalog
        self._interested = interested
        catalog.write(
            lambda connection: interests.register(
                connection, consumer, queue_ids, priority=priority, claim=claim
            )
        )
        self._heartbeat = Heartbeat(catalog, consumer, interests.BEAT_SECONDS, self._beat)
        self._heartbeat.start()

    def check(self) -> None:
        """Raise `ConsumerFenced` when another consumer of this name was started."""
        self._heartbeat.check()

    def tell(self) -> None:
        """Say now what it wants, and not only with the next beat."""
        self._catalog.write(lambda connection: self._beat(connection, self.consumer))

    def stop(self) -> None:
        """Fall silent: soon it is thought to be gone."""
        self._heartbeat.stop()

    def leave(self) -> None:
        """It is here no more: whoever it has held back may go."""
        self.stop()
        try:
            self._catalog.write(lambda connection: interests.leave(connection, self.consumer))
        except IgnisError:
            # Without a word, it is thought to be gone soon.
            return

    def _beat(self, connection: Connection, consumer: Consumer) -> None:
        interests.beat(connection, consumer, interested=self._interested(connection))
