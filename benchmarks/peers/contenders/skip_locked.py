"""A table of PostgreSQL whose consumers skip the rows that others have locked."""

from __future__ import annotations

import time
from collections.abc import Sequence

import psycopg

from benchmarks.peers.peer import Client, Peer
from benchmarks.peers.servers import Servers

#: Seconds between two looks of an idle consumer that no notification has woken.
_LOOK_SECONDS = 1.0

_CREATE = """
CREATE TABLE {queue} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL);
CREATE TABLE {queue}_failed (id bigint PRIMARY KEY, body bytea NOT NULL)
"""
_TAKE = """
SELECT id, body FROM {queue} ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_DELETE = "DELETE FROM {queue} WHERE id = ANY(%s)"
_FAIL = """
WITH gone AS (DELETE FROM {queue} WHERE id = ANY(%s) RETURNING id, body)
INSERT INTO {queue}_failed SELECT id, body FROM gone
"""


class SkipLockedClient(Client):
    """The transaction that takes messages stays open until they are acknowledged."""

    def __init__(self, address: str, queue: str) -> None:
        super().__init__(address, queue)
        self._connection = psycopg.connect(address)
        self._listens = False
        self._ids: list[int] = []

    def _run(self, statement: str, *values: object) -> psycopg.Cursor[tuple[object, ...]]:
        # Binary values: bodies are not written out as text.
        cursor = self._connection.cursor(binary=True)
        return cursor.execute(statement.replace("{queue}", self.queue).encode(), values or None)

    def create(self) -> None:
        """Two tables."""
        for statement in _CREATE.split(";"):
            self._run(statement)
        self._connection.commit()

    def produce(self, bodies: Sequence[bytes]) -> None:
        """One INSERT of all rows, and a notification."""
        self._run("INSERT INTO {queue} (body) SELECT * FROM unnest(%b::bytea[])", list(bodies))
        self._run("NOTIFY {queue}")
        self._connection.commit()

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """Look; when there is nothing, sleep until a producer notifies, and look again."""
        end = time.monotonic() + wait
        while True:
            rows = self._run(_TAKE, limit).fetchall()
            self._ids = [row[0] for row in rows]  # type: ignore[misc]
            left = end - time.monotonic()
            if rows or left <= 0:
                return [row[1] for row in rows]  # type: ignore[misc]
            if not self._listens:
                self._run("LISTEN {queue}")
                self._listens = True
                self._connection.commit()
                continue
            self._connection.commit()
            self._connection.autocommit = True
            for _ in self._connection.notifies(timeout=min(left, _LOOK_SECONDS), stop_after=1):
                pass
            self._connection.autocommit = False

    def acknowledge(self, failed: Sequence[int]) -> None:
        """Delete the rows, move the failed ones to the other table, and commit."""
        lost = {self._ids[place] for place in failed}
        self._run(_DELETE, [each for each in self._ids if each not in lost])
        if lost:
            self._run(_FAIL, list(lost))
        self._connection.commit()

    def close(self) -> None:
        """Disconnect."""
        self._connection.close()


class SkipLocked(Peer):
    """Plain SQL."""

    name = "PostgreSQL, SKIP LOCKED"
    conditions = "commits synced; INSERT of a batch, SELECT … SKIP LOCKED, DELETE; psycopg, binary"
    client = SkipLockedClient
    server = "postgres"

    def start(self, servers: Servers) -> None:
        """A database of its own."""
        self.address = servers.database("skip_locked")
