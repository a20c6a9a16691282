"""Wait for a turn at a queue, first come first served, across processes.

Changes: only the waiter's own row; no transaction is open while it waits. It looks when the catalog
has changed, but less and less often while the changes do not concern it. A waiter in a busy store
thus costs the catalog at most five small transactions a second; the second one in a line of firings
looks after each change. Crash: the waiter's row stays, and the others skip it once it has not been
renewed for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, suppress
from math import inf

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import waiters
from queue_core.catalog.poller import Poller, Watch
from queue_core.errors import CatalogUnavailable
from queue_core.values.model import QueueInfo

#: Looks at the queue. Returns a summary, which is compared with the last one, and whether to try.
Probe = Callable[[Connection], tuple[Hashable, bool]]


class WaitLine(AbstractContextManager["WaitLine"]):
    """A waiter in one of the lines of a queue, until the block ends."""

    def __init__(
        self, catalog: Catalog, queue: QueueInfo, side: str, timeout: float | None
    ) -> None:
        self._catalog = catalog
        self._queue = queue
        self._side = side
        self._end = inf if timeout is None else time.monotonic() + timeout
        self._is_load = side == waiters.LOAD
        # The limit of a load also limits its waits for locks.
        self._seconds = timeout if self._is_load else None
        # When the line moves, the next turn comes within milliseconds. When it stands, three looks
        # a second are cheap, and a dead waiter at its head is noticed within a second.
        self._poller = Poller(Watch(catalog, lambda: queue.sources), first=0.005, last=0.3, blind=1)
        self._seen: Hashable = None
        self._renewed = 0.0
        self._tried = False
        #: Its number among the waiters.
        self.waiter = 0
        #: Whether it has left the line, within another transaction.
        self.left = False

    def __enter__(self) -> WaitLine:
        self._join()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if not self.left:
                # A waiter that cannot leave counts as dead after a while.
                with suppress(CatalogUnavailable):
                    self._catalog.write(
                        lambda connection: waiters.leave(connection, self.waiter),
                        seconds=self._seconds,
                    )
        finally:
            self._poller.close()

    def wait(self, look: Probe, *, first: bool = True) -> bool:
        """
        Wait until *look* says to try; by default, until this waiter is first in line.

        Return False when the time is up. A second call means that the attempt failed.
        """
        if self._tried and not self._rest("tried"):
            return False
        while True:
            with self._catalog.read() as connection:
                ahead = 0
                if first:
                    ahead = waiters.ahead(connection, self._queue.id, self._side, self.waiter)
                seen, ready = (None, False) if ahead else look(connection)
            if ready:
                self._tried = True
                return True
            if not self._rest((ahead, seen)):
                return False

    def _rest(self, seen: Hashable) -> bool:
        """Wait until it is time for the next look; False when there is no time left."""
        self._poller.looked(new=seen != self._seen)
        self._seen = seen
        if time.monotonic() >= self._end:
            return False
        self._poller.wait(self._end)
        self._poller.pause(self._end)
        if time.monotonic() - self._renewed > waiters.ALIVE_SECONDS / 4:
            self._renewed = time.monotonic()
            if not self._catalog.write(
                lambda connection: waiters.renew(connection, self.waiter), seconds=self._seconds
            ):
                # This process paused for so long that it counted as dead.
                self._join()
        return True

    def _join(self) -> None:
        self._renewed = time.monotonic()
        self.waiter = self._catalog.write(
            lambda connection: waiters.join(connection, self._queue.id, self._side),
            grows=self._is_load,
            seconds=self._seconds,
        )
