"""Task shovel: move sidelined messages of a queue back to main.

Messages that have a time of their own return then (`queue_core.upkeep.tasks.retries`); this task,
which runs at intervals, also moves the messages without one.
"""

from __future__ import annotations

from dataclasses import replace

from queue_core.upkeep.tasks.task import TaskContext
from queue_core.values.model import QueueInfo
from queue_core.verbs.shovel import shovel


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages came back."""
    shovelful = replace(context.shovelful(queue), early=context.asked_for)
    return shovel(context.catalog, queue, shovelful)
