"""Wait: a firing that finds nothing waits for messages, behind those that wait already.

Changes: the line, and what a firing changes. Whoever asks for certain messages, or for those of the
sideline, stands in no line: what the first in it does not want would wait for nothing. Nor does who
may not fire now, since others have a priority or a claim: it waits beside the line.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

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
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, wanted: FireRequest, timeout: float
) -> Ticket | None:
    """Fire, or wait for at most *timeout* seconds until there is something; None when not."""
    in_line = wanted.selection is None and wanted.magazine is Magazine.MAIN
    ticket = fire(catalog, consumer, wanted, waiter=waiters.LAST if in_line else None)
    if ticket is not None or timeout <= 0:
        return ticket
    end = time.monotonic() + timeout
    if in_line:
        try:
            return _in_line(catalog, queue, consumer, wanted, end)
        except _HeldBack:
            pass
    return _beside(catalog, consumer, wanted, end)


class _HeldBack(Exception):
    """Others go first, whoever came first."""


def _in_line(
    catalog: Catalog, queue: QueueInfo, consumer: Consumer, wanted: FireRequest, end: float
) -> Ticket | None:
    def look(connection: Connection) -> tuple[Hashable, bool]:
        if not interests.open_to(connection, consumer, wanted.queue_ids):
            raise _HeldBack
        return None, anything(connection, wanted)

    with WaitLine(catalog, queue, waiters.FIRE, end - time.monotonic()) as line:
        while line.wait(look):
            ticket = fire(catalog, consumer, wanted, waiter=line.waiter)
            if ticket is not None:
                line.left = True
                return ticket
    return None


def _beside(catalog: Catalog, consumer: Consumer, wanted: FireRequest, end: float) -> Ticket | None:
    # As in the line; but messages that were held become due without a change, so look twice a
    # second in any case.
    with Poller(Watch(catalog), first=0.005, last=0.3, blind=0.5) as poller:
        while True:
            due = poller.wait(end)
            poller.pause(end)
            ticket = fire(catalog, consumer, wanted)
            if ticket is not None or time.monotonic() >= end:
                return ticket
            # After a quiet time the next change is news.
            poller.looked(new=due is not Due.CHANGE)
