"""Read slices of the catalog, and add new ones at the tail of a shard.

All verbs lock in the same order, so that they cannot deadlock: jobs, leases, room, files,
consumers, tickets, allotments, turns, slices, queues, interests, load pointers, lanes, counters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Row,
    Select,
    bindparam,
    insert,
    select,
    update,
)

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
INSERT = insert(slices)
_ALLOCATE = (
    update(shards)
    .where(
        shards.c.queue_id == bindparam("queue"),
        shards.c.magazine == bindparam("in"),
        shards.c.shard == bindparam("at"),
    )
    .values(
        load_pointer=shards.c.load_pointer + bindparam("places"),
        loaded=shards.c.loaded + bindparam("messages"),
        seal=shards.c.seal
        + bindparam("places") * seals.weight(shards, "load_pointer")
        + bindparam("messages") * seals.weight(shards, "loaded"),
    )
)
_ALLOCATE_ONE = _ALLOCATE.returning(shards.c.load_pointer)
# Locks the queue's row for reading, so that no process deactivates the queue before the commit.
_ALLOCATE_ONE_IN_USE = _ALLOCATE_ONE.where(
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
    query = _fetching(dialect.of(connection), select(slices).where(*where).limit(limit), lock)
    return _in_order(read_slices(connection, query), lock)


def fetch_given(
    connection: Connection, query: Select[Any], given: Mapping[str, Any], lock: str | None = None
) -> list[Slice]:
    """Return the slices of a query that was built once, with its parameters, as `fetch` does."""
    query = _fetching_once(dialect.of(connection), query, lock)
    return _in_order(read_slices(connection, query, given), lock)


def _fetching(database: dialect.Dialect, query: Select[Any], lock: str | None) -> Select[Any]:
    if lock == "wait":
        # By id: positions change, and two transactions that wait in different orders deadlock.
        return database.locked(query.order_by(slices.c.id))
    in_order = (slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position)
    query = query.order_by(*in_order)
    return database.skip_locked(query) if lock == "skip" else query


_fetching_once = lru_cache(maxsize=8)(_fetching)


def _in_order(found: list[Slice], lock: str | None) -> list[Slice]:
    if lock is not None:
        found.sort(key=lambda s: (s.queue_id, s.magazine, s.shard, s.position))
    return found


def fetch_these(connection: Connection, ids: Collection[int]) -> list[Slice]:
    """Return slices that the transaction has locked, by their ids."""
    return fetch(connection, dialect.of(connection).one_of(slices.c.id, ids)) if ids else []


def fetch_first(
    connection: Connection,
    *where: ColumnElement[bool],
    shards: Sequence[ShardKey],
    limit: int,
    skip_locked: bool,
) -> dict[ShardKey, list[Slice]]:
    """
    Return the first *limit* slices of each of some shards, in order of position.

    One statement reads all shards, in one state of the catalog. With *skip_locked*, it locks the
    slices, and passes over slices that other transactions have locked.
    """
    keys = {
        slices.c.queue_id: [key[0] for key in shards],
        slices.c.magazine: [key[1] for key in shards],
        slices.c.shard: [key[2] for key in shards],
    }
    query = dialect.of(connection).first_of_each(
        slices, keys, where, slices.c.position, limit, skip_locked=skip_locked
    )
    found: dict[ShardKey, list[Slice]] = {key: [] for key in shards}
    for piece in read_slices(connection, query):
        found[piece.queue_id, int(piece.magazine), piece.shard].append(piece)
    for pieces in found.values():
        pieces.sort(key=lambda piece: piece.position)
    return found


def of_tickets(tickets: TicketRange) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of slices that tickets of a consumer hold."""
    return (
        slices.c.consumer_id == tickets.consumer_id,
        slices.c.ticket > tickets.after,
        slices.c.ticket <= tickets.upto,
    )


class Room(NamedTuple):
    """What some messages need at the tail of a shard."""

    places: int
    messages: int


def allocate(
    connection: Connection, wanted: Mapping[ShardKey, Room], *, new: bool = False
) -> dict[ShardKey, int]:
    """
    Reserve places at the tails of shards; return the first place of each, in order of shards.

    Raises `Conflict` if a queue no longer has the shard, because it was dropped and created again;
    and, for *new* messages, `QueueDeactivated`.
    """
    if not wanted:
        return {}
    if len(wanted) == 1:
        # As most loads of single messages: one statement does it all.
        ((key, room),) = wanted.items()
        one = _ALLOCATE_ONE_IN_USE if new else _ALLOCATE_ONE
        end = connection.execute(one, _parameters(key, room)).scalar()
        ends = {} if end is None else {key: int(end)}
    else:
        if new:
            _hold_in_use(connection, {queue_id for queue_id, _, _ in wanted})
        rows = [_parameters(key, room) for key, room in sorted(wanted.items())]
        execute_each(connection, _ALLOCATE, rows)
        ends = _load_pointers(connection, wanted)
    for key in wanted:
        if key not in ends:
            check_in_use(connection, [key[0]])
            raise Conflict(f"the queue has no shard {key[2]} any more; open it again")
    return {key: ends[key] - room.places for key, room in sorted(wanted.items())}


def add(connection: Connection, new: Sequence[dict[str, Any]]) -> None:
    """Insert slices, given as rows of the table without their seals."""
    execute_each(connection, INSERT, [seals.sealed(slices, row) for row in new])


def execute_each(
    connection: Connection, statement: Executable, rows: Sequence[dict[str, Any]]
) -> None:
    """Execute a statement for each row of parameters, in their order, in one round trip."""
    if rows:
        connection.execute(statement, rows if len(rows) > 1 else rows[0])


def _parameters(key: ShardKey, room: Room) -> dict[str, Any]:
    return {"queue": key[0], "in": key[1], "at": key[2]} | room._asdict()


def _hold_in_use(connection: Connection, queue_ids: Collection[int]) -> None:
    """Keep queues from being deactivated before the commit; raises `QueueDeactivated`."""
    here = dialect.of(connection).one_of(queues.c.id, queue_ids)
    in_use = select(queues.c.id).where(here, queues.c.deactivated_at.is_(None))
    held = in_use.order_by(queues.c.id).with_for_update(read=True)
    if len(connection.execute(held).all()) < len(queue_ids):
        check_in_use(connection, sorted(queue_ids))
        raise Conflict("the queue was dropped; open it again")


def _load_pointers(connection: Connection, keys: Collection[ShardKey]) -> dict[ShardKey, int]:
    names = (shards.c.queue_id, shards.c.magazine, shards.c.shard)
    one_of = dialect.of(connection).one_of
    found = connection.execute(
        select(*names, shards.c.load_pointer).where(
            *(one_of(name, {key[at] for key in keys}) for at, name in enumerate(names))
        )
    )
    return {(row.queue_id, row.magazine, row.shard): int(row.load_pointer) for row in found}


def read_slices(
    connection: Connection, query: Select[Any], given: Mapping[str, Any] | None = None
) -> list[Slice]:
    """Return the slices of a query, in its order; raises `DamagedCatalog`."""
    found = []
    for row in connection.execute(query, given):
        try:
            found.append(_slice(row))
        except UNREADABLE as error:
            raise damaged(slices, f"id {row.id}", error) from error
    return found


def _slice(row: Row[Any]) -> Slice:
    # A text among the numbers, which SQLite allows, raises `TypeError`.
    sum(row[_PLACE], (row.fired_at or 0) + (row.due_at or 0) + (row.rank or 0) + (row.pace or 0))
    sum((row.lost, row.lost_among))
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
        due_at=row.due_at,
        lost=row.lost,
        lost_among=row.lost_among,
        damaged=row.state == State.DAMAGED,
        rank=row.rank,
        pace=row.pace,
    )
