"""The present figures of all queues, in one statement.

It reads the counters, of which there are few, instead of the slices. The figures equal those of the
slices: invariants I17 to I19. The oldest message is looked for at the head of each shard, with one
look at an index.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import reduce
from operator import add
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    func,
    select,
)

from queue_core.catalog import dialect
from queue_core.catalog.tables import LEFT, counters, queues, shard_totals, shards, slices, turns
from queue_core.due import NEVER
from queue_core.model import Magazine, State

#: Counters of main whose growth is a rate, and their tables.
COUNTED = {"loaded": shards, "fired": turns, "deleted": counters, "sidelined": counters}


def _present(shards_of: Sequence[ColumnElement[bool]] = ()) -> Select[Any]:
    is_main = shards.c.magazine == int(Magazine.MAIN)
    left = reduce(add, (counters.c[name] for name in LEFT))
    in_flight = turns.c.fired - counters.c.reloaded - left
    waiting = shards.c.loaded - counters.c.damaged - turns.c.fired + counters.c.reloaded
    head = (
        select(slices.c.loaded_at)
        .where(
            slices.c.queue_id == shards.c.queue_id,
            slices.c.magazine == int(Magazine.MAIN),
            slices.c.state == int(State.LOADED),
            slices.c.shard == shards.c.shard,
        )
        .order_by(slices.c.position)
        .limit(1)
        .correlate(shards)
        .scalar_subquery()
    )
    each = (
        select(
            shards.c.queue_id,
            shards.c.magazine,
            waiting.label("waiting"),
            in_flight.label("in_flight"),
            counters.c.damaged,
            case((and_(is_main, waiting > 0), head)).label("oldest_at"),
            *(table.c[name] for name, table in COUNTED.items()),
        )
        .select_from(shard_totals)
        .where(*shards_of)
        .subquery("each_shard")
    )

    def total(name: str, magazine: Magazine | None = None) -> ColumnElement[int]:
        value: ColumnElement[int] = each.c[name]
        if magazine is not None:
            value = case((each.c.magazine == int(magazine), value), else_=0)
        # PostgreSQL adds up to decimal numbers.
        return func.sum(value).cast(BigInteger)

    sums = (
        select(
            each.c.queue_id,
            total("waiting", Magazine.MAIN).label("waiting"),
            func.min(each.c.oldest_at).label("oldest_at"),
            total("in_flight").label("in_flight"),
            total("waiting", Magazine.SIDELINE).label("sidelined"),
            total("damaged").label("damaged"),
            *(total(name, Magazine.MAIN).label(f"all_{name}") for name in COUNTED),
        )
        .group_by(each.c.queue_id)
        .subquery("sums")
    )

    def aside(*where: ColumnElement[bool]) -> ColumnElement[int]:
        found = select(func.coalesce(func.sum(slices.c.count), 0).cast(BigInteger)).where(
            slices.c.queue_id == queues.c.id,
            slices.c.magazine == int(Magazine.SIDELINE),
            slices.c.state == int(State.LOADED),
            *where,
        )
        return found.correlate(queues).scalar_subquery()

    found = queues.outerjoin(sums, sums.c.queue_id == queues.c.id)
    age = dialect.now() - sums.c.oldest_at
    return select(
        queues.c.id.label("queue_id"),
        queues.c.name.label("queue"),
        sums.c.waiting,
        # The clock may have been set back.
        case((age < 0, 0), else_=age).label("oldest_age"),
        sums.c.in_flight,
        sums.c.sidelined,
        aside(slices.c.due_at < NEVER).label("retrying"),
        aside(slices.c.due_at == NEVER).label("dead"),
        sums.c.damaged,
        *(sums.c[f"all_{name}"] for name in COUNTED),
    ).select_from(found)


#: One row per queue: ages in microseconds, ``all_…`` counters of main; null where it is unknown.
PRESENT = _present()


def read(connection: Connection, queue_ids: Collection[int] | None = None) -> list[Row[Any]]:
    """Return the present figures of some queues; None: of all."""
    if queue_ids is None:
        return list(connection.execute(PRESENT))
    one_of = dialect.of(connection).one_of
    query = _present([one_of(shards.c.queue_id, queue_ids)]).where(one_of(queues.c.id, queue_ids))
    return list(connection.execute(query))
