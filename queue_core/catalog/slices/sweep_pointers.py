"""Sweep pointers: where an interrupted sweep of a queue continues."""

from __future__ import annotations

from sqlalchemy import BigInteger, Connection, bindparam, select, update

from queue_core.catalog import seals
from queue_core.catalog.damage import decoding
from queue_core.catalog.slices.conditions import Position
from queue_core.catalog.tables import counters
from queue_core.values.model import Magazine

#: Greater than the number of any shard, as far as databases store it.
_NO_SHARD = 2**31 - 1

_POINT = (
    update(counters)
    .where(
        counters.c.queue_id == bindparam("queue"),
        counters.c.magazine == bindparam("in"),
        counters.c.shard >= bindparam("first"),
        counters.c.shard < bindparam("end"),
        counters.c.sweep_pointer != bindparam("to"),
    )
    .values(seals.changing(counters, sweep_pointer=bindparam("to", type_=BigInteger)))
)


def interrupted(connection: Connection, queue_id: int) -> tuple[Magazine, Position] | None:
    """Return where the last sweep of a queue was interrupted; None: it was not."""
    query = (
        select(counters.c.magazine, counters.c.shard, counters.c.sweep_pointer)
        .where(counters.c.queue_id == queue_id, counters.c.sweep_pointer > 0)
        .order_by(counters.c.magazine, counters.c.shard)
    )
    row = connection.execute(query).first()
    if row is None:
        return None
    with decoding(counters, f"queue_id {queue_id} and magazine {row.magazine}"):
        return Magazine(row.magazine), (row.shard, row.sweep_pointer)


def advance(
    connection: Connection,
    queue_id: int,
    magazine: Magazine,
    begin: Position,
    following: Position | None,
) -> None:
    """Reset the pointers of the shards since *begin*; set that of an unfinished one, if any."""

    def point(first: int, end: int, to: int) -> None:
        given = {"queue": queue_id, "in": int(magazine), "first": first, "end": end, "to": to}
        connection.execute(_POINT, given)

    shard, position = following or (_NO_SHARD, 0)
    if following is not None:
        point(shard, shard + 1, position)
    if begin[0] < shard:
        point(begin[0], shard, 0)
