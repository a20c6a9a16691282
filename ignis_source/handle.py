"""The catalog and the storage of an existing store, for processes that Spark starts.

Unlike `Store`, it does not import every verb, because a query waits for imports when it starts.
"""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.identity.identity import Identity
from queue_core.segments.storage import Storage
from queue_core.values.address import Address
from queue_core.values.model import Consumer, QueueInfo


class StoreHandle:
    """An open store. Raises `NoSuchStore` if there is none."""

    def __init__(self, address: Address) -> None:
        self.storage = Storage.open(address.storage).of_store(None)
        # A server may have a hundred queries, each of which seldom needs two connections at once.
        self.catalog = Catalog(address.catalog, create=False, idle=1)
        try:
            Identity(self.catalog, self.storage).attach()
        except BaseException:
            self.catalog.close()
            raise

    def queues(self, names: Sequence[str]) -> list[QueueInfo]:
        """Return some queues as they are now; raises `NoSuchQueue`."""
        with self.catalog.read() as connection:
            return queues.find_many(connection, names)

    def queue(self, name: str) -> QueueInfo:
        """Return a queue as it is now; raises `NoSuchQueue`."""
        with self.catalog.read() as connection:
            return queues.find(connection, name)

    def last_life(self, name: str) -> int:
        """Return the number of a consumer's last life; 0 if there was none."""
        with self.catalog.read() as connection:
            consumer = consumers.by_name(connection, name)
        return consumer.epoch if consumer else 0

    def enlist(self, name: str, ack: str, *, sweepable: bool, follows: int | None) -> Consumer:
        """Begin a new life of a query, which sends heartbeats; *follows* is as in `enlist`."""
        return self.catalog.write(
            lambda connection: consumers.enlist(
                connection, name, beats=True, ack=ack, sweepable=sweepable, follows=follows
            )
        )

    def close(self) -> None:
        """Close the connections to the catalog."""
        self.catalog.close()
