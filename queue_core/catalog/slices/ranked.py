"""Slices of fair queues, in the order of their first ranks."""

from __future__ import annotations

from sqlalchemy import Connection, select, tuple_

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import Rules
from queue_core.catalog.slices.slices import read_slices
from queue_core.catalog.tables import slices
from queue_core.values.model import Slice

#: Of equal ranks, those of the first places come first.
_ORDER = (slices.c.rank, slices.c.position, slices.c.shard, slices.c.id)
_RANKED = slices.c.rank.is_not(None)


def first_by_rank(
    connection: Connection,
    where: Rules,
    limit: int,
    *,
    after: Slice | None = None,
    skip_locked: bool = False,
) -> list[Slice]:
    """
    Return the first slices that meet conditions, by rank; only those *after* one of them.

    With *skip_locked*, lock them, and pass over slices that others have locked.
    """
    query = select(slices).where(*where, _RANKED)
    if after is not None:
        query = query.where(tuple_(*_ORDER) > (after.rank, after.position, after.shard, after.id))
    query = query.order_by(*_ORDER).limit(limit)
    return read_slices(
        connection, dialect.of(connection).skip_locked(query) if skip_locked else query
    )


def lowest_rank(connection: Connection, where: Rules) -> int | None:
    """Return the lowest rank of the slices that meet conditions; None: none has a rank."""
    query = select(slices.c.rank).where(*where, _RANKED).order_by(slices.c.rank)
    found = connection.scalar(query.limit(1))
    return None if found is None else int(found)
