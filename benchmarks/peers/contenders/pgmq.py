"""The way of pgmq in PostgreSQL: messages are hidden for a time instead of locked.

The extension itself is in no package of Debian or PyPI. These statements do what its functions
``send_batch``, ``read``, ``delete`` and ``archive`` do, on tables of the same shape, and spare it
the calls of PL/pgSQL. Bodies are bytes instead of JSON.
"""

from __future__ import annotations

import time

from benchmarks.peers.contenders.postgres import PostgresClient
from benchmarks.peers.peer import Peer
from benchmarks.peers.servers import Servers

#: pgmq's ``read_with_poll`` looks every 100 ms.
_POLL_SECONDS = 0.1
_HIDDEN_SECONDS = 300

_COLUMNS = """(
    msg_id bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY, read_ct int DEFAULT 0 NOT NULL,
    enqueued_at timestamptz DEFAULT now() NOT NULL, vt timestamptz NOT NULL, message bytea)"""
_ARCHIVED = """(
    msg_id bigint PRIMARY KEY, read_ct int DEFAULT 0 NOT NULL, enqueued_at timestamptz NOT NULL,
    archived_at timestamptz DEFAULT now() NOT NULL, vt timestamptz NOT NULL, message bytea)"""
_SEND = """
INSERT INTO {queue} (vt, message) SELECT clock_timestamp(), * FROM unnest(%b::bytea[])
RETURNING msg_id
"""
_READ = """
WITH cte AS (
    SELECT msg_id FROM {queue} WHERE vt <= clock_timestamp()
    ORDER BY msg_id ASC LIMIT %s FOR UPDATE SKIP LOCKED)
UPDATE {queue} m SET vt = clock_timestamp() + make_interval(secs => %s), read_ct = read_ct + 1
FROM cte WHERE m.msg_id = cte.msg_id RETURNING m.msg_id, m.message
"""
_DELETE = "DELETE FROM {queue} WHERE msg_id = ANY(%s) RETURNING msg_id"
_ARCHIVE = """
WITH archived AS (
    DELETE FROM {queue} WHERE msg_id = ANY(%s)
    RETURNING msg_id, vt, read_ct, enqueued_at, message)
INSERT INTO {queue}_archive (msg_id, vt, read_ct, enqueued_at, message)
SELECT msg_id, vt, read_ct, enqueued_at, message FROM archived RETURNING msg_id
"""


class PgmqClient(PostgresClient):
    """Each call is a transaction, as a call of pgmq's functions is."""

    create_sql = (
        "CREATE TABLE {queue} " + _COLUMNS,
        "CREATE INDEX {queue}_vt ON {queue} (vt ASC)",
        "CREATE TABLE {queue}_archive " + _ARCHIVED,
    )
    send_sql, delete_sql, fail_sql = _SEND, _DELETE, _ARCHIVE
    autocommit = True

    def consume(self, limit: int, wait: float) -> list[bytes]:
        """``read_with_poll``."""
        end = time.monotonic() + wait
        while True:
            bodies = self._taken(_READ, limit, _HIDDEN_SECONDS)
            if bodies or time.monotonic() >= end:
                return bodies
            time.sleep(_POLL_SECONDS)


class Pgmq(Peer):
    """Its own equivalent of pgmq."""

    name = "PostgreSQL, pgmq's way"
    conditions = "own equivalent of pgmq's SQL; commits synced; batches; psycopg, binary"
    client = PgmqClient
    server = "postgres"

    def start(self, servers: Servers) -> None:
        """A database of its own."""
        self.address = servers.database("pgmq")
