"""Fire or wait: a firing that finds no message joins the line of waiting firings.

Changes: the line, and the changes of a firing. Some firings wait beside the line. A firing with a
selector, or from the sideline, does: if it were first in line and wanted none of the messages, the
others would wait in vain. So does a firing that a consumer with a priority or a claim, or a pause,
holds back, and one from a queue with limits, which sleeps until there are tokens. A firing that
waits follows changes of the settings: each attempt has a request of the present ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from math import inf

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import interests, waiters
from queue_core.catalog.notifications import Watch
from queue_core.catalog.poller import Due, Poller
from queue_core.errors import IgnisError
from queue_core.selection import line
from queue_core.selection.acquire import anything
from queue_core.selection.request import FireRequest
from queue_core.values.model import Consumer, Magazine, QueueInfo, Ticket
from queue_core.verbs.capacity.wait_line import WaitLine
from queue_core.verbs.fire import fire

#: The most seconds without a look at the settings, should a notification be lost.
SETTINGS_SECONDS = 5.0


def fire_or_wait(
    catalog: Catalog,
    queue: QueueInfo,
    who: Callable[[], Consumer],
    request_of: Callable[[QueueInfo], FireRequest],
    timeout: float | None,
) -> tuple[Ticket | None, FireRequest]:
    """
    Fire, or wait up to *timeout* seconds until there are messages; None if there are none.

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
        try:
            return _fire_or_wait(catalog, queue, who(), request, end), request
        except queues.QueueChanged as changed:
            queue = changed.queue


def _fire_or_wait(
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, request: FireRequest, end: float
) -> Ticket | None:
    takes_any = request.selection is None and request.magazine is Magazine.MAIN
    # The first in line would wait for tokens.
    uses_line = takes_any and request.limits is None
    waiter = waiters.LAST if uses_line else None
    ticket = fire(catalog, consumer, request, waiter=waiter, known=queue)
    if ticket is not None or time.monotonic() >= end:
        return ticket
    if uses_line:
        with suppress(_HeldBack):
            return _in_line(catalog, queue, consumer, request, end)
    return _beside(catalog, queue, consumer, request, end)


class _HeldBack(Exception):
    """Other consumers go first, or the queue is paused; the place in the line does not matter."""


def _in_line(
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, request: FireRequest, end: float
) -> Ticket | None:
    trusted = True

    def may_fire(connection: Connection) -> tuple[Hashable, bool]:
        open_to, ahead = interests.open_to(
            connection,
            consumer,
            request.queue_ids,
            even_if_paused=request.even_if_paused,
            known=queue,
            waiter=place.waiter,
        )
        if not open_to:
            raise _HeldBack
        if ahead and not (trusted and line.is_enough(connection, request, ahead)):
            # The first may leave with any change: all others would wait for a second that sleeps. A
            # summary that is always new lets it look soon after each.
            return object() if ahead == 1 else ahead, False
        return 0, anything(connection, request)

    with WaitLine(catalog, queue, waiters.FIRE, end - time.monotonic()) as place:
        while place.wait(may_fire, first=False):
            ticket = fire(catalog, consumer, request, waiter=place.waiter)
            if ticket is not None:
                place.left = True
                return ticket
            # The counters may promise messages that cannot be fired.
            trusted = False
    return None


def _beside(
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, request: FireRequest, end: float
) -> Ticket | None:
    # As in the line. But held messages become due without a change, so look twice a second in any
    # case.
    watch = Watch(catalog, lambda: request.queue_ids)
    with Poller(watch, first=0.005, last=0.3, blind=0.5) as poller:
        while True:
            due = poller.wait(end)
            poller.pause(end)
            ticket = fire(catalog, consumer, request, known=queue)
            if ticket is not None or time.monotonic() >= end:
                return ticket
            # After a quiet time, look again at the next change.
            refused_for = request.refused_for
            blind = None if refused_for is None else min(refused_for, SETTINGS_SECONDS)
            poller.looked(new=due is not Due.CHANGE, blind=blind)
