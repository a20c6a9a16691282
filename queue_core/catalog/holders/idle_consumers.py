"""Remove consumers that hold nothing: those of processes after a while, others on demand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import ColumnElement, Connection, delete, exists, func, select

from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import consumers, interests, tickets
from queue_core.catalog.record_tables import publications
from queue_core.catalog.tables import slices
from queue_core.errors import Conflict
from queue_core.values.names import is_of_process

_HOLDS_NOTHING = ~exists().where(slices.c.consumer_id == consumers.c.id)


def forget(connection: Connection, before: int) -> None:
    """
    Remove consumers of processes that are idle since *before* and hold nothing.

    Their names are never used again: a process takes another one each day. Consumers with names
    that somebody chose stay, and so do those of streaming queries: a checkpoint may come back after
    any time, and its tickets must not be given out a second time.
    """
    old = func.coalesce(consumers.c.heartbeat_at, consumers.c.created_at) < before
    conditions = [old, consumers.c.ack.is_(None), _HOLDS_NOTHING]
    idle = select(consumers.c.id, consumers.c.name).where(*conditions)
    ids = [row.id for row in connection.execute(idle) if is_of_process(row.name)]
    _remove(connection, ids, conditions)


def forget_named(connection: Connection, names: Iterable[str]) -> list[str]:
    """Remove dead consumers by name; raises `Conflict` if one holds messages."""
    these = dialect.one_of(consumers.c.name, sorted(names))
    found = dict(connection.execute(select(consumers.c.name, consumers.c.id).where(these)).all())
    gone = _remove(connection, list(found.values()), [_HOLDS_NOTHING])
    kept = sorted(found.keys() - set(gone))
    if kept:
        raise Conflict(
            f"consumer {kept[0]!r} holds messages; no consumer was removed: settle its messages, "
            "or sweep them with the consumer's name, then try again"
        )
    return gone


def forget_unused(connection: Connection, before: int) -> list[str]:
    """Remove consumers with heartbeats of which the last was before a time, and hold nothing."""
    conditions = [consumers.c.heartbeat_at < before, _HOLDS_NOTHING]
    ids = connection.scalars(select(consumers.c.id).where(*conditions)).all()
    return _remove(connection, ids, conditions)


def forget_batches(connection: Connection, before: int) -> list[str]:
    """Remove the last batches of queries that were published before a time; return the queries."""
    gone = connection.scalars(
        delete(publications)
        .where(publications.c.published_at < before)
        .returning(publications.c.query_id)
    )
    return sorted(set(gone))


def _remove(
    connection: Connection, ids: Sequence[int], conditions: Sequence[ColumnElement[bool]]
) -> list[str]:
    """Remove those of some consumers that still fulfil conditions; return their names."""
    # A firing locks its consumer before it takes messages. So what is locked is looked at again.
    these = dialect.one_of(consumers.c.id, ids)
    ordered = select(consumers.c.id).where(these).order_by(consumers.c.id)
    connection.execute(ordered.with_for_update()).all()
    gone = connection.execute(
        delete(consumers).where(these, *conditions).returning(consumers.c.id, consumers.c.name)
    ).all()
    # Where a browser of that name would have gone on, and what it wanted.
    for table in (tickets, interests):
        removed = dialect.one_of(table.c.consumer_id, [row.id for row in gone])
        connection.execute(delete(table).where(removed))
    return sorted(row.name for row in gone)
