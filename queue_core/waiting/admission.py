"""Admission: attempt a load at once, and again from the waiting line while the queue is full.

Changes: only the line. Each attempt is a transaction of the caller, which checks the capacity.
Until one succeeds, the staged segments are in the storage, and no consumer sees them. Crash while a
load waits: vacuum removes its files, which no slice names; a streaming query stages its batch again
and waits again.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager
from types import TracebackType

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import waiters
from queue_core.catalog.identity import clock
from queue_core.catalog.slices.usage import read_usage
from queue_core.errors import CatalogForbidden, QueueFull
from queue_core.support import faults
from queue_core.values.model import QueueInfo, Staged
from queue_core.verbs.capacity.bounds import (
    CapacityExceeded,
    OnFull,
    amount_of,
    can_ever_fit,
    fits,
)
from queue_core.verbs.capacity.wait_line import WaitLine

#: Seconds between two attempts of the first in line to expire messages, which frees capacity.
EXPIRE_SECONDS = 5.0


class Attempt(AbstractContextManager["Attempt"]):
    """One attempt to load. Its block absorbs `CapacityExceeded`; the next attempt follows."""

    def __init__(self, admission: Admission, waiter: int | None = None) -> None:
        self._admission = admission
        #: The load's number in the waiting line; None outside of the line.
        self.waiter = waiter
        #: Why the load did not fit; None if it did.
        self.refused: CapacityExceeded | None = None
        self.succeeded = False

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        if isinstance(error, CapacityExceeded):
            self.refused = error
            return True
        self.succeeded = error is None
        self._admission.close()
        return False


class Admission:
    """
    The attempts of one load, until one of them succeeds.

        for attempt in Admission(catalog, storage_uri, queue, staged, when_full):
            with attempt:
                return commit_load(catalog, ...)  # raises CapacityExceeded

    Iterating waits before each attempt, as *when_full* and the queue's settings say. It raises
    `QueueFull` instead of another attempt, `QueueDeactivated`, and what `expire` raises.
    """

    def __init__(
        self,
        catalog: Catalog,
        storage_uri: str,
        queue: QueueInfo,
        staged: Sequence[Staged],
        when_full: OnFull,
    ) -> None:
        self._catalog = catalog
        self._storage_uri = storage_uri
        self._queue = queue
        self._load = amount_of(staged)
        self._when_full = when_full
        self._expired_at = 0.0
        self._attempts = self._run()

    def __iter__(self) -> Iterator[Attempt]:
        return self._attempts

    def close(self) -> None:
        """Leave the waiting line; no attempt follows."""
        self._attempts.close()

    def _run(self) -> Generator[Attempt, None, None]:
        attempt = Attempt(self)
        yield attempt
        if self._can_wait(attempt) and self._expire():
            attempt = Attempt(self)
            yield attempt
        if self._can_wait(attempt) and self._blocks():
            with WaitLine(
                self._catalog, self._queue, waiters.LOAD, self._when_full.timeout
            ) as line:
                faults.point("load.waiting")
                while self._can_wait(attempt) and line.wait(self._may_fit):
                    if self._is_expiry_due():
                        self._expire()
                    attempt = Attempt(self, line.waiter)
                    try:
                        yield attempt
                    finally:
                        line.left = attempt.succeeded
        raise QueueFull(str(attempt.refused))

    def _can_wait(self, attempt: Attempt) -> bool:
        return attempt.refused is not None and attempt.refused.can_wait

    def _blocks(self) -> bool:
        overflow = self._when_full.overflow or self._queue.settings.overflow
        return overflow == "block" and self._when_full.timeout != 0

    def _expire(self) -> int:
        try:
            if self._catalog.write(clock.look) is not None:
                # The clock may have jumped, so that young messages seem old.
                return False
            # Not at the top: a load waits for imports, and few queues are bounded.
            from queue_core.verbs.expire import expire

            expired = expire(self._catalog, self._storage_uri, self._queue)
        except CatalogForbidden:
            # The database role of a producer may neither look at the clock nor expire messages.
            expired = 0
        self._expired_at = time.monotonic()
        return expired

    def _is_expiry_due(self) -> bool:
        return time.monotonic() > self._expired_at + EXPIRE_SECONDS

    def _may_fit(self, connection: Connection) -> tuple[Hashable, bool]:
        """Return what the queue holds, and whether an attempt is worthwhile now."""
        now = queues.as_it_is(connection, self._queue)
        if now.stored_settings != self._queue.stored_settings:
            # The attempt notices that the settings changed.
            return None, True
        usage = read_usage(connection, self._queue)
        is_decided = fits(usage, self._load) or not can_ever_fit(usage, self._load)
        return usage.held, is_decided or self._is_expiry_due()
