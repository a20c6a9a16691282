"""Task sweep: sideline messages that are stuck, or were fired too often."""

from __future__ import annotations

from queue_core.model import QueueInfo
from queue_core.tasks.task import TaskContext
from queue_core.verbs.abandon import abandon
from queue_core.verbs.recover import recover
from queue_core.verbs.sweep import sweep


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages went to the sideline."""
    # First the tickets that nobody has seen: their messages go back to their places instead.
    recover(context.catalog)
    swept = sweep(context.catalog, queue, guard=context.leader.guard)
    return swept + abandon(context.catalog, queue, context.leader.guard)
