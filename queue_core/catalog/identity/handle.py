"""The catalog and the storage of an existing store, for processes that Spark starts.

Unlike `Store`, it does not import every verb, because a query waits for imports when it starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity.identity import Identity
from queue_core.segments.storage import Storage
from queue_core.values.address import Address
from queue_core.values.model import QueueInfo


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

    def close(self) -> None:
        """Close the connections to the catalog."""
        self.catalog.close()


def known_store(address: Address) -> StoreHandle:
    """Return an existing store, opened once by a process that plans and commits many batches."""
    store = _opened(address)
    if store.catalog.is_replaced():
        # Maybe another store was made in its place since.
        _opened.cache_clear()
        store = _opened(address)
    return store


_opened = lru_cache(maxsize=8)(StoreHandle)
