"""Messages that have been in flight for longer than the setting ``sweep_after`` of their queue.

No heartbeat is needed for them, so it also finds those of a process that sent none, and is dead.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from sqlalchemy import Connection, and_, func, or_, select

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import IN_FLIGHT, WITH_TICKET
from queue_core.catalog.tables import slices
from queue_core.values.model import Magazine
from queue_core.values.settings import QueueSettings


class Stuck(NamedTuple):
    """Stuck messages of one queue."""

    messages: int
    #: When the first of them was fired, in microseconds since 1970.
    fired_at: int


def read(
    connection: Connection, now: int, queues: Mapping[int, QueueSettings], *, everything: bool
) -> dict[int, Stuck]:
    """
    Return the stuck messages of queues that have some, by the ids of the queues.

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
            found[queue_id] = Stuck(int(messages), fired_at)
    return found
