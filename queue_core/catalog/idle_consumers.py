"""Consumers of processes that are gone and hold nothing: their rows are removed after a while."""

from __future__ import annotations

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import consumers, interests, slices, tickets
from queue_core.names import is_of_process


def forget(connection: Connection, before: int) -> None:
    """
    Remove consumers of processes that are idle since *before* and hold nothing.

    Their names are never used again: a process takes another one each day. Consumers with names
    that somebody chose stay, and so do those of streaming queries: a checkpoint may come back after
    any time, and its tickets must not be given out a second time.
    """
    old = func.coalesce(consumers.c.heartbeat_at, consumers.c.created_at) < before
    conditions: list[ColumnElement[bool]] = [
        old,
        consumers.c.ack.is_(None),
        ~exists().where(slices.c.consumer_id == consumers.c.id),
    ]
    idle = select(consumers.c.id, consumers.c.name).where(*conditions)
    ids = [row.id for row in connection.execute(idle) if is_of_process(row.name)]
    # A firing locks its consumer before it takes messages. So what is locked is looked at again.
    here = dialect.of(connection)
    these = here.one_of(consumers.c.id, ids)
    ordered = select(consumers.c.id).where(these).order_by(consumers.c.id)
    connection.execute(here.locked(ordered)).all()
    gone = connection.scalars(
        delete(consumers).where(these, *conditions).returning(consumers.c.id)
    ).all()
    # Where a browser of that name would have gone on, and what it wanted.
    for table in (tickets, interests):
        connection.execute(delete(table).where(here.one_of(table.c.consumer_id, gone)))
