"""Leases in the catalog: one instance at a time holds a role, for a limited time.

Only the database's clock counts, so machines whose clocks differ agree.

A clock that was ahead and is set back leaves times in the future. A process that died meanwhile
would count as alive until the clock gets there. Waiters, interests and tasks of the schedule ignore
such a time. It is safer to correct heartbeats and leases, because they protect messages and files:
the process then has its usual time to give another sign of life.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, case, delete, select, update

from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import consumers, leases

#: The beginning of the roles of backups that are being written.
BACKUP = "backup:"
#: Seconds by which the clocks of two databases, such as a primary and its standby, may differ.
AHEAD_SECONDS = 5.0
#: The most seconds for which a lease is taken or renewed.
LONGEST_LEASE_SECONDS = 300.0


def hold(connection: Connection, role: str, holder: str, seconds: float) -> int | None:
    """
    Take or renew a role for *seconds* from now; return its term, or None if another one holds it.

    The term grows with each change of the holder, and if the role had ended meanwhile.
    """
    now, ends = dialect.now(), dialect.after(seconds)
    statement = dialect.insert_new(connection, leases).values(
        role=role, holder=holder, term=1, ends_at=ends
    )
    other, ended = leases.c.holder != holder, leases.c.ends_at <= now
    row = connection.execute(
        statement.on_conflict_do_update(
            index_elements=[leases.c.role],
            set_={
                "holder": holder,
                "term": leases.c.term + case((other | ended, 1), else_=0),
                "ends_at": ends,
            },
            where=~other | ended,
        ).returning(leases.c.term)
    ).first()
    return int(row.term) if row else None


def holds(connection: Connection, role: str, holder: str, term: int) -> bool:
    """Return whether the holder still has the role, and lock it until the transaction ends."""
    query = select(leases.c.role).where(
        leases.c.role == role,
        leases.c.holder == holder,
        leases.c.term == term,
        leases.c.ends_at > dialect.now(),
    )
    return connection.scalar(query.with_for_update()) is not None


def release(connection: Connection, role: str, holder: str) -> None:
    """End the lease of a holder, so that another can take the role at once."""
    connection.execute(
        update(leases)
        .where(leases.c.role == role, leases.c.holder == holder)
        .values(ends_at=dialect.now())
    )


def forget(connection: Connection, role: str) -> None:
    """Remove a role that will not be taken again, and those of backups that were killed."""
    killed = leases.c.role.startswith(BACKUP) & (leases.c.ends_at <= dialect.now())
    connection.execute(delete(leases).where((leases.c.role == role) | killed))


def backs_up(connection: Connection) -> bool:
    """Return whether a backup of the segments is being written."""
    running = leases.c.role.startswith(BACKUP) & (leases.c.ends_at > dialect.now())
    return connection.scalar(select(leases.c.role).where(running).limit(1)) is not None


def is_ahead(time: ColumnElement[Any], seconds: float = 0.0) -> ColumnElement[bool]:
    """Whether a time is further in the future than *seconds*, and than clocks may differ."""
    return time > dialect.after(seconds + AHEAD_SECONDS)


def correct(connection: Connection) -> None:
    """Set heartbeats that lie in the future to the present, and limit leases to their longest."""
    longest = dialect.after(LONGEST_LEASE_SECONDS)
    late = is_ahead(leases.c.ends_at, LONGEST_LEASE_SECONDS)
    connection.execute(update(leases).where(late).values(ends_at=longest))
    late = is_ahead(consumers.c.heartbeat_at)
    connection.execute(update(consumers).where(late).values(heartbeat_at=dialect.now()))
