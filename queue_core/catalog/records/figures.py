"""The present figures of all queues, in one statement.

It reads the counters, of which there are few, instead of the slices. The figures equal those of the
slices: invariants I17 to I19. The oldest message is looked for at the head of each shard, with one
look at an index. The tables of the counters are added up before they are joined, since most of the
time would otherwise go into the join.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from functools import reduce
from operator import add
from typing import Any, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    case,
    func,
    or_,
    select,
    true,
)

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import IN_FLIGHT, WITH_TICKET
from queue_core.catalog.slices.logs import row_with
from queue_core.catalog.slices.shard_locks import BEHIND
from queue_core.catalog.tables import (
    LEFT,
    counters,
    log_slices,
    queues,
    shard_locks,
    shards,
    slices,
)
from queue_core.values.due import NEVER
from queue_core.values.model import Magazine, State
from queue_core.values.settings import QueueSettings

#: Counters whose growth is a rate: of main, and of messages that returned to it. Those count as
#: returned, and not as loaded.
COUNTED = ("loaded", "returned", "fired", "deleted", "sidelined")
#: The counters of each magazine, and their tables.
_TABLES = {
    shards: ("loaded",),
    shard_locks: ("fired",),
    counters: ("reloaded", "damaged", "ignored", "returned", *LEFT),
}
COUNTERS = tuple(name for names in _TABLES.values() for name in names)

#: Returns the conditions on a queue's id.
_Only: TypeAlias = Callable[[ColumnElement[int]], Collection[ColumnElement[bool]]]


def _present(only: _Only = lambda _: (), *, everything: bool = False) -> Select[Any]:
    parts = [
        select(
            table.c.queue_id,
            table.c.magazine,
            *([func.sum(BEHIND).cast(BigInteger).label("behind")] * (table is shard_locks)),
            # PostgreSQL adds up to decimal numbers.
            *(func.sum(table.c[name]).cast(BigInteger).label(name) for name in names),
        )
        .where(*only(table.c.queue_id))
        .group_by(table.c.queue_id, table.c.magazine)
        .subquery(f"all_{table.name}")
        for table, names in _TABLES.items()
    ]
    first, *others = parts
    joined: Any = first
    for part in others:
        here = and_(part.c.queue_id == first.c.queue_id, part.c.magazine == first.c.magazine)
        joined = joined.join(part, here)
    of = {
        name: part.c[name]
        for part, names in zip(parts, _TABLES.values(), strict=True)
        for name in names
    }
    of["behind"] = next(part.c.behind for part in parts if "behind" in part.c)
    waiting = of["behind"] + of["loaded"] - of["damaged"] - of["fired"] + of["reloaded"]
    in_flight = of["fired"] - of["reloaded"] - reduce(add, (of[name] for name in LEFT))

    def total(value: ColumnElement[int], magazine: Magazine | None = None) -> ColumnElement[int]:
        if magazine is not None:
            value = case((first.c.magazine == int(magazine), value), else_=0)
        return func.sum(value).cast(BigInteger)

    every = {
        label_of(name, magazine): total(of[name], magazine)
        for magazine in Magazine
        for name in COUNTERS
    }
    returned = every[label_of("returned", Magazine.SIDELINE)]
    every[label_of("loaded", Magazine.MAIN)] -= returned
    counts = {f"all_{name}": every[label_of(name, Magazine.MAIN)] for name in COUNTED}
    counts["all_returned"] = returned
    if everything:
        counts |= every
    sums = (
        select(
            first.c.queue_id,
            total(waiting, Magazine.MAIN).label("waiting"),
            total(in_flight).label("in_flight"),
            total(in_flight, Magazine.MAIN).label("main_in_flight"),
            total(waiting, Magazine.SIDELINE).label("sidelined"),
            total(of["damaged"]).label("damaged"),
            *(count.label(name) for name, count in counts.items()),
        )
        .select_from(joined)
        .group_by(first.c.queue_id)
        .subquery("sums")
    )
    heads = _heads(only).subquery("heads")
    logged = _logged_heads(only).subquery("logged")

    def aside(*where: ColumnElement[bool]) -> ColumnElement[int]:
        found = select(func.coalesce(func.sum(slices.c.count), 0).cast(BigInteger)).where(
            slices.c.queue_id == queues.c.id,
            slices.c.magazine == int(Magazine.SIDELINE),
            slices.c.state == int(State.LOADED),
            *where,
        )
        return found.correlate(queues).scalar_subquery()

    found = queues.outerjoin(sums, sums.c.queue_id == queues.c.id).outerjoin(
        heads, heads.c.queue_id == queues.c.id
    )
    # Read once, so that equal times have equal ages.
    clock = select(dialect.now().label("now")).subquery("clock")
    found = found.outerjoin(logged, logged.c.queue_id == queues.c.id).join(clock, true())

    def first_of(name: str) -> ColumnElement[int]:
        # The messages in a log are mostly newer than those that a subscription has taken in.
        taken_in, behind = heads.c[name], logged.c.loaded_at
        return func.coalesce(case((taken_in < behind, taken_in), else_=behind), taken_in)

    def since(at: ColumnElement[int]) -> ColumnElement[int]:
        # The clock may have been set back.
        age = clock.c.now - at
        return case((age < 0, 0), else_=age)

    # When a subscription was made, or given another place.
    moved_at = -queues.c.ends_at
    placed_at = case((moved_at > queues.c.created_at, moved_at), else_=queues.c.created_at)

    return (
        select(
            queues.c.id.label("queue_id"),
            queues.c.name.label("queue"),
            sums.c.waiting,
            since(first_of("loaded_at")).label("oldest_age"),
            since(first_of("came_at")).label("longest_wait"),
            since(placed_at).label("placed_for"),
            sums.c.in_flight,
            sums.c.main_in_flight,
            sums.c.sidelined,
            aside(slices.c.due_at < NEVER).label("retrying"),
            aside(slices.c.due_at == NEVER).label("dead"),
            sums.c.damaged,
            *(sums.c[name] for name in counts),
        )
        .select_from(found)
        .where(queues.c.snapshot_of == 0, *only(queues.c.id))
    )


def _heads(only: _Only) -> Select[Any]:
    """Return the query of when the first messages of the shards were loaded and came, by queue."""
    head = (
        select(slices.c.id)
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
    return (
        select(
            shards.c.queue_id,
            func.min(slices.c.loaded_at).label("loaded_at"),
            # As `Slice.came_at`.
            func.min(
                case(
                    ((slices.c.attempts == 0) & slices.c.fired_at.is_(None), slices.c.loaded_at),
                    else_=slices.c.moved_at,
                )
            ).label("came_at"),
        )
        .select_from(shards.join(slices, slices.c.id == head))
        .where(shards.c.magazine == int(Magazine.MAIN), *only(shards.c.queue_id))
        .group_by(shards.c.queue_id)
    )


def _logged_heads(only: _Only) -> Select[Any]:
    """Return the query of when the first messages of logs were loaded, by the subscriptions."""
    here = (shard_locks.c.cursor, shard_locks.c.log_of, shard_locks.c.shard)
    head = row_with(*here, log_slices.c.loaded_at).correlate(shard_locks).scalar_subquery()
    return (
        select(shard_locks.c.queue_id, func.min(head).label("loaded_at"))
        .where(shard_locks.c.log_of != 0, BEHIND > 0, *only(shard_locks.c.queue_id))
        .group_by(shard_locks.c.queue_id)
    )


def label_of(counter: str, magazine: Magazine) -> str:
    """Return the name of a counter of a magazine in the rows of `read`."""
    return f"{magazine.name.lower()}_{counter}"


#: One row per queue: ages in microseconds, ``all_…`` counters of main; null where it is unknown.
PRESENT = _present()
_WITH_COUNTERS = _present(everything=True)


def read(
    connection: Connection, queue_ids: Collection[int] | None = None, *, counters: bool = False
) -> list[Row[Any]]:
    """Return the present figures of some queues; None: of all, with all *counters* if wanted."""
    if queue_ids is None:
        return list(connection.execute(_WITH_COUNTERS if counters else PRESENT))
    query = _present(lambda column: [dialect.one_of(column, queue_ids)], everything=counters)
    return list(connection.execute(query))


def stuck(
    connection: Connection, now: int, queues: Mapping[int, QueueSettings], *, everything: bool
) -> dict[int, tuple[int, int]]:
    """
    Return, by queue, how many messages are in flight longer than `sweep_after`, and since when.

    It needs no heartbeats, so it also finds the messages of a dead process that sent none.
    *queues*: the settings of the queues by their ids. *everything*: whether these are all.
    """
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for queue_id, settings in queues.items():
        # Microseconds after which messages of main and of the sideline are stuck.
        limits = (int(settings.sweep_after * 1e6), int(settings.sideline_sweep_after * 1e6))
        alike[limits].append(queue_id)
    found = {}
    of_queue = dialect.not_indexed(slices.c.queue_id)
    # Few queues have limits of their own.
    for (main, sideline), queue_ids in alike.items():
        query = (
            select(of_queue, func.sum(slices.c.count), func.min(slices.c.fired_at))
            .where(
                *WITH_TICKET,
                *IN_FLIGHT,
                or_(
                    and_(slices.c.magazine == int(Magazine.MAIN), slices.c.fired_at < now - main),
                    slices.c.fired_at < now - sideline,
                ),
            )
            .group_by(of_queue)
        )
        if not everything or len(alike) > 1:
            query = query.where(dialect.one_of(of_queue, queue_ids))
        for queue_id, messages, fired_at in connection.execute(query):
            found[queue_id] = (int(messages), fired_at)
    return found
