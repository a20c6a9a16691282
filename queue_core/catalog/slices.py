"""Read slices of the catalog, and add new ones at the tail of a shard.

All verbs lock in the same order, so that they cannot deadlock: leases, room, files, consumers,
tickets, turns, slices, queues, interests, load pointers, counters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, insert, select, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import UNREADABLE, damaged
from queue_core.catalog.queues import check_in_use
from queue_core.catalog.tables import queues, shards, slices
from queue_core.errors import Conflict
from queue_core.model import Magazine, Slice, State, TicketRange
from queue_core.rows import Rows

#: Identifies a shard: the ids of its queue and magazine, and its number.
ShardKey = tuple[int, int, int]

# Built once: to build a statement takes several times as long as SQLite needs to run it.
_INSERT = insert(slices)
_ALLOCATE = (
    update(shards)
    .where(
        shards.c.queue_id == bindparam("queue"),
        shards.c.magazine == bindparam("in"),
        shards.c.shard == bindparam("at"),
    )
    .values(
        load_pointer=shards.c.load_pointer + bindparam("span"),
        loaded=shards.c.loaded + bindparam("count"),
        seal=shards.c.seal
        + bindparam("span") * seals.weight(shards, "load_pointer")
        + bindparam("count") * seals.weight(shards, "loaded"),
    )
    .returning(shards.c.load_pointer)
)
# Locks the queue's row for reading, so that no process deactivates the queue before the commit.
_ALLOCATE_IN_USE = _ALLOCATE.where(
    select(queues.c.id)
    .where(queues.c.id == bindparam("queue"), queues.c.deactivated_at.is_(None))
    .with_for_update(read=True)
    .exists()
)

_NAMES = slices.c.keys()
#: The columns of numbers that are never null, on both sides of the bitmap.
_PLACE = slice(0, _NAMES.index("bitmap"))
_COUNTS = slice(_NAMES.index("count"), _NAMES.index("consumer_id"))


def fetch(
    connection: Connection,
    *where: ColumnElement[bool],
    limit: int | None = None,
    lock: str | None = None,
) -> list[Slice]:
    """
    Return slices in order of queue, magazine, shard and position.

    *lock* ``"skip"`` passes over slices that other transactions have locked, ``"wait"`` waits for
    them. The result shows each slice as it is after it was locked; it may no longer match *where*.
    """
    query = select(slices).where(*where).limit(limit)
    if lock == "wait":
        # By id: positions change, and two transactions that wait in different orders deadlock.
        query = dialect.of(connection).locked(query.order_by(slices.c.id))
    else:
        in_order = (slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position)
        query = query.order_by(*in_order)
        if lock == "skip":
            query = dialect.of(connection).skip_locked(query)
    found = []
    for row in connection.execute(query):
        try:
            found.append(_slice(row))
        except UNREADABLE as error:
            raise damaged(slices, f"id {row.id}", error) from error
    if lock is not None:
        found.sort(key=lambda s: (s.queue_id, s.magazine, s.shard, s.position))
    return found


def of_tickets(tickets: TicketRange) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of slices that tickets of a consumer hold."""
    return (
        slices.c.consumer_id == tickets.consumer_id,
        slices.c.ticket > tickets.after,
        slices.c.ticket <= tickets.upto,
    )


def allocate(
    connection: Connection, key: ShardKey, span: int, count: int, *, new: bool = False
) -> int:
    """
    Reserve *span* places at the tail of a shard for *count* messages; return the first place.

    Raises `Conflict` if the queue no longer has the shard, because it was dropped and created
    again; and, for *new* messages, `QueueDeactivated`.
    """
    values = {"queue": key[0], "in": key[1], "at": key[2], "span": span, "count": count}
    end = connection.execute(_ALLOCATE_IN_USE if new else _ALLOCATE, values).scalar()
    if end is None:
        check_in_use(connection, [key[0]])
        raise Conflict(f"the queue has no shard {key[2]} any more; open it again")
    return int(end) - span


def add(connection: Connection, new: Sequence[dict[str, Any]]) -> None:
    """Insert slices, given as rows of the table without their seals."""
    if new:
        rows = [seals.sealed(slices, row) for row in new]
        connection.execute(_INSERT, rows if len(rows) > 1 else rows[0])


def _slice(row: Row[Any]) -> Slice:
    # A text among the numbers, which SQLite allows, raises `TypeError`.
    sum(row[_PLACE], row.fired_at or 0)
    sum(row[_COUNTS])
    return Slice(
        id=row.id,
        queue_id=row.queue_id,
        magazine=Magazine(row.magazine),
        shard=row.shard,
        position=row.position,
        segment_id=row.segment_id,
        rows=Rows.from_bytes(row.row_start, row.row_stop, row.bitmap),
        bytes=row.bytes,
        attempts=row.attempts,
        deliveries=row.deliveries,
        loaded_at=row.loaded_at,
        moved_at=row.moved_at,
        fired_at=row.fired_at,
        consumer_id=row.consumer_id,
        ticket=row.ticket,
        stats=row.stats,
        damaged=row.state == State.DAMAGED,
    )
