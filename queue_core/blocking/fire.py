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
from functools import partial
from math import inf

from sqlalchemy import Connection

from queue_core.capacity.wait_line import WaitLine
from queue_core.catalog import interests, queues, waiters
from queue_core.catalog.database import Catalog
from queue_core.catalog.notifications import Watch
from queue_core.catalog.poller import Due, Poller
from queue_core.errors import IgnisError
from queue_core.model import Consumer, Magazine, QueueInfo, Ticket
from queue_core.selection.acquire import anything
from queue_core.selection.request import FireRequest
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
                now = queues.as_it_is(connection, queue)
            if now is queue:
                raise
            # It may make sense by the present columns and settings.
            queue = now
            continue
        try:
            return _fire_or_wait(catalog, queue, who(), request, end), request
        except _Changed as changed:
            queue = changed.queue


def _fire_or_wait(
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, request: FireRequest, end: float
) -> Ticket | None:
    takes_any = request.selection is None and request.magazine is Magazine.MAIN
    # The first in line would wait for tokens.
    uses_line = takes_any and request.limits is None
    waiter = waiters.LAST if uses_line else None
    ticket = fire(catalog, consumer, request, waiter=waiter, check=partial(_check, queue))
    if ticket is not None or time.monotonic() >= end:
        return ticket
    if uses_line:
        with suppress(_HeldBack):
            return _in_line(catalog, queue, consumer, request, end)
    return _beside(catalog, queue, consumer, request, end)


class _HeldBack(Exception):
    """Other consumers go first, or the queue is paused; the place in the line does not matter."""


class _Changed(Exception):
    """The queue has other settings or columns than those of the request."""

    def __init__(self, queue: QueueInfo) -> None:
        super().__init__()
        #: The queue as it is now.
        self.queue = queue


def _check(queue: QueueInfo, connection: Connection) -> None:
    now = queues.as_it_is(connection, queue)
    if now is not queue:
        raise _Changed(now)


def _in_line(
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, request: FireRequest, end: float
) -> Ticket | None:
    def has_messages(connection: Connection) -> tuple[Hashable, bool]:
        _check(queue, connection)
        if not interests.open_to(
            connection, consumer, request.queue_ids, even_if_paused=request.even_if_paused
        ):
            raise _HeldBack
        return None, anything(connection, request)

    with WaitLine(catalog, queue, waiters.FIRE, end - time.monotonic()) as line:
        while line.wait(has_messages):
            ticket = fire(catalog, consumer, request, waiter=line.waiter)
            if ticket is not None:
                line.left = True
                return ticket
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
            ticket = fire(catalog, consumer, request, check=partial(_check, queue))
            if ticket is not None or time.monotonic() >= end:
                return ticket
            # After a quiet time, look again at the next change.
            refused_for = request.refused_for
            blind = None if refused_for is None else min(refused_for, SETTINGS_SECONDS)
            poller.looked(new=due is not Due.CHANGE, blind=blind)
