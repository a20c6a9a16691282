"""Task trim: remove from the logs of queues what their setting `log` no longer keeps.

Subscriptions that exceed their budgets are stopped first, since the log waits for the others.
"""

from __future__ import annotations

from collections.abc import Sequence

from queue_core.catalog import snapshots
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.records import lags
from queue_core.catalog.slices import logs
from queue_core.upkeep.tasks.task import TaskContext
from queue_core.values.model import QueueInfo
from queue_core.verbs.detach import stop_late
from queue_core.verbs.trim import trim


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages were removed from the log."""
    stop_late(context.catalog, queue)
    return trim(context.catalog, queue)


def with_work(catalog: Catalog, some: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the queues with ended snapshots, too large logs, or readers that are too late."""
    logged = {queue.id for queue in some if queue.settings.log is not None}
    if logged:
        clock.check(catalog)
    with catalog.read() as connection:
        over = snapshots.ended(connection, [queue.id for queue in some]).values()
        return [
            queue
            for queue in some
            if queue.id in over
            or (
                queue.id in logged
                and (
                    lags.late(connection, queue.id)
                    or logs.find_old(connection, queue.id, queue.settings.log_limits, 1).upto
                )
            )
        ]
