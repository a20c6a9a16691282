"""The statements that change the rows of a shard: its pointers, its head and its counters.

Other modules change these rows too, but not with each firing, settlement or sweep.
"""

from __future__ import annotations

from functools import lru_cache

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    Connection,
    Table,
    Update,
    bindparam,
    case,
    func,
    select,
    update,
)

from queue_core.catalog import seals
from queue_core.catalog.damage import decoding
from queue_core.catalog.slices.conditions import Position
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import counters, shard_locks, slices
from queue_core.catalog.versions import newest
from queue_core.values.model import Magazine, State

QUEUE: BindParameter[int] = bindparam("of_queue")
_MAGAZINE: BindParameter[int] = bindparam("in_magazine")
_SHARD: BindParameter[int] = bindparam("at_shard")
_UPTO = bindparam("upto", type_=BigInteger)
#: Greater than the number of any shard, as far as databases store it.
_NO_SHARD = 2**31 - 1


def at_shard(table: Table) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions of a change to a row of a shard, whose parameters `of_shard` gives."""
    return newest(table, queue_id=QUEUE, magazine=_MAGAZINE, shard=_SHARD)


def of_shard(key: ShardKey) -> dict[str, int]:
    """Return the parameters for a shard of all statements with the conditions of `at_shard`."""
    return {"of_queue": key[0], "in_magazine": key[1], "at_shard": key[2]}


_POINTER = shard_locks.c.fire_pointer
_FURTHEST = case((_POINTER < _UPTO, _UPTO), else_=_POINTER)
_FIRED = shard_locks.c.fired + bindparam("by")
#: Count messages as fired, and move the fire pointer to their end.
FIRE = (
    update(shard_locks)
    .where(*at_shard(shard_locks))
    .values(seals.changing(shard_locks, fired=_FIRED, fire_pointer=_FURTHEST))
)
#: Move the cursor of a subscription.
ENTER = (
    update(shard_locks)
    .where(*at_shard(shard_locks))
    .values(seals.changing(shard_locks, cursor=shard_locks.c.cursor + bindparam("by")))
)

_AHEAD = slices.alias("ahead")
_FIRST_WAITING = select(func.min(_AHEAD.c.position)).where(
    _AHEAD.c.queue_id == QUEUE,
    _AHEAD.c.magazine == _MAGAZINE,
    _AHEAD.c.state == int(State.LOADED),
    _AHEAD.c.shard == _SHARD,
    _AHEAD.c.position >= bindparam("from_head"),
)
#: Find the head of a shard. Loads into a shard commit in the order of their places, so that none is
#: under way to a place before one that was fired.
FIND_HEAD = (
    update(shard_locks)
    .where(*at_shard(shard_locks))
    .values(
        head=func.coalesce(_FIRST_WAITING.scalar_subquery(), _POINTER),
        head_released=bindparam("released"),
        version=shard_locks.c.version + 1,
    )
)


@lru_cache(maxsize=64)
def counting(names: tuple[str, ...]) -> Update:
    """Return the statement that adds to some counters of a shard: ``by_`` and their names."""
    values = {name: counters.c[name] + bindparam(f"by_{name}") for name in names}
    return update(counters).where(*at_shard(counters)).values(seals.changing(counters, **values))


#: Set the sweep pointers of some shards.
_POINT = (
    update(counters)
    .where(
        counters.c.queue_id == QUEUE,
        counters.c.magazine == _MAGAZINE,
        counters.c.shard >= bindparam("first"),
        counters.c.shard < bindparam("end"),
        counters.c.sweep_pointer != bindparam("to"),
    )
    .values(seals.changing(counters, sweep_pointer=bindparam("to", type_=BigInteger)))
)


def interrupted_sweep(connection: Connection, queue_id: int) -> tuple[Magazine, Position] | None:
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


def advance_sweep(
    connection: Connection,
    queue_id: int,
    magazine: Magazine,
    begin: Position,
    following: Position | None,
) -> None:
    """Reset the pointers of the shards since *begin*; set that of an unfinished one, if any."""
    here = {"of_queue": queue_id, "in_magazine": int(magazine)}
    shard, position = following or (_NO_SHARD, 0)
    if following is not None:
        connection.execute(_POINT, here | {"first": shard, "end": shard + 1, "to": position})
    if begin[0] < shard:
        connection.execute(_POINT, here | {"first": begin[0], "end": shard, "to": 0})
