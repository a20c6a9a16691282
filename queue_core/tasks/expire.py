"""Task expire: retire a queue that is too old, and remove expired messages."""

from __future__ import annotations

from queue_core.model import QueueInfo
from queue_core.tasks.retirement import retire
from queue_core.tasks.task import TaskContext
from queue_core.verbs.expire import expire


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages expired."""
    retire(context.catalog, queue)
    return expire(context.catalog, context.storage.uri, queue)
