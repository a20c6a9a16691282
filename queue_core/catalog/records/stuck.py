"""Messages that have been in flight for longer than the setting ``sweep_after`` of their queue.

No heartbeat is needed for them, so it also finds those of a process that sent none, and is dead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from functools import lru_cache
from typing import NamedTuple

from sqlalchemy import Connection, and_, func, or_, select

from queue_core.catalog import dialect, queues
from queue_core.catalog.tables import slices
from queue_core.values.model import Magazine, State
from queue_core.values.settings import QueueSettings


class Stuck(NamedTuple):
    """Stuck messages of one queue."""

    messages: int
    #: When the first of them was fired, in microseconds since 1970.
    fired_at: int


def read(connection: Connection, now: int, only: Collection[int] | None = None) -> dict[int, Stuck]:
    """
    Return the stuck messages of queues that have some, by the ids of the queues.

    *only*: the ids of the queues; None: all.
    """
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for queue in queues.states(connection, only):
        alike[_limits(queue.settings)].append(queue.id)
    database = dialect.of(connection)
    found = {}
    # Few queues have limits of their own.
    for (main, sideline), queue_ids in alike.items():
        query = (
            select(slices.c.queue_id, func.sum(slices.c.count), func.min(slices.c.fired_at))
            .where(
                # The index of tickets has the messages in flight, and no others. All ids are more
                # than 0, and without this SQLite would look through all slices.
                slices.c.consumer_id > 0,
                slices.c.state == int(State.FIRED),
                or_(
                    and_(slices.c.magazine == int(Magazine.MAIN), slices.c.fired_at < now - main),
                    slices.c.fired_at < now - sideline,
                ),
            )
            .group_by(database.not_indexed(slices.c.queue_id))
        )
        if only is not None or len(alike) > 1:
            query = query.where(database.one_of(database.not_indexed(slices.c.queue_id), queue_ids))
        for queue_id, messages, fired_at in connection.execute(query):
            found[queue_id] = Stuck(int(messages), fired_at)
    return found


@lru_cache(maxsize=4096)
def _limits(settings: str) -> tuple[int, int]:
    """Return the ages, in microseconds, at which messages of main and of the sideline are stuck."""
    read = QueueSettings.from_json(settings)
    return int(read.sweep_after * 1e6), int(read.sideline_sweep_after * 1e6)
