"""Task expire: retire a queue that is too old, and remove expired messages."""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.upkeep.tasks.retirement import retire, retiring
from queue_core.upkeep.tasks.task import TaskContext
from queue_core.values.model import QueueInfo
from queue_core.verbs.expire import expire, expiring


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages expired."""
    retire(context.catalog, queue)
    return expire(context.catalog, context.storage.uri, queue, in_parts=not context.asked_for)


def with_work(catalog: Catalog, queues: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the queues that are too old, or may have expired messages; raises as `expire`."""
    clock.check(catalog)
    with catalog.read() as connection:
        chosen = retiring(connection, queues) | expiring(connection, queues)
    return [queue for queue in queues if queue.id in chosen]
