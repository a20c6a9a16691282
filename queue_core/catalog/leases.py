"""Leases in the catalog: a role that one instance at a time has, until a time by its clock.

Machines whose clocks differ agree, since only the database's is asked.
"""

from __future__ import annotations

from sqlalchemy import Connection, case, select, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import leases


def hold(connection: Connection, role: str, holder: str, seconds: float) -> int | None:
    """
    Take a role or keep it for so many seconds from now; None when another holder has it.

    Returns the term, which grows with each change of the holder.
    """
    now = dialect.now()
    ends = now + int(seconds * 1e6)
    statement = dialect.insert_new(connection, leases).values(
        role=role, holder=holder, term=1, ends_at=ends
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
    """Whether the holder still has the role, which nobody then takes until the transaction ends."""
    query = select(leases.c.role).where(
        leases.c.role == role,
        leases.c.holder == holder,
        leases.c.term == term,
        leases.c.ends_at > dialect.now(),
    )
    return connection.scalar(dialect.locked(connection, query)) is not None


def release(connection: Connection, role: str, holder: str) -> None:
    """Give a role up, if the holder has it; another can take it at once."""
    connection.execute(
        update(leases)
        .where(leases.c.role == role, leases.c.holder == holder)
        .values(ends_at=dialect.now())
    )


def holder(connection: Connection, role: str) -> str | None:
    """Who has the role now."""
    return connection.scalar(
        select(leases.c.holder).where(leases.c.role == role, leases.c.ends_at > dialect.now())
    )
