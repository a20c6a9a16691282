"""No queue: the commits alone that any durable queue of one machine has to wait for."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from benchmarks.peers.peer import Client, Peer
from benchmarks.peers.servers import Servers

_TABLES = """
CREATE TABLE IF NOT EXISTS batches (
    queue TEXT, id INTEGER PRIMARY KEY, size INTEGER, taken INTEGER, bodies BLOB);
CREATE TABLE IF NOT EXISTS failed (queue TEXT, body BLOB);
"""


class BareCommitsClient(Client):
    """A row for each batch: written, marked as taken, and removed, each in a synced commit."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        self._connection = sqlite3.connect(address)
        self._connection.execute("PRAGMA synchronous=FULL")
        self._taken: list[int] = []
        self._bodies: list[bytes] = []

    def create(self) -> None:
        """The tables are there."""

    def produce(self, bodies: Sequence[bytes]) -> None:
        """One commit."""
        row = (self.queue, len(bodies[0]), b"".join(bodies))
        self._connection.execute("INSERT INTO batches VALUES (?, NULL, ?, 0, ?)", row)
        self._connection.commit()

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """One commit, of the oldest batches that are within the limit."""
        self._taken, self._bodies = [], []
        found = self._connection.execute(
            "SELECT id, size, bodies FROM batches WHERE queue = ? AND NOT taken ORDER BY id",
            (self.queue,),
        )
        for number, size, bodies in found:
            count = len(bodies) // size
            if self._taken and len(self._bodies) + count > limit:
                break
            self._taken.append(number)
            self._bodies += [bodies[at : at + size] for at in range(0, len(bodies), size)]
            if len(self._bodies) >= limit:
                break
        found.close()
        self._each("UPDATE batches SET taken = 1 WHERE id = ?")
        self._connection.commit()
        return self._bodies

    def acknowledge(self, failed: Sequence[int]) -> None:
        """One commit."""
        rows = [(self.queue, self._bodies[place]) for place in failed]
        self._connection.executemany("INSERT INTO failed VALUES (?, ?)", rows)
        self._each("DELETE FROM batches WHERE id = ?")
        self._connection.commit()

    def _each(self, statement: str) -> None:
        self._connection.executemany(statement, [(number,) for number in self._taken])

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class BareCommits(Peer):
    """SQLite without a queue: the ceiling of any embedded one."""

    name = "bare commits, SQLite"
    conditions = "a row for each batch, commits synced; no ids, order, schema, attempts or waiting"
    client = BareCommitsClient
    waits = False

    def start(self, servers: Servers) -> None:
        """A file."""
        self.address = str(servers.data("bare-commits") / "bare.db")
        with sqlite3.connect(self.address) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_TABLES)
        connection.close()
