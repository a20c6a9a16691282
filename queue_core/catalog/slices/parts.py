"""Parts of a large queue: a side task looks at one part in each round, chosen at random.

So a look that finds nothing costs the same, however many slices wait. By chance, all processes
together look everywhere, also those with short lives, and also in shards that grow meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, select, tuple_

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import WAITING, Position, Rules, in_magazines, in_queue
from queue_core.catalog.tables import queues as queue_rows
from queue_core.catalog.tables import slices
from queue_core.values.model import Magazine, QueueInfo

#: A queue is large if more slices than this wait in one of its magazines.
LARGE = 1 << 14
#: One of so many parts begins at the beginning of its shard.
_EDGE = 8


def large(connection: Connection, queues: Sequence[QueueInfo]) -> set[int]:
    """Return the ids of the queues that are too large to be looked through at once."""
    found: set[int] = set()
    some = dialect.one_of(queue_rows.c.id, [queue.id for queue in queues])
    for magazine in Magazine:
        one_more = (
            select(slices.c.shard)
            .where(
                slices.c.queue_id == queue_rows.c.id,
                *in_magazines([magazine]),
                *WAITING,
            )
            # In the order of an index, or PostgreSQL would read the table.
            .order_by(slices.c.shard, slices.c.position)
            .limit(1)
            .offset(LARGE)
            .scalar_subquery()
        )
        found.update(connection.scalars(select(queue_rows.c.id).where(some, one_more.is_not(None))))
    return found


def random_place(
    connection: Connection,
    queue: QueueInfo,
    magazine: Magazine,
    shards: Sequence[int] | None = None,
) -> Position:
    """
    Return where a part begins: often at the first slice of a shard, which no other reaches.

    The shard is one of *shards*, by default any.
    """
    shard = random.choice(shards or range(queue.shards))
    here = (*_waiting(queue, magazine), slices.c.shard == shard)
    first, last = (
        connection.scalar(select(slices.c.position).where(*here).order_by(at).limit(1))
        for at in (slices.c.position, slices.c.position.desc())
    )
    if first is None or last is None:
        return shard, 0
    return shard, max(first, random.randint(first - (last - first) // _EDGE, last))


def slices_from(
    queue: QueueInfo, magazine: Magazine, begin: Position, count: int, *columns: ColumnElement[Any]
) -> Select[Any]:
    """Return the statement that reads *columns* of the next *count* waiting slices of a place."""
    place = (slices.c.shard, slices.c.position)
    # With a limit, PostgreSQL reads them by the index, and then applies other conditions.
    return (
        select(*columns)
        .where(*_waiting(queue, magazine), tuple_(*place) >= begin)
        .order_by(*place)
        .limit(count)
    )


def oldest_from(
    connection: Connection, queue: QueueInfo, magazine: Magazine, begin: Position, count: int
) -> int | None:
    """Return when the oldest of the next *count* waiting slices of a place was loaded."""
    there = slices_from(queue, magazine, begin, count, slices.c.loaded_at).subquery()
    oldest: int | None = connection.scalar(select(func.min(there.c.loaded_at)))
    return oldest


def _waiting(queue: QueueInfo, magazine: Magazine) -> Rules:
    return (*in_queue(queue.id, magazine), *WAITING)
