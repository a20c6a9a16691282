"""Fire or wait: a firing that finds no message joins the line of waiting firings.

Changes: the line, and the changes of a firing. Some firings wait beside the line, where they keep
no others waiting: those with a selector or from the sideline, which may want none of the messages;
those that a pause, or a consumer with a priority or a claim, holds back; and those from a queue
with limits, which sleep until there are tokens. Each attempt of a firing that waits uses the
settings of that moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import interests, waiters
from queue_core.catalog.poller import Due, Poller, Watch
from queue_core.errors import ConsumerFenced, IgnisError
from queue_core.selection import line
from queue_core.selection.acquire import anything
from queue_core.selection.fired import Fired
from queue_core.selection.request import FireRequest
from queue_core.selection.suspects import look
from queue_core.values.model import Consumer, Magazine, QueueInfo
from queue_core.verbs.capacity.wait_line import WaitLine
from queue_core.verbs.fire import fire

#: The most seconds without a look at the settings, should a notification be lost.
SETTINGS_SECONDS = 5.0
#: The same without a look at messages, which may be held.
HELD_SECONDS = 0.5


def fire_or_wait(
    catalog: Catalog,
    queue: QueueInfo,
    who: Callable[[], Consumer],
    request_of: Callable[[QueueInfo], FireRequest],
    timeout: float | None,
) -> tuple[Fired, FireRequest]:
    """
    Fire, or wait up to *timeout* seconds until there are messages.

    Without a *timeout*, wait until there are. *request_of* returns the request by the settings that
    the queue has at a moment; the last one is returned too. *who* returns the consumer, and is
    called once the request is known to make sense, since it may register one.
    """
    end = inf if timeout is None else time.monotonic() + timeout
    while True:
        try:
            request = request_of(queue)
        except IgnisError:
            with catalog.read() as connection:
                now = queues.still_there(connection, queue)
            if now is queue:
                raise
            # It may make sense by the present columns and settings.
            queue = now
            continue
        consumer = who()
        try:
            return _Wait(catalog, queue, consumer, request, end).fire(), request
        except queues.QueueChanged as changed:
            queue = changed.queue
        except ConsumerFenced:
            # It waited for a week, and a purge has removed the name that this process had then.
            if who() == consumer:
                raise


class _HeldBack(Exception):
    """Other consumers go first, or the queue is paused; the place in the line does not matter."""


@dataclass(frozen=True, slots=True)
class _Wait:
    """A firing that may wait, by the settings of a queue at one moment."""

    catalog: Catalog
    queue: QueueInfo
    consumer: Consumer
    request: FireRequest
    #: When it ends, by the monotonic clock.
    end: float

    def fire(self) -> Fired:
        """Fire, or wait; return the last attempt. Raises `QueueChanged`."""
        takes_any = self.request.selection is None and self.request.magazine is Magazine.MAIN
        # While the first in line waited for tokens, it would keep the others waiting.
        uses_line = takes_any and not self.request.terms.limits
        fired = self._attempt(waiter=waiters.LAST if uses_line else None, known=self.queue)
        if fired.ticket is not None or time.monotonic() >= self.end:
            return fired
        if uses_line:
            with suppress(_HeldBack):
                return self._in_line(fired)
        return self._beside()

    def _attempt(self, waiter: int | None = None, known: QueueInfo | None = None) -> Fired:
        return fire(self.catalog, self.consumer, self.request, waiter=waiter, known=known)

    def _sees_messages(self, connection: Connection) -> bool:
        """Return whether a firing may find messages."""
        if self.request.must_take_in:
            # It takes in messages of logs before it looks.
            return anything(connection, self.request)
        return look(connection, self.consumer, self.request) is not None

    def _in_line(self, fired: Fired) -> Fired:
        request, trusted = self.request, True

        def may_fire(connection: Connection) -> tuple[Hashable, bool]:
            open_to, ahead, detached = interests.open_to(
                connection,
                self.consumer,
                request.queue_ids,
                even_if_paused=request.even_if_paused,
                known=self.queue,
                waiter=place.waiter,
            )
            if not open_to:
                raise _HeldBack
            sees = self._sees_messages(connection)
            if ahead and not (sees and trusted and line.may_pass(connection, request, ahead)):
                # The first may leave at any change, and all others wait for the second. So its
                # summary is always new, which makes it look soon after each change.
                return object() if ahead == 1 else ahead, False
            # In a detached subscription without messages, the firing raises an error.
            return 0, bool(detached) or sees

        left = self.end - time.monotonic()
        with WaitLine(self.catalog, self.queue, waiters.FIRE, left) as place:
            while place.wait(may_fire, first=False):
                fired = self._attempt(waiter=place.waiter)
                if fired.ticket is not None:
                    place.left = True
                    break
                # The counters may promise messages that cannot be fired.
                trusted = False
        return fired

    def _beside(self) -> Fired:
        # As in the line. But held messages become due without a change, so look twice a second in
        # any case.
        watch = Watch(self.catalog, lambda: self.queue.sources)
        with Poller(watch, first=0.005, last=0.3, blind=HELD_SECONDS) as poller:
            while True:
                due = poller.wait(self.end)
                poller.pause(self.end)
                fired = self._attempt(known=self.queue)
                if fired.ticket is not None or time.monotonic() >= self.end:
                    return fired
                # After a quiet time, look again at the next change.
                opens_in = fired.opens_in
                if opens_in is not None:
                    # A limit of values refuses some, and time may bring others.
                    most = SETTINGS_SECONDS if self.request.selection is None else HELD_SECONDS
                    opens_in = min(opens_in, most)
                poller.looked(new=due is not Due.CHANGE, blind=opens_in)
