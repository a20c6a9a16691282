"""Suspects in the catalog: messages that were lost with their consumer, waiting or in its hands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.conditions import IN_FLIGHT, Eligible, Rules, in_magazines
from queue_core.catalog.slices.shard_locks import ANY_BEHIND, Backlog
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import slices
from queue_core.values.model import Magazine

# As the index has it.
_IS_SUSPECT = slices.c.lost_among > literal_column("0")

_HOLDER = bindparam("holder", type_=slices.c.consumer_id.type)
_ACKNOWLEDGED = select(consumers.c.acknowledged).where(consumers.c.id == _HOLDER)
#: The conditions on slices that a consumer holds by tickets of its present life.
_HELD: Rules = (
    slices.c.consumer_id == _HOLDER,
    *IN_FLIGHT,
    slices.c.ticket > _ACKNOWLEDGED.scalar_subquery(),
)
_MOST_HELD = select(func.max(slices.c.lost_among)).where(*_HELD)


def look_by_counters(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine,
    shard_numbers: Collection[int] | None,
    consumer_id: int | None,
) -> tuple[dict[ShardKey, Backlog], bool]:
    """Return what waits in shards by their counters, and whether `look` would find suspects."""
    found = _found(in_main=magazine is Magazine.MAIN, holds=consumer_id is not None)
    given: dict[str, Any] = {"suspects_of": queue_ids, "holder": consumer_id}
    return shard_locks.see(connection, queue_ids, magazine, shard_numbers, found, given)


def look(
    connection: Connection,
    eligible: Eligible,
    queue_ids: Collection[int],
    magazine: Magazine,
    consumer_id: int | None,
    *,
    logged: bool = False,
) -> bool | None:
    """
    Return whether some queues have suspects in main; None if no slice is eligible at all.

    A consumer also sees the suspects that it holds. Other magazines have none. With *logged*, the
    messages of logs that wait for subscriptions count, too.
    """
    given = eligible.given | {"suspects_of": queue_ids}
    if logged:
        given["behind_of"] = queue_ids
    if consumer_id is not None:
        given["holder"] = consumer_id
    in_main, holds = magazine is Magazine.MAIN, consumer_id is not None
    query = _looking(eligible.where, in_main=in_main, holds=holds, logged=logged)
    row = connection.execute(query, given).first()
    return None if row is None else bool(row[0])


def most_held(connection: Connection, consumer_id: int) -> int | None:
    """
    Return among how many messages the suspects were lost that a consumer holds; 0: it has none.

    Return None if it holds nothing.
    """
    most: int | None = connection.scalar(_MOST_HELD, {"holder": consumer_id})
    return most


def sizes(connection: Connection, where: Rules, given: Mapping[str, Any]) -> list[int]:
    """Return among how many messages the suspects were lost that meet conditions."""
    found = select(slices.c.lost_among).where(*where, _IS_SUSPECT).distinct()
    return list(connection.scalars(found, given))


@lru_cache(maxsize=4)
def _found(*, in_main: bool, holds: bool) -> ColumnElement[Any]:
    """Return whether there are suspects, as a value of any statement."""
    here = (dialect.one_of_given(slices.c.queue_id, "suspects_of"), *in_magazines([Magazine.MAIN]))
    found: ColumnElement[Any] = exists(
        select(slices.c.id).where(_IS_SUSPECT, *here).correlate(None)
    )
    if holds:
        held = exists(select(slices.c.id).where(*_HELD, _IS_SUSPECT).correlate(None))
        found = or_(found, held)
    if not in_main:
        found = literal_column("0")
    return select(found).scalar_subquery()


@lru_cache(maxsize=64)
def _looking(where: Rules, *, in_main: bool, holds: bool, logged: bool) -> Select[Any]:
    look = select(_found(in_main=in_main, holds=holds))
    if logged:
        return look.where(or_(select(slices.c.id).where(*where).exists(), ANY_BEHIND))
    return look.where(*where).limit(1).select_from(slices)
