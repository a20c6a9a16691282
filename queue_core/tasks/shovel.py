"""Task shovel: move sidelined messages of a queue back to main."""

from __future__ import annotations

from queue_core.model import QueueInfo
from queue_core.tasks.task import TaskContext
from queue_core.verbs.shovel import shovel


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages came back."""
    return shovel(context.catalog, queue, context.shovelful(queue))
