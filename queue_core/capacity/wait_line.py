"""Line: waiting for one's turn at a queue, in the order of coming, across processes.

Changes: a waiter's own row, and nothing else; no transaction is open while it waits. It looks when
the catalog has changed, ever more seldom while that has nothing to do with it, so that a waiter
among busy others costs the catalog at most five small transactions a second. Crash: the waiter's
row stays, and is passed over when it has not said for a while that it lives.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, suppress
from math import inf

from sqlalchemy import Connection

from queue_core.catalog import waiters
from queue_core.catalog.database import Catalog
from queue_core.catalog.notifications import Watch
from queue_core.errors import CatalogUnavailable
from queue_core.model import QueueInfo

#: Seconds between two looks: after one that found something new, and at most.
FIRST_PAUSE, LAST_PAUSE = 0.005, 0.3
#: Seconds after which a waiter looks again, even if nobody has said that anything changed.
BLIND_SECONDS = 1.0

#: Looks at the queue: what it has seen, to be compared with the last time, and whether to try now.
Probe = Callable[[Connection], tuple[Hashable, bool]]


class WaitLine(AbstractContextManager["WaitLine"]):
    """A place in one of the lines of a queue, until the block ends."""

    def __init__(
        self, catalog: Catalog, queue: QueueInfo, side: str, timeout: float | None
    ) -> None:
        self._catalog = catalog
        self._queue = queue
        self._side = side
        self._end = inf if timeout is None else time.monotonic() + timeout
        self._watch = Watch(catalog)
        self._seen: Hashable = None
        self._pause = FIRST_PAUSE
        self._renewed = 0.0
        self._tried = False
        #: Its number among those who wait.
        self.waiter = 0
        #: Whether it has left the line, within another transaction.
        self.left = False

    def __enter__(self) -> WaitLine:
        self._join()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self.left:
                # Who cannot say so is taken for dead after a while.
                with suppress(CatalogUnavailable):
                    self._catalog.write(lambda connection: waiters.leave(connection, self.waiter))
        finally:
            self._watch.close()

    def wait(self, look: Probe, *, first: bool = True) -> bool:
        """
        Wait until *look* says so, and one is the *first* in line; False when time is up.

        Called again, it takes it that the caller has tried in vain.
        """
        if self._tried and not self._rest("tried", time.monotonic()):
            return False
        while True:
            looked_at = time.monotonic()
            with self._catalog.read() as connection:
                ahead = self._ahead(connection) if first else 0
                seen, ready = (None, False) if ahead else look(connection)
            if ready:
                self._tried = True
                return True
            if not self._rest((ahead, seen), looked_at):
                return False

    def _rest(self, seen: Hashable, looked_at: float) -> bool:
        """Until it is time for the next look; False when there is no time left."""
        self._pause = FIRST_PAUSE if seen != self._seen else min(2 * self._pause, LAST_PAUSE)
        self._seen = seen
        left = self._end - time.monotonic()
        if left <= 0:
            return False
        self._watch.wait(min(left, BLIND_SECONDS))
        now = time.monotonic()
        time.sleep(max(min(looked_at + self._pause, self._end) - now, 0.0))
        if now - self._renewed > waiters.ALIVE_SECONDS / 4:
            self._renew()
        return True

    def _ahead(self, connection: Connection) -> int:
        return waiters.ahead(connection, self._queue.id, self._side, self.waiter)

    def _join(self) -> None:
        self._renewed = time.monotonic()
        self.waiter = self._catalog.write(
            lambda connection: waiters.join(connection, self._queue.id, self._side)
        )

    def _renew(self) -> None:
        self._renewed = time.monotonic()
        if not self._catalog.write(lambda connection: waiters.renew(connection, self.waiter)):
            # This process stood still for so long that it was taken for dead.
            self._join()
