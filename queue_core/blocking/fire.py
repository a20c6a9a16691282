"""Fire or wait: a firing that finds no message joins the line of waiting firings.

Changes: the line, and the changes of a firing. Some firings wait beside the line. A firing with a
selector, or from the sideline, does: if it were first in line and wanted none of the messages, the
others would wait in vain. So does a firing that a consumer with a priority or a claim, or a pause,
holds back, and one from a queue with limits, which sleeps until there are tokens.
"""

from __future__ import annotations

import time
from collections.abc import Hashable
from math import inf

from sqlalchemy import Connection

from queue_core.capacity.wait_line import WaitLine
from queue_core.catalog import interests, waiters
from queue_core.catalog.database import Catalog
from queue_core.catalog.notifications import Watch
from queue_core.catalog.poller import Due, Poller
from queue_core.model import Consumer, Magazine, QueueInfo, Ticket
from queue_core.selection.acquire import anything
from queue_core.selection.request import FireRequest
from queue_core.verbs.fire import fire


def fire_or_wait(
    catalog: Catalog,
    queue: QueueInfo,
    consumer: Consumer,
    request: FireRequest,
    timeout: float | None,
) -> Ticket | None:
    """
    Fire, or wait up to *timeout* seconds until there are messages; None if there are none.

    Without a *timeout*, wait until there are.
    """
    takes_any = request.selection is None and request.magazine is Magazine.MAIN
    # The first in line would wait for tokens.
    uses_line = takes_any and request.limits is None
    ticket = fire(catalog, consumer, request, waiter=waiters.LAST if uses_line else None)
    if ticket is not None or (timeout is not None and timeout <= 0):
        return ticket
    end = inf if timeout is None else time.monotonic() + timeout
    if uses_line:
        try:
            return _in_line(catalog, queue, consumer, request, end)
        except _HeldBack:
            pass
    return _beside(catalog, consumer, request, end)


class _HeldBack(Exception):
    """Other consumers go first, or the queue is paused; the place in the line does not matter."""


def _in_line(
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, request: FireRequest, end: float
) -> Ticket | None:
    def has_messages(connection: Connection) -> tuple[Hashable, bool]:
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
    catalog: Catalog, consumer: Consumer, request: FireRequest, end: float
) -> Ticket | None:
    # As in the line. But held messages become due without a change, so look twice a second in any
    # case.
    watch = Watch(catalog, lambda: request.queue_ids)
    with Poller(watch, first=0.005, last=0.3, blind=0.5) as poller:
        while True:
            due = poller.wait(end)
            poller.pause(end)
            ticket = fire(catalog, consumer, request)
            if ticket is not None or time.monotonic() >= end:
                return ticket
            # After a quiet time, look again at the next change.
            blind = request.refused_for
            poller.looked(new=due is not Due.CHANGE, blind=blind)
