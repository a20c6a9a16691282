"""`Sideline`: the sideline of a queue, opened by the name ``{queue}_SIDELINE``."""

from __future__ import annotations

from queue_core.queue.queue import Queue
from queue_core.values.model import Magazine
from queue_core.values.names import SIDELINE_SUFFIX


class Sideline(Queue):
    """
    A queue of which only the sideline is opened. Source: IgnisMQ, the name of the magazine.

    What concerns the whole queue raises `BadOption`: see `OpenedQueue.check_whole_queue`.
    """

    _only = Magazine.SIDELINE

    def __repr__(self) -> str:
        return f"<Sideline {self.name + SIDELINE_SUFFIX!r}, of {self._store!r}>"
