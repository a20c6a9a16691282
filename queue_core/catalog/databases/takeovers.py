"""Takeovers of PostgreSQL: leave out the ids that lost transactions may have assigned.

A standby that takes over from an asynchronous primary may lack the last transactions, and its
sequences continue from the last values that it knows. Processes live on, and may hold messages of
lost transactions. If the ids of these were assigned again, such a process would settle messages
that it has never seen. A server that takes over begins a new timeline. So whoever connects to a new
timeline first raises the sequences by more than can be lost, before it uses them. A row of `locks`
for each sequence and timeline says that this is done.
"""

from __future__ import annotations

import logging
import random
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from queue_core.catalog.tables import IDS_OF, NUMBERED, locks

#: The least by which ids are raised: a thousand loads a second, for a quarter of an hour.
JUMP = 1_000_000
#: The most that is added at random: two standbys that take over one after the other, unknown to
#: each other, begin timelines of one number. A role that may not set a sequence counts it up.
_SET_MORE, _COUNT_MORE = 1 << 30, 1_000_000

# A standby has no timeline of its own, and the servers of some platforms do not tell theirs. It is
# negative, so that it is never the id of a queue.
_TIMELINE = (
    "SELECT CASE WHEN pg_is_in_recovery() OR to_regclass(%s) IS NULL THEN NULL "
    "WHEN NOT has_table_privilege(%s, 'SELECT') THEN NULL ELSE "
    "-('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint END"
)
_DONE = "SELECT name FROM locks WHERE name = ANY(%s) AND queue_id = %s"
#: A role raises the sequences that it may use; the others are raised by roles that may use them.
_MAY = (
    "SELECT has_table_privilege(%(locks)s, 'INSERT') AND has_sequence_privilege(%(of)s, 'USAGE') "
    "AND current_setting('transaction_read_only') = 'off', "
    "has_sequence_privilege(%(of)s, 'UPDATE')"
)
# Whoever comes second waits until the first one has raised them.
_BEGIN = "INSERT INTO locks (name, queue_id) VALUES (%s, %s) ON CONFLICT DO NOTHING RETURNING 1"
_IS_FIRST = "SELECT NOT EXISTS (SELECT FROM locks WHERE name = %s AND queue_id > %s)"
_SET = "SELECT setval(%(of)s, nextval(%(of)s) + %(jump)s)"
_COUNT = "SELECT count(nextval(%(of)s)) FROM generate_series(1, %(jump)s)"

#: The tables whose ids the database assigns, by the names of their locks.
_NUMBERED = {f"{IDS_OF}{table.name}": f"{table.name}_id_seq" for table in NUMBERED}
_log = logging.getLogger(__name__)


def begin(connection: Connection) -> None:
    """Note the timeline on which a catalog is made, whose tables are there."""
    try:
        with connection.begin_nested():
            given = (locks.name, locks.name)
            timeline = connection.exec_driver_sql(_TIMELINE, given).scalar()
    except DBAPIError as error:
        _log.debug("the server does not tell its timeline: %s", error)
        return
    for name in _NUMBERED:
        connection.exec_driver_sql(_BEGIN, (name, timeline))


def look(connection: Any) -> None:
    """Raise the ids if the server of a new connection of psycopg has begun a timeline."""
    from psycopg import Error

    connection.autocommit = True
    try:
        timeline = connection.execute(_TIMELINE, [locks.name] * 2).fetchone()[0]
    except Error as error:
        if connection.closed:
            raise
        _log.debug("the server does not tell its timeline: %s", error)
        timeline = None
    done = {*_NUMBERED}
    if timeline is not None:
        done = {name for (name,) in connection.execute(_DONE, [[*_NUMBERED], timeline])}
    connection.autocommit = False
    missing = [name for name in _NUMBERED if name not in done]
    raised = [name for name in missing if _raise(connection, name, timeline)]
    connection.commit()
    if raised:
        text = "another server has taken over the catalog (timeline %d): new ids begin higher"
        _log.warning(text, -timeline)


def _raise(connection: Any, name: str, timeline: int) -> bool:
    """Raise the ids of a table for a timeline, unless this was done; return whether it was."""
    given = {"of": _NUMBERED[name], "locks": locks.name}
    may_use, may_set = connection.execute(_MAY, given).fetchone()
    if not may_use or connection.execute(_BEGIN, [name, timeline]).fetchone() is None:
        return False
    if connection.execute(_IS_FIRST, [name, timeline]).fetchone()[0]:
        # The server told no timeline when the catalog was made.
        return False
    more = random.randrange(_SET_MORE if may_set else _COUNT_MORE)
    connection.execute(_SET if may_set else _COUNT, given | {"jump": JUMP + more})
    return True
