"""The line of waiting firings: whether one may go before those that wait.

A firing that finds nothing joins the line, and none overtakes an earlier one. But if all messages
had to wait until those in line have woken up, one after another, a queue with many consumers would
be as slow as its slowest one. So a firing goes at once if everybody before it could have as much as
it takes. It does not if the order of the messages would show it: if all are in one shard, or if
they are fired by rank. Nor does the first in line keep others from messages that it does not take:
its process may have been killed.
"""

from __future__ import annotations

import time
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from queue_core.catalog.holders import waiters
from queue_core.catalog.slices import shard_locks
from queue_core.selection.request import FireRequest

#: The least number of messages that each firing counts for.
LEAST = 10
#: Seconds for which others leave messages to the first in line. A living one takes them in
#: milliseconds.
COURTESY_SECONDS = 0.5
#: The most signs of life that a process remembers.
_MOST = 1024

#: Signs of life of firings that were first in line while messages waited, and when this process
#: first saw each sign. After a new sign, the firing has its full time again.
_signs: WeakKeyDictionary[Engine, dict[tuple[int, int], float]] = WeakKeyDictionary()


def may_pass(connection: Connection, request: FireRequest, ahead: int) -> bool:
    """Return whether a firing that sees messages may go before the *ahead* that wait."""
    return is_enough(connection, request, ahead) or _is_late(connection, request)


def is_enough(connection: Connection, request: FireRequest, ahead: int) -> bool:
    """Return whether there is enough for a firing and those *ahead* of it, by the counters."""
    if request.max_messages is None or request.terms.fair:
        return False
    backlog = shard_locks.backlog(connection, *request.where)
    waiting = [shard.waiting for shard in backlog.values() if shard.waiting > 0]
    return len(waiting) > 1 and sum(waiting) >= (ahead + 1) * max(request.max_messages, LEAST)


def _is_late(connection: Connection, request: FireRequest) -> bool:
    """Return whether the first in line has let messages lie for `COURTESY_SECONDS`."""
    first = waiters.first_to_fire(connection, request.queue_ids)
    if first is None:
        return True
    signs = _signs.setdefault(connection.engine, {})
    if first not in signs and len(signs) >= _MOST:
        signs.clear()
    now = time.monotonic()
    return now - signs.setdefault(first, now) >= COURTESY_SECONDS
