"""What a bounded queue holds: counted within a transaction, exactly.

Messages are counted by the counters of the shards, of which there are few. Bytes are those of the
slices, of which there may be many; an index has them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import sub

from sqlalchemy import Connection, bindparam, func, select

from queue_core.catalog.queues import check_in_use
from queue_core.catalog.slices import LEFT
from queue_core.catalog.tables import counters, queues, shard_totals, shards, slices
from queue_core.errors import Conflict
from queue_core.model import Magazine, QueueInfo, State
from queue_core.settings import QueueSettings

# Built once: to build a statement takes several times as long as SQLite needs to run it.
_THERE = (
    select(func.sum(reduce(sub, (counters.c[name] for name in LEFT), shards.c.loaded)))
    .select_from(shard_totals)
    .where(shards.c.queue_id == bindparam("queue"), shards.c.magazine == int(Magazine.MAIN))
    .scalar_subquery()
)
_LOOK = select(queues.c.settings, queues.c.deactivated_at, _THERE.label("messages")).where(
    queues.c.id == bindparam("queue")
)
_IN_MAIN = (slices.c.queue_id == bindparam("queue"), slices.c.magazine == int(Magazine.MAIN))
_BYTES = select(func.sum(slices.c.bytes)).where(*_IN_MAIN)
_HELD = select(func.sum(slices.c.count), func.sum(slices.c.bytes)).where(
    *_IN_MAIN, slices.c.state.in_([int(state) for state in State if state is not State.LOADED])
)

_settings = lru_cache(maxsize=64)(QueueSettings.from_json)


@dataclass(frozen=True, slots=True)
class Amount:
    """Messages and their bytes."""

    messages: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What main holds, and how much it may hold, by the settings as they are now."""

    settings: QueueSettings
    there: Amount


def look(connection: Connection, queue: QueueInfo) -> Usage:
    """What is in main now; its bytes only where they matter. Raises `QueueDeactivated`."""
    row = connection.execute(_LOOK, {"queue": queue.id}).first()
    if row is None:
        raise Conflict(f"queue {queue.name!r} was dropped; open it again")
    if row.deactivated_at is not None:
        check_in_use(connection, [queue.id])
    settings = _settings(row.settings)
    size = 0
    if settings.max_bytes is not None:
        size = int(connection.scalar(_BYTES, {"queue": queue.id}) or 0)
    return Usage(settings, Amount(int(row.messages or 0), size))


def held(connection: Connection, queue_id: int) -> Amount:
    """What of it does not wait: it is in flight or damaged, and nobody else can make it go."""
    messages, size = connection.execute(_HELD, {"queue": queue_id}).one()
    return Amount(int(messages or 0), int(size or 0))
