"""Copies of a queue's state in another queue of the same root, for snapshots, seeks and clones.

Copies name the same rows of segments, and no message is read. What was in flight waits. Ids keep
their meaning: the rows of `id_map` are copied, and so are the failures of the sideline. Guard: the
locks of all shards keep firings and intakes away, and the locks of the slices all others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    FromClause,
    Table,
    and_,
    case,
    delete,
    func,
    insert,
    literal,
    null,
    select,
)

from queue_core.catalog import dialect, seals
from queue_core.catalog.record_tables import failures
from queue_core.catalog.slices import logs, shard_locks, slice_batches
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.catalog.slices.tails import Room, allocate
from queue_core.catalog.tables import id_map, shards, slices
from queue_core.values.model import Extent, Magazine, State

#: What a copy of a slice lacks: a holder, and the ranks of a fair queue.
_NOT_COPIED = {"consumer_id": None, "ticket": None, "rank": None, "rank_step": None}


def hold(connection: Connection, queue_ids: Collection[int], *, free: bool = False) -> SliceBatch:
    """
    Lock all slices of some queues into which nothing is loaded; return them.

    *free*: only those that nobody holds, of queues of any kind.
    """
    for magazine in Magazine:
        shard_locks.lock(connection, queue_ids, magazine)
    here = dialect.one_of(slices.c.queue_id, queue_ids)
    query = select(slices.c.id).where(here).order_by(slices.c.id).with_for_update()
    if free:
        query = query.where(slices.c.ticket.is_(None))
    before, held = None, connection.scalars(query).all()
    while not free and held != before:
        # A settlement that had locked some may have made new ones.
        before, held = held, connection.scalars(query).all()
    return slice_batches.read(connection, (dialect.one_of(slices.c.id, held),))


def remove_all(connection: Connection, queue_id: int, held: SliceBatch) -> None:
    """Remove all slices of a queue, which the transaction holds, with their maps and failures."""
    changes = Changes()
    changes.remove_all(held, "dropped")
    changes.apply(connection)
    for table in (id_map, failures):
        connection.execute(delete(table).where(table.c.queue_id == queue_id))


def copy(connection: Connection, held: SliceBatch, source: int, target: int) -> None:
    """Copy slices that the transaction holds to the tails of an empty queue of the same root."""
    if not held:
        return
    these = dialect.one_of(slices.c.id, held.id.tolist())
    # Counted from the first one, or the places would double with each snapshot and seek.
    key, first = (slices.c.magazine, slices.c.shard), func.min(slices.c.position).label("place")
    begins = select(*key, first).where(these).group_by(*key).subquery()
    position = slices.c.position - begins.c.place + shards.c.load_pointer
    damaged = int(State.DAMAGED)
    state = case((slices.c.state == damaged, damaged), else_=int(State.LOADED))
    gain = seals.gain(slices, {"queue_id": target, **_NOT_COPIED})["gain"]
    changed = {
        "queue_id": literal(target, BigInteger),
        "position": position,
        "state": state,
        **dict.fromkeys(_NOT_COPIED, null()),
    }
    seal = seals.resealing(
        slices,
        changed,
        literal(gain, BigInteger)
        + position % seals.PRIME * seals.weight(slices, "position")
        + state * seals.weight(slices, "state"),
    )
    there = and_(
        shards.c.queue_id == target,
        shards.c.magazine == slices.c.magazine,
        shards.c.shard == slices.c.shard,
    )
    here = and_(begins.c.magazine == slices.c.magazine, begins.c.shard == slices.c.shard)
    rows = slices.join(shards, there).join(begins, here)
    _insert(connection, slices, changed | {"seal": seal}, rows, these)
    wanted, changes = {}, Changes()
    for (_, magazine, shard), range in held.by_shard():
        part = held[range]
        places = int(part.end.max() - part.position.min())
        wanted[target, magazine, shard] = Room(places, part.messages)
        unread = part[part.state == damaged].messages
        if unread:
            changes.count_at((target, magazine, shard), damaged=unread)
    allocate(connection, wanted)
    changes.apply(connection)
    copied = slices.c.queue_id == target
    named = select(slices.c.segment_id).where(copied)
    _copy(connection, id_map, source, target, id_map.c.segment_id.in_(named))
    aside = slices.c.magazine == int(Magazine.SIDELINE)
    since = select(func.min(slices.c.loaded_at)).where(copied, aside).scalar_subquery()
    _copy(connection, failures, source, target, failures.c.failed_at >= since)


def measure(connection: Connection, held: SliceBatch, cursors: Mapping[int, logs.Cursor]) -> Extent:
    """Return what slices have, and the log after some cursors."""
    these = dialect.one_of(slices.c.id, held.id.tolist())
    size = connection.scalar(select(func.sum(slices.c.bytes)).where(these))
    logged = logs.measure(connection, cursors)
    return Extent(logged.messages + held.messages, logged.bytes + int(size or 0))


def _copy(connection: Connection, table: Table, source: int, target: int, *where: Any) -> None:
    """Copy rows of a queue in a table as those of another one."""
    gain = literal(seals.gain(table, {"queue_id": target})["gain"], BigInteger)
    seal = seals.resealing(table, ["queue_id"], gain)
    changed = {"queue_id": literal(target, BigInteger), "seal": seal}
    _insert(connection, table, changed, table, table.c.queue_id == source, *where)


def _insert(
    connection: Connection, table: Table, changed: dict[str, Any], rows: FromClause, *where: Any
) -> None:
    """Insert copies of some rows, with other values in some columns."""
    # The database assigns the ids.
    copied = {column.name: column for column in table.c if column.name != "id"} | changed
    query = select(*copied.values()).select_from(rows).where(*where)
    connection.execute(insert(table).from_select(list(copied), query, include_defaults=False))
