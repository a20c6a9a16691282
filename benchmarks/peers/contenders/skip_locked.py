"""A table of PostgreSQL whose consumers skip the rows that others have locked."""

from __future__ import annotations

import time
from collections.abc import Sequence

from benchmarks.peers.contenders.postgres import PostgresClient
from benchmarks.peers.peer import Peer
from benchmarks.peers.servers import Servers

#: Seconds between two looks of an idle consumer that no notification has woken.
_LOOK_SECONDS = 1.0

_CREATE = (
    """CREATE TABLE {queue} (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea NOT NULL)""",
    "CREATE TABLE {queue}_failed (id bigint PRIMARY KEY, body bytea NOT NULL)",
)
_SEND = "INSERT INTO {queue} (body) SELECT * FROM unnest(%b::bytea[])"
_TAKE = """
SELECT id, body FROM {queue} ORDER BY id LIMIT %s FOR UPDATE SKIP LOCKED
"""
_DELETE = "DELETE FROM {queue} WHERE id = ANY(%s)"
_FAIL = """
WITH gone AS (DELETE FROM {queue} WHERE id = ANY(%s) RETURNING id, body)
INSERT INTO {queue}_failed SELECT id, body FROM gone
"""


class SkipLockedClient(PostgresClient):
    """The transaction that takes messages stays open until they are acknowledged."""

    create_sql, send_sql, delete_sql, fail_sql = _CREATE, _SEND, _DELETE, _FAIL
    autocommit = False
    _listens = False

    def produce(self, bodies: Sequence[bytes]) -> None:
        """One INSERT of all rows, and a notification."""
        self._run("NOTIFY {queue}")
        super().produce(bodies)

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """Look; when there is nothing, sleep until a producer notifies, and look again."""
        end = time.monotonic() + wait
        while True:
            bodies = self._taken(_TAKE, limit)
            left = end - time.monotonic()
            if bodies or left <= 0:
                return bodies
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


class SkipLocked(Peer):
    """Plain SQL."""

    name = "PostgreSQL, SKIP LOCKED"
    conditions = "commits synced; INSERT of a batch, SELECT … SKIP LOCKED, DELETE; psycopg, binary"
    client = SkipLockedClient
    server = "postgres"

    def start(self, servers: Servers) -> None:
        """A database of its own."""
        self.address = servers.database("skip_locked")
