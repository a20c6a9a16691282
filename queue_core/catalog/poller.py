"""Decide when a waiting thread looks at the catalog again.

It looks when the catalog has changed, but less and less often while its looks find nothing new. A
waiter in a busy store thus costs the catalog a few small transactions a second. It also looks when
nothing has changed for a while, because there can be work without a change: a held message becomes
due, or a process dies without a report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from enum import Enum
from math import inf

from sqlalchemy.exc import TimeoutError as PoolTimeout

from queue_core.catalog import connections, dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.databases.interface import Listener, QueueIds
from queue_core.errors import CatalogUnavailable
from queue_core.support import interruption

#: Seconds after which a waiting thread looks although nothing has changed, by default.
BLIND_SECONDS = 1.0


class Due(Enum):
    """The reason to look."""

    CHANGE = "the catalog may have changed"
    TIME = "the last look was long ago"
    APPOINTMENT = "the time of `Poller.look_in`"


class Poller(AbstractContextManager["Poller"]):
    """
    The timetable of one waiting thread. A new poller is due at once.

    *first*: seconds to the next look after a look that found something new. The pause doubles with
    each look that finds nothing new, up to *last* seconds. *blind*: seconds after which to look
    although nothing has changed. Without a *listener*, only time counts.
    """

    def __init__(
        self,
        listener: Listener | None,
        *,
        first: float,
        last: float,
        blind: float = BLIND_SECONDS,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._listener = listener
        self._first, self._last, self._blind = first, last, blind
        self._clock, self._sleep = clock, sleep
        self._pause = first
        # The earliest and the latest time of the next look.
        self._earliest = self._latest = -inf
        self._appointment = inf

    def wait(self, until: float) -> Due | None:
        """Wait for a reason to look; None when there is none before *until*."""
        interruption.check()
        latest = min(self._latest, self._appointment)
        left = max(min(until, latest) - self._clock(), 0.0)
        # Ask the listener even when it is time, so that a change that this look sees causes no
        # second look.
        if self._changed(left):
            return Due.CHANGE
        if latest > until:
            return None
        if self._appointment <= latest:
            self._appointment = inf
            return Due.APPOINTMENT
        return Due.TIME

    def pause(self, until: float = inf) -> None:
        """Keep the distance from the last look, but not beyond *until*."""
        left = min(self._earliest, until) - self._clock()
        if left > 0:
            self._sleep(left)

    def looked(self, *, new: bool = False, blind: float | None = None) -> None:
        """Note a look: whether it found anything *new*, and another *blind* time for this once."""
        self._pause = self._first if new else min(2 * self._pause, self._last)
        now = self._clock()
        self._earliest = now + self._pause
        self._latest = now + (self._blind if blind is None else blind)

    def look_at_once(self) -> None:
        """Make the next look due now, because the last one may have left messages."""
        self._earliest = self._latest = -inf

    def look_in(self, seconds: float) -> None:
        """Look in *seconds*, if no change comes first. Any thread may call this."""
        self._appointment = min(self._appointment, self._clock() + seconds)

    def close(self) -> None:
        """Stop listening for changes."""
        if self._listener is not None:
            self._listener.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _changed(self, seconds: float) -> bool:
        if self._listener is not None:
            return self._listener.wait(seconds)
        if seconds > 0:
            self._sleep(seconds)
        return False


class Watch(AbstractContextManager["Watch"]):
    """
    Reports when some queues may have changed; by default, any queues of the catalog.

    One per waiting thread; close it after use.
    """

    def __init__(self, catalog: Catalog, queue_ids: QueueIds | None = None) -> None:
        self._catalog = catalog
        self._queue_ids = queue_ids or (lambda: None)
        self._listener: Listener | None = None
        #: While the server has no connection left: the pauses, and when to try again.
        self._pauses: Iterator[float] | None = None
        self._next = 0.0

    def wait(self, seconds: float) -> bool:
        """
        Wait until the catalog may have changed; False when *seconds* passed without a change.

        The first call returns at once, because the catalog may have changed before, and so does one
        whose connection is lost. Raises `CatalogUnavailable` if none can be opened.
        """
        try:
            if self._listener is None:
                return self._begin(seconds)
            return self._listener.wait(seconds)
        except (self._catalog.engine.dialect.loaded_dbapi.Error, PoolTimeout, OSError) as error:
            if isinstance(error, OSError) and error.errno is None:
                # Of the handler of a signal, such as one that limits the time of a call.
                raise
            is_lost = self._listener is not None
            self.close()
            if is_lost:
                # A notification may be lost with the connection. The next wait opens another.
                return True
            raise CatalogUnavailable(f"{self._catalog!r}: {error}; try again later") from error

    def _begin(self, seconds: float) -> bool:
        """Listen; while the server has no connection left, only time counts."""
        end = time.monotonic() + seconds
        database = dialect.of(self._catalog.engine)
        while True:
            now = time.monotonic()
            if self._pauses is None or now >= self._next:
                try:
                    self._listener = database.listen(self._catalog.engine, self._queue_ids)
                except self._catalog.engine.dialect.loaded_dbapi.Error as error:
                    if not database.errors.is_crowded(error):
                        raise
                    self._pauses = self._pauses or connections.pauses()
                    self._next = now + next(self._pauses)
                else:
                    self._pauses = None
                    return True
            if now >= end:
                return False
            time.sleep(max(min(self._next, end) - now, 0.0))

    def close(self) -> None:
        """Stop listening."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __exit__(self, *_: object) -> None:
        self.close()
