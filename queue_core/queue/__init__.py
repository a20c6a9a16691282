"""One queue, as users hold it: `Queue`, its other faces, and the opened queue that they share.

May import `watching`, `waiting`, `upkeep` and what is below. Must not decide what a verb does: a
face checks and completes its arguments, and calls one verb.
"""

from queue_core.queue.queue import Queue

__all__ = ["Queue"]
