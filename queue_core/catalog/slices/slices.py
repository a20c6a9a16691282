"""Read slices of the catalog, and add new ones at the tail of a shard.

All verbs lock in the same order, so that they cannot deadlock: jobs, leases, room, files,
consumers, tickets, token buckets, shard locks, slices, queues, logs, interests, load pointers,
flows, counters, acts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Row,
    Select,
    bindparam,
    insert,
    select,
    tuple_,
    update,
)

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import UNREADABLE, damaged
from queue_core.catalog.queues import check_in_use
from queue_core.catalog.slices.conditions import WAITING, Rules
from queue_core.catalog.tables import queues, shards, slices
from queue_core.errors import Conflict, DamagedCatalog
from queue_core.values.model import Magazine, Slice, State, TicketRange
from queue_core.values.rows import Rows

#: Identifies a shard: the ids of its queue and magazine, and its number.
ShardKey = tuple[int, int, int]

_INSERT = insert(slices).inline()
_GROWN = {
    "load_pointer": shards.c.load_pointer + bindparam("places"),
    "loaded": shards.c.loaded + bindparam("messages"),
}
_LOGGED = {
    "logged": shards.c.logged + bindparam("messages"),
    "logged_bytes": shards.c.logged_bytes + bindparam("bytes"),
}
_ALLOCATE, _ALLOCATE_NEW = (
    update(shards)
    .where(
        shards.c.queue_id == bindparam("queue"),
        shards.c.magazine == bindparam("in"),
        shards.c.shard == bindparam("at"),
    )
    .values(seals.changing(shards, **values))
    for values in (_GROWN, _GROWN | _LOGGED)
)
_ALLOCATE_ONE = _ALLOCATE.returning(shards.c.load_pointer)
_ENDS = (
    *(shards.c.load_pointer, shards.c.log, shards.c.logged, shards.c.logged_bytes),
    # The row is locked by now, so the times are in the order of the offsets.
    dialect.now().label("logged_at"),
)
# Locks the queue's row for reading, so that no process deactivates the queue before the commit.
_ALLOCATE_ONE_NEW = _ALLOCATE_NEW.returning(*_ENDS).where(
    select(queues.c.id)
    .where(queues.c.id == bindparam("queue"), queues.c.deactivated_at.is_(None))
    .with_for_update(read=True)
    .exists()
)

#: The columns that identify a shard.
_KEY = (slices.c.queue_id, slices.c.magazine, slices.c.shard)
_KEY_OF_SHARD = [shards.c[name.key] for name in _KEY]
_LOAD_POINTERS: Select[Any] = select(*_KEY_OF_SHARD, *_ENDS).where(
    *(dialect.one_of_given(name, f"of_{name.name}") for name in _KEY_OF_SHARD)
)
#: The order by rank. Of equal ranks, those of the first places come first.
_BY_RANK = (slices.c.rank, slices.c.position, slices.c.shard, slices.c.id)
#: The parameters for the last slice of a page, by rank.
_AFTER = ("after_rank", "after_position", "after_shard", "after_id")
_MOST = bindparam("most", type_=BigInteger)
_RANKED = slices.c.rank.is_not(None)
_OF_TICKETS = (
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
        found.sort(key=lambda s: (s.queue_id, s.magazine, s.shard, s.position))
    return found


def _fetching(query: Select[Any], lock: str | None) -> Select[Any]:
    if lock == "wait":
        # By id: positions change, and two transactions that wait in different orders deadlock.
        return query.order_by(slices.c.id).with_for_update()
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
) -> dict[ShardKey, list[Slice]]:
    """
    Return the first *limit* slices of each of some shards, in order of position.

    *where* are conditions that were built once, *given* their parameters. One statement reads all
    shards, in one state of the catalog. With *skip_locked*, it locks the
    slices, and passes over slices that other transactions have locked.
    """
    database = dialect.of(connection)
    query = _first_of_each(database, where, skip_locked=skip_locked)
    keys = database.given_rows(
        {column.name: [key[at] for key in shards] for at, column in enumerate(_KEY)}
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
        slices, _KEY, where, slices.c.position, "most", skip_locked=skip_locked
    )


def fetch_of_tickets(connection: Connection, tickets: TicketRange) -> list[Slice]:
    """Return the slices that tickets of a consumer hold, as `fetch` does."""
    given = {"consumer_id": tickets.consumer.id, "after": tickets.after, "upto": tickets.upto}
    return fetch(connection, *_OF_TICKETS, given=given)


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
    query = select(slices).where(*where, _RANKED)
    if follows:
        place = (bindparam(name, type_=BigInteger) for name in _AFTER)
        query = query.where(tuple_(*_BY_RANK) > tuple_(*place))
    query = query.order_by(*_BY_RANK).limit(_MOST)
    return query.with_for_update(skip_locked=True) if skip_locked else query


def lowest_rank(connection: Connection, where: Rules, given: Mapping[str, Any]) -> int | None:
    """Return the lowest rank of the slices that meet conditions; None: none has a rank."""
    lowest = select(slices.c.rank).where(*where, _RANKED).order_by(slices.c.rank).limit(1)
    found = connection.scalar(lowest, given)
    return None if found is None else int(found)


class ShardGone(Conflict):
    """The queue of a shard was dropped."""

    def __init__(self) -> None:
        super().__init__("the queue was dropped; if there is a new one, open it again")


class Room(NamedTuple):
    """What some messages need at the tail of a shard."""

    places: int
    messages: int
    bytes: int = 0


class Tail(NamedTuple):
    """Where new messages of a shard begin."""

    #: Their first place.
    place: int
    #: Whether they are to be written to the log as well.
    log: bool
    #: The offset of the first one in the log, and the bytes of all messages before it.
    offset: int
    bytes: int
    #: The time, which is never before that of earlier offsets.
    at: int


def allocate(connection: Connection, wanted: Mapping[ShardKey, Room]) -> dict[ShardKey, int]:
    """
    Reserve places at the tails of shards; return the first place of each, in order of shards.

    Raises `ShardGone`.
    """
    if not wanted:
        return {}
    if len(wanted) == 1:
        ((key, room),) = wanted.items()
        end = connection.execute(_ALLOCATE_ONE, _parameters(key, room)).scalar()
        ends = {} if end is None else {key: int(end)}
    else:
        execute_each(connection, _ALLOCATE, [_parameters(*each) for each in sorted(wanted.items())])
        ends = {key: int(row.load_pointer) for key, row in _ends(connection, wanted).items()}
    _check_there(connection, wanted, ends)
    return {key: ends[key] - room.places for key, room in sorted(wanted.items())}


def allocate_new(connection: Connection, wanted: Mapping[ShardKey, Room]) -> dict[ShardKey, Tail]:
    """Do the same for new messages, which logs have too; also raises `QueueDeactivated`."""
    if len(wanted) == 1:
        # As most loads of single messages: one statement does it all.
        ((key, room),) = wanted.items()
        row = connection.execute(_ALLOCATE_ONE_NEW, _parameters(key, room)).first()
        ends = {} if row is None else {key: row}
    elif wanted:
        _hold_in_use(connection, {queue_id for queue_id, _, _ in wanted})
        rows = [_parameters(*each) for each in sorted(wanted.items())]
        execute_each(connection, _ALLOCATE_NEW, rows)
        ends = _ends(connection, wanted)
    else:
        return {}
    _check_there(connection, wanted, ends)
    return {
        key: Tail(
            place=int(ends[key].load_pointer) - room.places,
            log=bool(ends[key].log),
            offset=int(ends[key].logged) - room.messages,
            bytes=int(ends[key].logged_bytes) - room.bytes,
            at=int(ends[key].logged_at),
        )
        for key, room in sorted(wanted.items())
    }


def _check_there(
    connection: Connection, wanted: Collection[ShardKey], there: Collection[ShardKey]
) -> None:
    for key in wanted:
        if key not in there:
            check_in_use(connection, [key[0]])
            raise ShardGone


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
        "pace": piece.pace,
        "lost": piece.lost,
        "lost_among": piece.lost_among,
    }


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
    here = dialect.one_of(queues.c.id, queue_ids)
    in_use = select(queues.c.id).where(here, queues.c.deactivated_at.is_(None))
    held = in_use.order_by(queues.c.id).with_for_update(read=True)
    if len(connection.execute(held).all()) < len(queue_ids):
        check_in_use(connection, sorted(queue_ids))
        raise ShardGone


def _ends(connection: Connection, keys: Collection[ShardKey]) -> dict[ShardKey, Row[Any]]:
    parts = zip(_KEY, zip(*keys, strict=True), strict=True)
    given = {f"of_{name.key}": sorted(set(part)) for name, part in parts}
    found: Sequence[Row[Any]] = connection.execute(_LOAD_POINTERS, given).all()
    return {(row.queue_id, row.magazine, row.shard): row for row in found}


def read_slices(
    connection: Connection, query: Select[Any], given: Mapping[str, Any] | None = None
) -> list[Slice]:
    """Return the slices of a query, in its order; raises `DamagedCatalog`."""
    found = []
    for row in connection.execute(query, given):
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
    consumer_id, ticket, fired_at, stats, _, due_at, rank, pace, lost, lost_among = row[16:]
    # A text among the numbers, which SQLite allows, raises `TypeError`.
    sum(row[:9], count + bytes + attempts + deliveries + loaded_at + moved_at + lost + lost_among)
    sum((fired_at or 0, due_at or 0, rank or 0, pace or 0))
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
        pace=pace,
    )
