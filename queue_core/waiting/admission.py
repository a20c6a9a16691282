"""Admission: attempt a load at once, and again from the waiting line while the queue is full.

Changes: only the line. Each attempt is a transaction of the caller, which checks the capacity.
Until one succeeds, the staged segments are in the storage, and no consumer sees them. Crash while a
load waits: vacuum removes its files, which no slice names; a streaming query stages its batch again
and waits again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import waiters
from queue_core.catalog.identity import clock
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.conditions import DAMAGED, in_queue
from queue_core.catalog.slices.usage import read_usage
from queue_core.errors import CatalogForbidden, DamagedSegment, IgnisError, QueueFull
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.model import Magazine, QueueInfo, Staged
from queue_core.verbs.capacity.bounds import CapacityExceeded, OnFull, amount_of, can_ever_fit, fits
from queue_core.verbs.capacity.wait_line import WaitLine

Result = TypeVar("Result")

#: Seconds between two attempts of the first in line to expire messages, which frees capacity.
EXPIRE_SECONDS = 5.0


@dataclass(slots=True)
class Admission:
    """
    The attempts of one load, until one of them succeeds.

    `run` waits before each attempt but the first, as *when_full* and the queue's settings say.
    """

    catalog: Catalog
    storage: Storage
    queue: QueueInfo
    #: Returns the segments as they are to be loaded.
    staged: Callable[[], Sequence[Staged]]
    when_full: OnFull
    #: When it has tried last to expire messages.
    expired_at: float = field(default=0.0, init=False)

    def run(self, load: Callable[[int | None], Result]) -> Result:
        """
        Return the result of the first attempt that does not raise `CapacityExceeded`.

        *load* is called with the load's number in the waiting line, or None outside of it. Raises
        what *load* raises, such as the `CapacityExceeded` of another queue; `QueueFull` instead of
        another attempt, `QueueDeactivated`, and what `expire` raises.
        """
        # Before all numbers of the line.
        number = 0 if self.when_full.overtakes else None
        try:
            return load(number)
        except CapacityExceeded as error:
            refused = self._of_here(error)
        if refused.can_wait and self._expire():
            try:
                return load(number)
            except CapacityExceeded as error:
                refused = self._of_here(error)
        if refused.can_wait and self._blocks():
            timeout = self.when_full.timeout
            with WaitLine(self.catalog, self.queue, waiters.LOAD, timeout) as line:
                faults.point("load.waiting")
                while refused.can_wait and line.wait(self._may_fit, first=number is None):
                    if self._is_expiry_due():
                        self._expire()
                    try:
                        result = load(line.waiter if number is None else number)
                    except CapacityExceeded as error:
                        refused = self._of_here(error)
                    else:
                        line.left = number is None
                        return result
        full = QueueFull(f"{refused}{self._of_damaged() if refused.can_wait else ''}")
        full.may_fit = refused.can_wait and self._blocks()
        raise full

    def _of_here(self, error: CapacityExceeded) -> CapacityExceeded:
        """Return an error of this queue, and raise that of another one."""
        if error.queue_id != self.queue.id:
            raise error
        return error

    def _of_damaged(self) -> str:
        """Return how to get room from messages that no consumer can take; nothing without any."""
        spoiled = (*in_queue(self.queue.id, Magazine.MAIN), *DAMAGED)
        try:
            with self.catalog.read() as connection:
                count = amounts.messages(connection, *spoiled)
        except IgnisError:
            # Such as the database role of a producer, which cannot see it.
            return ""
        its = f"{count} of its messages cannot be read; restore their files, and run: ignis repair"
        return f"; {its} {self.queue.name}" if count else ""

    def _blocks(self) -> bool:
        overflow = self.when_full.overflow or self.queue.settings.overflow
        return overflow == "block" and self.when_full.timeout != 0

    def _expire(self) -> int:
        try:
            if self.catalog.write(clock.look) is not None:
                # The clock may have jumped, so that young messages seem old.
                return 0
            # Not at the top: a load waits for imports, and few queues are bounded.
            from queue_core.verbs.expire import expire
            from queue_core.verbs.quarantine import past_damage, quarantining

            def work() -> int:
                with quarantining(self.catalog, self.storage):
                    return expire(self.catalog, self.storage.uri, self.queue)

            return past_damage(work)
        except (CatalogForbidden, DamagedSegment):
            # The database role of a producer may neither look at the clock nor expire messages. And
            # what can be neither read nor set apart makes no room.
            return 0
        finally:
            self.expired_at = time.monotonic()

    def _is_expiry_due(self) -> bool:
        return time.monotonic() > self.expired_at + EXPIRE_SECONDS

    def _may_fit(self, connection: Connection) -> tuple[Hashable, bool]:
        """Return what the queue holds, and whether an attempt is worthwhile now."""
        now = queues.as_it_is(connection, self.queue)
        if now.stored_settings != self.queue.stored_settings:
            # The attempt notices that the settings changed.
            return None, True
        usage, load = read_usage(connection, self.queue), amount_of(self.staged())
        is_decided = fits(usage, load) or not can_ever_fit(usage, load)
        return usage.held, is_decided or self._is_expiry_due()
