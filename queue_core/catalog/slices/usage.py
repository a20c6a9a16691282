"""The usage of a bounded queue: the messages and bytes in main, counted in a transaction.

The counters of the shards give the number of messages; there are few of them. The bytes are the sum
over the slices. There may be many slices, so an index covers them. If a firing makes room, messages
in flight are left out of both, except those of `Queue.get_and_keep`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import sub
from typing import Any

from sqlalchemy import BindParameter, Connection, FromClause, Select, bindparam, func, select, true

from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.holders.consumers import IS_KEEPER
from queue_core.catalog.queues import dropped, given_up_error, settings_of
from queue_core.catalog.slices.conditions import IN_FLIGHT, in_state
from queue_core.catalog.tables import (
    LEFT,
    counters,
    queues,
    shard_locks,
    shard_totals,
    shards,
    slices,
)
from queue_core.catalog.versions import side_by_side
from queue_core.values.model import Magazine, QueueInfo, State
from queue_core.values.settings import QueueSettings

_ID: BindParameter[int] = bindparam("queue")
_MAIN = int(Magazine.MAIN)


@lru_cache(maxsize=4)
def _totals(database: dialect.Dialect) -> Select[Any]:
    """Return the statement that reads the settings of a queue, and the counts of its messages."""
    source: FromClause = shard_totals
    loads: FromClause = shards
    locks: FromClause = shard_locks
    counts: FromClause = counters
    if database.keeps_versions:
        source, (loads, locks, counts), _ = side_by_side(queues.c.id == _ID, _MAIN)
    there = reduce(sub, (counts.c[name] for name in LEFT), loads.c.loaded)
    # Damaged messages that were in flight count as reloaded.
    not_in_flight = loads.c.loaded + counts.c.reloaded - locks.c.fired
    totals = (
        select(func.sum(there).label("there"), func.sum(not_in_flight).label("not_in_flight"))
        .select_from(source)
        .where(loads.c.queue_id == _ID, loads.c.magazine == _MAIN)
        .subquery()
    )
    settings = select(queues.c.settings, queues.c.deactivated_at, *totals.c)
    return settings.select_from(queues.join(totals, true())).where(queues.c.id == _ID)


_IN_MAIN = (slices.c.queue_id == _ID, slices.c.magazine == _MAIN)
_BYTES = select(func.sum(slices.c.bytes)).where(*_IN_MAIN)
_BYTES_NOT_IN_FLIGHT = _BYTES.where(*in_state(State.LOADED, State.DAMAGED))
_AMOUNT = select(
    func.sum(slices.c.count).label("messages"), func.sum(slices.c.bytes).label("bytes")
).where(*_IN_MAIN)
_UNEVICTABLE = _AMOUNT.where(*in_state(State.FIRED, State.DAMAGED))
_OF_KEEPER = slices.c.consumer_id.in_(select(consumers.c.id).where(IS_KEEPER))
_KEPT = _AMOUNT.where(*IN_FLIGHT, _OF_KEEPER)
_KEPT_OR_DAMAGED = _UNEVICTABLE.where(_OF_KEEPER | (slices.c.state == int(State.DAMAGED)))


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of messages and their bytes."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The current settings of a queue, with its bounds, and the messages and bytes that count."""

    settings: QueueSettings
    held: Amount


def read_usage(connection: Connection, queue: QueueInfo) -> Usage:
    """Return the usage of main; its bytes only if they are bounded. Raises `QueueDeactivated`."""
    row = connection.execute(_totals(dialect.of(connection)), {"queue": queue.id}).first()
    if row is None:
        raise dropped(queue)
    if row.deactivated_at is not None:
        raise given_up_error(queue.name, row.deactivated_at)
    settings = settings_of(queue.name, row.settings)
    on_fire = settings.has_room_on_fire
    size = 0
    if settings.max_bytes is not None:
        query = _BYTES_NOT_IN_FLIGHT if on_fire else _BYTES
        size = int(connection.scalar(query, {"queue": queue.id}) or 0)
    if not on_fire:
        return Usage(settings, Amount(int(row.there or 0), size))
    # A message that is kept between the two statements counts twice, and none is missed.
    kept = _read(connection, _KEPT, queue.id)
    held = Amount(int(row.not_in_flight or 0) + kept.messages, size + kept.bytes)
    return Usage(settings, held)


def unevictable(connection: Connection, queue_id: int, settings: QueueSettings) -> Amount:
    """Return the messages and bytes that count and cannot be evicted: in flight or damaged."""
    query = _KEPT_OR_DAMAGED if settings.has_room_on_fire else _UNEVICTABLE
    return _read(connection, query, queue_id)


def _read(connection: Connection, query: Select[tuple[int, int]], queue_id: int) -> Amount:
    row = connection.execute(query, {"queue": queue_id}).one()
    return Amount(int(row.messages or 0), int(row.bytes or 0))
