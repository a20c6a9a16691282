"""Numbers of tickets that a process has reserved, and not used yet.

A firing whose messages are handed out at once needs a number that its consumer never had, and
leaves no row. With each number, it would change the row of the consumer, of which PostgreSQL keeps
all versions while a transaction is open. So a firing reserves a block of numbers for those that
follow. They are lost when the process ends.

A block is used as long as ``last_ticket`` is its end. Firings of a consumer lock its row, so there
is no other: a reservation that was rolled back, that of another process, a ticket with a row and a
restored catalog all leave another end. A forked process has no blocks.
"""

from __future__ import annotations

import os
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from queue_core.catalog.holders.consumers import Life, next_ticket
from queue_core.values.model import Consumer

#: How many numbers a firing reserves.
BLOCK = 64

_left: WeakKeyDictionary[Engine, dict[Consumer, range]] = WeakKeyDictionary()
os.register_at_fork(after_in_child=_left.clear)


def next_number(connection: Connection, consumer: Consumer, locked: Life) -> tuple[int, int]:
    """Return the next number of a consumer whose row is locked, and the time."""
    blocks = _left.setdefault(connection.engine, {})
    left = blocks.pop(consumer, range(0))
    # Those that are acknowledged count as tickets of an earlier life.
    if left and left.stop - 1 == locked.last_ticket and left.start > locked.acknowledged:
        at = locked.now()
    else:
        last, at = next_ticket(connection, consumer, BLOCK)
        left = range(last - BLOCK + 1, last + 1)
    blocks[consumer] = left[1:]
    return left.start, at
