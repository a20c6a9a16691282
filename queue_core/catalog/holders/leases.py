"""Leases in the catalog: one instance at a time holds a role, for a limited time.

Only the database's clock counts, so machines whose clocks differ agree.
"""

from __future__ import annotations

from sqlalchemy import Connection, case, delete, select, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import leases

#: The beginning of the roles of backups that are being written.
BACKUP = "backup:"


def hold(connection: Connection, role: str, holder: str, seconds: float) -> int | None:
    """
    Take or renew a role for *seconds* from now; return its term, or None if another one holds it.

    The term grows with each change of the holder.
    """
    now = dialect.now()
    ends = now + int(seconds * 1e6)
    statement = (
        dialect.of(connection)
        .insert_new(leases)
        .values(role=role, holder=holder, term=1, ends_at=ends)
    )
    other = leases.c.holder != holder
    row = connection.execute(
        statement.on_conflict_do_update(
            index_elements=[leases.c.role],
            set_={
                "holder": holder,
                "term": leases.c.term + case((other, 1), else_=0),
                "ends_at": ends,
            },
            where=~other | (leases.c.ends_at <= now),
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


def holder(connection: Connection, role: str) -> str | None:
    """Return the holder of a role; None if it is free."""
    return connection.scalar(
        select(leases.c.holder).where(leases.c.role == role, leases.c.ends_at > dialect.now())
    )


def forget(connection: Connection, role: str) -> None:
    """Remove a role that will not be taken again."""
    connection.execute(delete(leases).where(leases.c.role == role))


def backs_up(connection: Connection) -> bool:
    """Return whether a backup of the segments is being written."""
    running = leases.c.role.startswith(BACKUP) & (leases.c.ends_at > dialect.now())
    return connection.scalar(select(leases.c.role).where(running).limit(1)) is not None
