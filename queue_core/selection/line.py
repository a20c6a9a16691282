"""The line of waiting firings: whether one may go before those that wait.

A firing that finds nothing joins the line, and none overtakes an earlier one. But if all messages
had to wait until those in line have woken up, one after another, a queue with many consumers would
be as slow as its slowest one. So a firing goes at once if everybody before it could have as much as
it takes. It does not if the order of the messages would show it: if all are in one shard, or if
they are fired by rank.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog.slices import shard_locks
from queue_core.selection.request import FireRequest

#: The least number of messages that each firing counts for.
LEAST = 10


def is_enough(connection: Connection, request: FireRequest, ahead: int) -> bool:
    """Return whether there is enough for a firing and those *ahead* of it, by the counters."""
    if request.max_messages is None or request.terms.fair:
        return False
    backlog = shard_locks.backlog(connection, *request.where)
    waiting = [shard.waiting for shard in backlog.values() if shard.waiting > 0]
    return len(waiting) > 1 and sum(waiting) >= (ahead + 1) * max(request.max_messages, LEAST)
