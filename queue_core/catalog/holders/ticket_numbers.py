"""Numbers of tickets that a process has reserved, and not used yet.

A firing whose messages are handed out at once needs a number that its consumer never had, and
leaves no row. With each number, it would change the row of the consumer, of which PostgreSQL keeps
all versions while a transaction is open. So a firing reserves a block of numbers for those that
follow. They are lost when the process ends.

A block is kept once its reservation is committed, and used as long as ``last_ticket`` is its end:
nobody else has reserved numbers since. Firings of a consumer lock its row, so one at a time takes a
number. A forked process has no blocks, and a transaction of a caller, which may be rolled back
later, reserves none.
"""

from __future__ import annotations

import os

from queue_core.values.model import Consumer

#: How many numbers a firing reserves.
BLOCK = 64


class TicketNumbers:
    """The blocks of a catalog. Threads share them."""

    def __init__(self) -> None:
        self._left: dict[tuple[int, Consumer], range] = {}

    def next(self, consumer: Consumer, last_ticket: int, acknowledged: int) -> int | None:
        """Return the next number by the row of a consumer, which is locked; None without one."""
        key = os.getpid(), consumer
        left = self._left.pop(key, range(0))
        # Those that are acknowledged count as tickets of an earlier life.
        if not left or left.stop - 1 != last_ticket or left.start <= acknowledged:
            return None
        self._left[key] = left[1:]
        return left.start

    def keep(self, consumer: Consumer, block: range) -> None:
        """Keep a block whose reservation is committed."""
        self._left[os.getpid(), consumer] = block
