"""The usage of a bounded queue: the messages and bytes in main, counted in a transaction.

The counters of the shards give the number of messages; there are few of them. The bytes are the sum
over the slices. There may be many slices, so an index covers them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import sub

from sqlalchemy import Connection, bindparam, func, select

from queue_core.catalog.damage import decoding
from queue_core.catalog.queues import check_in_use
from queue_core.catalog.tables import counters, queues, shard_totals, shards, slices
from queue_core.errors import Conflict
from queue_core.model import Magazine, QueueInfo, State
from queue_core.settings import QueueSettings

#: Counters of messages that have left a magazine.
_LEFT = ("deleted", "sidelined", "shovelled", "swept", "expired", "replaced", "dropped")

# Built once: building a statement takes several times as long as SQLite needs to run it.
_MESSAGES = (
    select(func.sum(reduce(sub, (counters.c[name] for name in _LEFT), shards.c.loaded)))
    .select_from(shard_totals)
    .where(shards.c.queue_id == bindparam("queue"), shards.c.magazine == int(Magazine.MAIN))
    .scalar_subquery()
)
_QUEUE = select(queues.c.settings, queues.c.deactivated_at, _MESSAGES.label("messages")).where(
    queues.c.id == bindparam("queue")
)
_IN_MAIN = (slices.c.queue_id == bindparam("queue"), slices.c.magazine == int(Magazine.MAIN))
_BYTES = select(func.sum(slices.c.bytes)).where(*_IN_MAIN)
_UNEVICTABLE = select(func.sum(slices.c.count), func.sum(slices.c.bytes)).where(
    *_IN_MAIN, slices.c.state.in_([int(state) for state in State if state is not State.LOADED])
)

_settings = lru_cache(maxsize=64)(QueueSettings.from_json)


@dataclass(frozen=True, slots=True)
class Amount:
    """A number of messages and their bytes."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The current settings of a queue, with its bounds, and the messages and bytes in main."""

    settings: QueueSettings
    held: Amount


def read_usage(connection: Connection, queue: QueueInfo) -> Usage:
    """Return the usage of main; its bytes only if they are bounded. Raises `QueueDeactivated`."""
    row = connection.execute(_QUEUE, {"queue": queue.id}).first()
    if row is None:
        raise Conflict(f"queue {queue.name!r} was dropped; open it again")
    if row.deactivated_at is not None:
        check_in_use(connection, [queue.id])
    with decoding(queues, f"name {queue.name!r}"):
        settings = _settings(row.settings)
    size = 0
    if settings.max_bytes is not None:
        size = int(connection.scalar(_BYTES, {"queue": queue.id}) or 0)
    return Usage(settings, Amount(int(row.messages or 0), size))


def unevictable(connection: Connection, queue_id: int) -> Amount:
    """Return the messages and bytes in main that cannot be evicted: in flight or damaged."""
    messages, size = connection.execute(_UNEVICTABLE, {"queue": queue_id}).one()
    return Amount(int(messages or 0), int(size or 0))
