"""Holders: who must hold messages that are settled, who holds some, and who is connected."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, func, or_, select, union

from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import consumers, interests
from queue_core.catalog.holders.consumers import (
    DEAD_AFTER_SECONDS,
    NOT_AGAIN,
    by_name,
    life,
    names_of,
    own_ids,
)
from queue_core.catalog.slices.conditions import IN_FLIGHT, WITH_TICKET, Eligible
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.tables import slices
from queue_core.errors import BadOption
from queue_core.values.ids import IdSet
from queue_core.values.model import Consumer, Holder, Slice, Ticket


def conditions(connection: Connection, holder: Holder) -> Eligible:
    """
    Return the conditions of slices that the holder holds; raises `BadOption`.

    They are conditions on messages that are found by their segments. A consumer may hold many more,
    so a database without statistics must not begin with its index. A `Consumer` that was started
    again holds nothing: its messages are those of its new life.
    """
    match holder:
        case Ticket():
            its = {"its_ticket": holder.number, "its_name": holder.consumer.name}
            return Eligible(_BY_TICKET, {"holder": holder.consumer.id, **its})
        case Consumer():
            return Eligible((_HELD, NOT_AGAIN), {"holder": holder.id, **life(holder)})
        case str():
            return Eligible((_HELD,), {"holder": id_of(connection, holder)})
        case None:
            return Eligible((), {})
        case _:
            return Eligible((_OWN,), {"own": own_ids(connection)})


def id_of(connection: Connection, name: str) -> int:
    """Return the number of the consumer *name*; raises `BadOption`."""
    found = by_name(connection, name)
    if found is None:
        raise BadOption(f"consumer={name!r} has never fired from this store")
    return found.id


_HOLDS = and_(slices.c.consumer_id == consumers.c.id, *WITH_TICKET)
_HOLDER = bindparam("holder", type_=slices.c.consumer_id.type)
_IS_TAKER = (consumers.c.id == _HOLDER) & (consumers.c.name == bindparam("its_name"))
_TAKER = select(consumers.c.id).where(_IS_TAKER).scalar_subquery()
# Another thread of the consumer may hold them now; in another store, another one has its number.
_BY_TICKET = (slices.c.consumer_id == _TAKER, slices.c.ticket == bindparam("its_ticket"))
_HELD = dialect.not_indexed(slices.c.consumer_id) == _HOLDER
_OWN = dialect.one_of_given(dialect.not_indexed(slices.c.consumer_id), "own")


def name_of(holder: Holder) -> str | None:
    """Return the name of the consumer that holds the messages, if it is known."""
    match holder:
        case Ticket():
            return holder.consumer.name
        case Consumer():
            return holder.name
        case str():
            return holder
        case _:
            return None


def of_others(connection: Connection, fired: Iterable[Slice], ids: IdSet) -> dict[str, int]:
    """Return how many of some messages the consumers of other processes hold, by their names."""
    left: dict[int, int] = defaultdict(int)
    for piece in fired:
        if piece.consumer_id is not None:
            left[piece.consumer_id] += len(piece.rows & ids.rows(piece.segment_id))
    names = names_of(connection, left.keys() - set(own_ids(connection)))
    return {name: left[id] for id, name in names.items() if left[id]}


def held(connection: Connection, queue_id: int, name: str | None = None) -> list[Slice]:
    """Return the slices in flight of a queue, those of the oldest firing first; *name*: of one."""
    # In the index of tickets, as in `holding`.
    if name is None:
        whose: ColumnElement[bool] = slices.c.consumer_id.is_not(None)
    else:
        whose = slices.c.consumer_id == id_of(connection, name)
    here = dialect.not_indexed(slices.c.queue_id) == queue_id
    found = fetch(connection, whose, here, *IN_FLIGHT)
    return sorted(found, key=lambda each: each.fired_at or 0)


def holding(connection: Connection, queue_ids: Collection[int] | None) -> Sequence[Any]:
    """
    Return the consumers that hold messages of each queue, of some or of all, by name.

    Each with the `queue_id`, its `name`, `heartbeat_at`, `host`, `pid` and `ack`, the number of
    messages `held`, and when the first of them was `fired_at`.
    """
    of = dialect.not_indexed(slices.c.queue_id)
    here = and_(_HOLDS, *dialect.among(of, queue_ids))
    own = [consumers.c[name] for name in ("name", "heartbeat_at", "host", "pid", "ack")]
    return connection.execute(
        select(
            of.label("queue_id"),
            *own,
            func.sum(slices.c.count).label("held"),
            func.min(slices.c.fired_at).label("fired_at"),
        )
        .join(slices, here)
        .group_by(of, consumers.c.id, *own)
        .order_by(consumers.c.name)
    ).all()


def connected(
    connection: Connection, now: int, queue_ids: Collection[int] | None
) -> dict[int, int]:
    """
    Return how many consumers are connected, by the ids of queues that have some; None: of all.

    They are alive and registered with the queue, or hold messages of it. *now*: the catalog's time.
    A consumer without heartbeats, such as `Queue.fire` in a script, counts while it holds messages
    that it has lately fired.
    """
    since = now - int(DEAD_AFTER_SECONDS * 1e6)
    alive = consumers.c.heartbeat_at > since
    lately = consumers.c.heartbeat_at.is_(None) & (slices.c.fired_at > since)
    registered = select(interests.c.queue_id, interests.c.consumer_id).where(
        interests.c.consumer_id == consumers.c.id,
        alive,
        *dialect.among(interests.c.queue_id, queue_ids),
    )
    of = dialect.not_indexed(slices.c.queue_id)
    holds = select(slices.c.queue_id, slices.c.consumer_id).where(
        _HOLDS, *IN_FLIGHT, or_(alive, lately), *dialect.among(of, queue_ids)
    )
    found = union(registered, holds).subquery("connected")
    query = select(found.c.queue_id, func.count()).group_by(found.c.queue_id)
    return dict(connection.execute(query).all())


def queues_of(connection: Connection, names: Collection[str]) -> dict[str, Sequence[int]]:
    """Return the ids of the queues with which consumers of some names are registered."""
    query = select(consumers.c.name, interests.c.queue_id).where(
        interests.c.consumer_id == consumers.c.id, dialect.one_of(consumers.c.name, sorted(names))
    )
    found: dict[str, list[int]] = defaultdict(list)
    for name, queue_id in connection.execute(query):
        found[name].append(queue_id)
    return dict(found)
