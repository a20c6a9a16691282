"""The usage of a bounded queue: the messages and bytes in main, counted in a transaction.

The counters of the shards give the number of messages; there are few of them. The bytes are the sum
over the slices. There may be many slices, so an index covers them. If a firing makes room, messages
in flight are left out of both, except those of `Queue.get_and_keep`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import sub

from sqlalchemy import Connection, Select, bindparam, func, select, true

from queue_core.catalog.damage import decoding
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.holders.consumers import IS_KEEPER
from queue_core.catalog.queues import check_in_use, dropped
from queue_core.catalog.slices.conditions import DAMAGED, IN_FLIGHT, in_state
from queue_core.catalog.tables import (
    LEFT,
    counters,
    queues,
    shard_locks,
    shard_totals,
    shards,
    slices,
)
from queue_core.values.model import Magazine, QueueInfo, State
from queue_core.values.settings import QueueSettings

_TOTALS = (
    select(
        func.sum(reduce(sub, (counters.c[name] for name in LEFT), shards.c.loaded)).label("there"),
        # Damaged messages that were in flight count as reloaded.
        func.sum(shards.c.loaded + counters.c.reloaded - shard_locks.c.fired).label(
            "not_in_flight"
        ),
    )
    .select_from(shard_totals)
    .where(shards.c.queue_id == bindparam("queue"), shards.c.magazine == int(Magazine.MAIN))
    .subquery()
)
_QUEUE = (
    select(queues.c.settings, queues.c.deactivated_at, _TOTALS.c.there, _TOTALS.c.not_in_flight)
    .select_from(queues.join(_TOTALS, true()))
    .where(queues.c.id == bindparam("queue"))
)
_IN_MAIN = (slices.c.queue_id == bindparam("queue"), slices.c.magazine == int(Magazine.MAIN))
_BYTES = select(func.sum(slices.c.bytes)).where(*_IN_MAIN)
_BYTES_NOT_IN_FLIGHT = _BYTES.where(*in_state(State.LOADED, State.DAMAGED))
_AMOUNT = select(
    func.sum(slices.c.count).label("messages"), func.sum(slices.c.bytes).label("bytes")
).where(*_IN_MAIN)
_UNEVICTABLE = _AMOUNT.where(*in_state(State.FIRED, State.DAMAGED))
_DAMAGED = _AMOUNT.where(*DAMAGED)
_KEPT = _AMOUNT.where(*IN_FLIGHT, slices.c.consumer_id.in_(select(consumers.c.id).where(IS_KEEPER)))


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
    row = connection.execute(_QUEUE, {"queue": queue.id}).first()
    if row is None:
        raise dropped(queue)
    if row.deactivated_at is not None:
        check_in_use(connection, [queue.id])
    with decoding(queues, f"name {queue.name!r}"):
        settings = QueueSettings.from_json(row.settings)
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
    if not settings.has_room_on_fire:
        return _read(connection, _UNEVICTABLE, queue_id)
    kept = _read(connection, _KEPT, queue_id)
    damaged = _read(connection, _DAMAGED, queue_id)
    return Amount(kept.messages + damaged.messages, kept.bytes + damaged.bytes)


def _read(connection: Connection, query: Select[tuple[int, int]], queue_id: int) -> Amount:
    row = connection.execute(query, {"queue": queue_id}).one()
    return Amount(int(row.messages or 0), int(row.bytes or 0))
