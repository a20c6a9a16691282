"""ignis in plain Python, with its catalog in SQLite and in PostgreSQL."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.peers.peer import Client, Peer
from benchmarks.peers.servers import Servers
from queue_core import ConsumerPool, Firing, IdSet, Queue, Settlement, Store
from queue_core.values.address import Address

#: Seconds between two looks whether a pool should end.
_LOOK_SECONDS = 0.05

SCHEMA = pa.schema([("body", pa.binary())])


def address_of(text: str) -> Address:
    """Return the address in a text: a folder, or a database and a folder."""
    first, _, storage = text.partition("|")
    return Address.of(catalog=first, storage=storage) if storage else Address.of(first)


class IgnisClient(Client):
    """Loads, fires and settles batches."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        self._store = Store(address_of(address))
        self._opened: Queue | None = None
        self._fired: Firing | None = None

    @property
    def _queue(self) -> Queue:
        if self._opened is None:
            self._opened = self._store.queue(self.queue)
        return self._opened

    def create(self) -> None:
        """With one attempt: a failed message stays in the sideline, as it does with the others."""
        self._store.create_queue(self.queue, SCHEMA, retry=None)

    def open(self) -> None:
        """Read what the catalog says of the queue, as a process does once."""
        _ = self._queue

    def produce(self, bodies: Sequence[bytes]) -> None:
        """One load."""
        rows = pa.table([pa.array(bodies, pa.binary())], schema=SCHEMA)
        self._queue.load(rows)

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """One firing."""
        self._fired = self._queue.fire(limit, timeout=wait)
        bodies: list[bytes] = self._fired.messages.column("body").to_pylist()
        return bodies

    def acknowledge(self, failed: Sequence[int]) -> None:
        """One settlement."""
        assert self._fired is not None
        if not failed:
            self._queue.delete(self._fired)
            return
        ids = self._fired.ids.to_numpy()
        fails = np.zeros(len(ids), bool)
        fails[list(failed)] = True
        outcomes = Settlement(deleted=IdSet.of(ids[~fails]), sidelined=IdSet.of(ids[fails]))
        self._queue.settle(outcomes, self._fired)

    def close(self) -> None:
        """Close the store."""
        self._store.close()


class IgnisSqlite(Peer):
    """An embedded store."""

    name = "ignis, SQLite"
    conditions = "segments and commits synced; load, fire and settle of whole batches"
    client = IgnisClient

    def start(self, servers: Servers) -> None:
        """Nothing runs."""
        self.address = str(servers.data("ignis-sqlite") / "store")
        Store.open(self.address).close()


class IgnisPostgres(Peer):
    """A catalog in PostgreSQL, and segments in a folder."""

    name = "ignis, PostgreSQL"
    conditions = "segments and commits synced; load, fire and settle of whole batches"
    client = IgnisClient
    server = "postgres"

    def start(self, servers: Servers) -> None:
        """The server of the other peers in PostgreSQL, with a database of its own."""
        url = servers.catalog("ignis")
        storage = servers.data("ignis-postgres") / "segments"
        self.address = f"{url}|{storage}"
        Store(address_of(self.address)).close()


class _Pool(Peer):
    """The same store, whose consumer is a pool."""

    conditions = (
        "segments and commits synced; a handler of single messages in a pool of 4 threads, of 16 "
        "for batches of 1"
    )
    client = IgnisClient

    def serve(
        self,
        queue: str,
        handler: Callable[[bytes], bool],
        until: Callable[[], bool],
        batch: int = 100,
    ) -> None:
        """A pool."""

        def handle(message: dict[str, Any]) -> bool:
            return handler(message["body"])

        with (
            Store(address_of(self.address)) as store,
            ConsumerPool(store, queue, handle, concurrency=16 if batch == 1 else 4, batch=batch),
        ):
            while not until():
                time.sleep(_LOOK_SECONDS)


class IgnisSqlitePool(_Pool, IgnisSqlite):
    """An embedded store."""

    name = "ignis, SQLite, a pool"
    conditions = _Pool.conditions


class IgnisPostgresPool(_Pool, IgnisPostgres):
    """A catalog in PostgreSQL."""

    name = "ignis, PostgreSQL, a pool"
    conditions = _Pool.conditions
