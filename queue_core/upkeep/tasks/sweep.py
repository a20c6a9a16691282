"""Task sweep: sideline messages that are stuck, or were fired too often."""

from __future__ import annotations

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.conditions import IN_FLIGHT, in_magazines
from queue_core.upkeep.tasks.task import TaskContext
from queue_core.values.model import Magazine, QueueInfo
from queue_core.verbs.abandon import abandon
from queue_core.verbs.recover import recover
from queue_core.verbs.sweep import sweep


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages went to the sideline."""
    # First the tickets that no consumer has read: their messages go back to their places instead.
    recover(context.catalog)
    swept = sweep(context.catalog, queue, guard=context.leader.guard)
    return swept + abandon(context.catalog, queue, context.leader.guard)


def find_queues(catalog: Catalog) -> list[QueueInfo]:
    """
    Return the queues of the store that a sweep may change.

    They have messages in flight, or a bound of deliveries. Other queues, perhaps a thousand, cost
    one look at an index and no transaction.
    """
    with catalog.read() as connection:
        working = amounts.queues_with(connection, None, *in_magazines([*Magazine]), *IN_FLIGHT)
        return [
            queue
            for queue in queues.find_all(connection)
            if queue.id in working or queue.settings.max_deliveries is not None
        ]
