"""Read slices of the catalog, and add new ones at the tail of a shard.

All verbs lock in the same order, so that they cannot deadlock: jobs, leases, room, files,
consumers, tickets, token buckets, shard locks, slices, queues, logs, interests, load pointers,
flows, counters, acts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Select,
    bindparam,
    insert,
    select,
    tuple_,
)

from queue_core.catalog import dialect
from queue_core.catalog.damage import UNREADABLE, damaged
from queue_core.catalog.databases.expressions import FIRST
from queue_core.catalog.slices.conditions import WAITING, Rules
from queue_core.catalog.tables import slices
from queue_core.errors import DamagedCatalog
from queue_core.values.model import Magazine, Slice, State, TicketRange
from queue_core.values.rows import Rows

#: Identifies a shard: the ids of its queue and magazine, and its number.
ShardKey = tuple[int, int, int]

_INSERT = insert(slices).inline()
#: The columns that identify a shard.
KEY = (slices.c.queue_id, slices.c.magazine, slices.c.shard)
_BY_ID = dialect.not_indexed(slices.c.id)
#: The order by rank. Of equal ranks, those of the first places come first.
_BY_RANK = (slices.c.rank, slices.c.position, slices.c.shard, slices.c.id)
#: The parameters for the last slice of a page, by rank.
_AFTER = ("after_rank", "after_position", "after_shard", "after_id")
_MOST = bindparam("most", type_=BigInteger)
_HELD = select(slices).where(
    slices.c.consumer_id == bindparam("consumer_id"),
    slices.c.ticket > bindparam("after"),
    slices.c.ticket <= bindparam("upto"),
)


def fetch(
    connection: Connection,
    *where: ColumnElement[bool],
    given: Mapping[str, Any] | None = None,
    limit: int | None = None,
    lock: str | None = None,
) -> list[Slice]:
    """
    Return slices in order of queue, magazine, shard and position.

    *given* are the parameters of conditions that were built once. *lock* ``"skip"`` passes over
    slices that other transactions have locked, ``"wait"`` waits for them. The result shows each
    slice as it is after it was locked; it may no longer match *where*.
    """
    if given is None:
        query = _fetching(select(slices).where(*where).limit(limit), lock)
    else:
        query = _fetching_once(where, lock, is_limited=limit is not None)
        given = given if limit is None else {**given, "most": limit}
    found = read_slices(connection, query, given)
    if lock is not None:
        found.sort(key=_place)
    return found


def _place(piece: Slice) -> tuple[int, int, int, int]:
    return (*piece.shard_key, piece.position)


def _fetching(query: Select[Any], lock: str | None) -> Select[Any]:
    if lock == "wait":
        # By id: positions change, and two transactions that wait in different orders deadlock.
        return query.order_by(_BY_ID).with_for_update()
    in_order = (slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position)
    query = query.order_by(*in_order)
    return query.with_for_update(skip_locked=True) if lock == "skip" else query


@lru_cache(maxsize=256)
def _fetching_once(where: Rules, lock: str | None, *, is_limited: bool) -> Select[Any]:
    query = select(slices).where(*where)
    return _fetching(query.limit(_MOST) if is_limited else query, lock)


def fetch_these(connection: Connection, ids: Collection[int]) -> list[Slice]:
    """Return slices that the transaction has locked, by their ids."""
    return fetch(connection, dialect.one_of(slices.c.id, ids)) if ids else []


def fetch_first(
    connection: Connection,
    where: Rules,
    given: Mapping[str, Any],
    *,
    shards: Sequence[ShardKey],
    limit: int,
    skip_locked: bool,
    heads: Mapping[ShardKey, int] = {},
) -> dict[ShardKey, list[Slice]]:
    """
    Return the first *limit* slices of each of some shards, in order of position.

    *where* are conditions that were built once, *given* their parameters. One statement reads all
    shards, in one state of the catalog. With *skip_locked*, it locks the slices, and passes over
    slices that other transactions have locked. *heads*: from which places on to look; by default,
    from the first.
    """
    database = dialect.of(connection)
    query = _first_of_each(database, where, skip_locked=skip_locked)
    keys = database.given_rows(
        {column.name: [key[at] for key in shards] for at, column in enumerate(KEY)}
        | {FIRST: [heads.get(key, 0) for key in shards]}
    )
    found: dict[ShardKey, list[Slice]] = {key: [] for key in shards}
    for piece in read_slices(connection, query, {**given, **keys, "most": limit}):
        found[piece.shard_key].append(piece)
    for pieces in found.values():
        pieces.sort(key=lambda piece: piece.position)
    return found


def first_loaded(connection: Connection, shards: Sequence[ShardKey]) -> dict[int, int]:
    """
    Return when the oldest of the first waiting slices of some shards was loaded, by queue.

    Slices that were loaded even earlier may be behind these. Queues without a waiting slice are
    left out.
    """
    first = fetch_first(connection, WAITING, {}, shards=shards, limit=1, skip_locked=False)
    found: dict[int, int] = {}
    for (queue_id, _, _), pieces in first.items():
        for piece in pieces:
            found[queue_id] = min(piece.loaded_at, found.get(queue_id, piece.loaded_at))
    return found


@lru_cache(maxsize=256)
def _first_of_each(database: dialect.Dialect, where: Rules, *, skip_locked: bool) -> Select[Any]:
    return database.first_of_each(
        slices, KEY, where, slices.c.position, "most", skip_locked=skip_locked
    )


def fetch_of_tickets(connection: Connection, tickets: TicketRange) -> list[Slice]:
    """Return the slices that tickets of a consumer hold, as `fetch` does."""
    given = {"consumer_id": tickets.consumer.id, "after": tickets.after, "upto": tickets.upto}
    found = read_slices(connection, _HELD, given)
    # Not by the statement: with old statistics, another index has this order at no cost.
    return sorted(found, key=_place)


def first_by_rank(
    connection: Connection,
    where: Rules,
    given: Mapping[str, Any],
    limit: int,
    *,
    after: Slice | None = None,
    skip_locked: bool = False,
) -> list[Slice]:
    """
    Return the first slices of fair queues that meet conditions, by rank; *after* one of them.

    With *skip_locked*, lock them, and pass over slices that others have locked.
    """
    given = {**given, "most": limit}
    if after is not None:
        place = (after.rank, after.position, after.shard, after.id)
        given |= zip(_AFTER, place, strict=True)
    follows = after is not None
    query = _first_by_rank(where, follows=follows, skip_locked=skip_locked)
    return read_slices(connection, query, given)


@lru_cache(maxsize=64)
def _first_by_rank(where: Rules, *, follows: bool, skip_locked: bool) -> Select[Any]:
    query = select(slices).where(*where, slices.c.rank.is_not(None))
    if follows:
        place = (bindparam(name, type_=BigInteger) for name in _AFTER)
        query = query.where(tuple_(*_BY_RANK) > tuple_(*place))
    query = query.order_by(*_BY_RANK).limit(_MOST)
    return query.with_for_update(skip_locked=True) if skip_locked else query


def add(connection: Connection, new: Sequence[dict[str, Any]]) -> None:
    """Insert slices, given as rows of the table without their seals."""
    execute_each(connection, _INSERT, new)


def columns_of(piece: Slice, rows: Rows) -> dict[str, Any]:
    """Return the row of a slice with some rows of another, without its seal."""
    return {
        "queue_id": piece.queue_id,
        "magazine": int(piece.magazine),
        "shard": piece.shard,
        "state": int(piece.state),
        "position": piece.place_of(rows.start),
        "segment_id": piece.segment_id,
        "row_start": rows.start,
        "row_stop": rows.stop,
        "bitmap": rows.to_bytes(),
        "count": len(rows),
        "bytes": piece.bytes_of(rows),
        "attempts": piece.attempts,
        "deliveries": piece.deliveries,
        "loaded_at": piece.loaded_at,
        "moved_at": piece.moved_at,
        "consumer_id": piece.consumer_id,
        "ticket": piece.ticket,
        "fired_at": piece.fired_at,
        "stats": piece.stats,
        "due_at": piece.due_at,
        "rank": piece.rank_of(rows.start),
        "rank_step": piece.rank_step,
        "lost": piece.lost,
        "lost_among": piece.lost_among,
    }


def execute_each(
    connection: Connection, statement: Executable, rows: Sequence[dict[str, Any]]
) -> None:
    """Execute a statement for each row of parameters, in their order, in one round trip."""
    if rows:
        connection.execute(statement, rows if len(rows) > 1 else rows[0])


def read_slices(
    connection: Connection, query: Select[Any], given: Mapping[str, Any] | None = None
) -> list[Slice]:
    """Return the slices of a query, in its order; raises `DamagedCatalog`."""
    found = []
    for row in connection.execute(query, given).all():
        try:
            found.append(_slice(row))
        except UNREADABLE as error:
            raise damaged_slice(row.id, error) from error
    return found


def damaged_slice(slice_id: int, reason: object) -> DamagedCatalog:
    """Return the error for a slice that cannot be understood."""
    return damaged(slices, f"id {slice_id}", reason)


def _slice(row: Sequence[Any]) -> Slice:
    # All at once, in the order of the columns: to find each by its name takes twice as long.
    id, queue_id, magazine, shard, state, position, segment_id, row_start, row_stop = row[:9]
    bitmap, count, bytes, attempts, deliveries, loaded_at, moved_at = row[9:16]
    consumer_id, ticket, fired_at, stats, _, due_at, rank, rank_step, lost, lost_among = row[16:]
    # A text among the numbers, which SQLite allows, raises `TypeError`.
    sum(row[:9], count + bytes + attempts + deliveries + loaded_at + moved_at + lost + lost_among)
    sum((fired_at or 0, due_at or 0, rank or 0, rank_step or 0))
    return Slice(
        id=id,
        queue_id=queue_id,
        magazine=Magazine(magazine),
        shard=shard,
        position=position,
        segment_id=segment_id,
        rows=Rows.from_bytes(row_start, row_stop, bitmap),
        bytes=bytes,
        attempts=attempts,
        deliveries=deliveries,
        loaded_at=loaded_at,
        moved_at=moved_at,
        fired_at=fired_at,
        consumer_id=consumer_id,
        ticket=ticket,
        stats=stats,
        due_at=due_at,
        lost=lost,
        lost_among=lost_among,
        damaged=state == State.DAMAGED,
        rank=rank,
        rank_step=rank_step,
    )
