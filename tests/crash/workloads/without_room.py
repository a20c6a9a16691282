"""Messages are loaded into a queue that has no room, or where the two meet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from unittest import mock

from queue_core import Store
from queue_core.catalog.holders import waiters
from queue_core.errors import QueueFull
from queue_core.segments import stager
from queue_core.values.model import Magazine, State
from tests.books import audit, leftover_files
from tests.children import Journal
from tests.crash.workloads.common import FEW, Workload, load, loaded_ids, the_consumer, the_queue
from tests.factories import make_queue, orders

#: Seconds in which nothing comes: long enough to join the line, and to offer, in a slow process.
TIMEOUT = 2.0


def fills(store: Store, journal: Journal) -> None:
    """A queue that is full of messages in flight."""
    make_queue(store, max_size=FEW)
    load(store, journal, FEW)
    the_queue(store).fire("all")


@contextlib.contextmanager
def hurry() -> Iterator[None]:
    """A dead waiter does not block the line for long."""
    with mock.patch.object(waiters, "ALIVE_SECONDS", 0.3):
        yield


def waits_in_vain(store: Store, journal: Journal) -> None:
    """Into a file, which is left over when nothing comes of it."""
    with hurry(), mock.patch.object(stager, "INLINE_BYTES", 0), contextlib.suppress(QueueFull):
        the_queue(store).load(orders(FEW), timeout=TIMEOUT)


def nothing_came_in(store: Store, journal: Journal) -> None:
    loaded = loaded_ids(journal)
    assert audit(store).ids() == loaded
    assert len(leftover_files(store)) == 1
    journal.write("deleting", ids=sorted(loaded))
    the_queue(store).delete(sorted(loaded), consumer=the_consumer(store))
    with hurry():
        load(store, journal, FEW)


def meets_nobody(store: Store, journal: Journal) -> None:
    """Offers messages that no consumer fires, and withdraws them."""
    with hurry(), contextlib.suppress(QueueFull):
        the_queue(store).load(orders(FEW), timeout=TIMEOUT)


def withdrawn(store: Store, journal: Journal) -> None:
    """Messages that a dead caller offered wait, and those of a living one are gone."""
    books = audit(store)
    assert len(books.ids(Magazine.MAIN, State.LOADED)) == len(books.ids()) in (0, FEW)
    assert books.deleted + len(books.ids()) in (FEW, 2 * FEW)


def a_rendezvous(store: Store, journal: Journal) -> None:
    make_queue(store, max_size=0)


_FULL = Workload(prepare=fills, act=waits_in_vain, check=nothing_came_in)
_MEET = Workload(prepare=a_rendezvous, act=meets_nobody, check=withdrawn, withdraws=True)

FAULTS = {
    "load.waiting": _FULL,
    "load.waiting:1": _MEET,
    "load.offered": _MEET,
    "load.before_withdrawal": _MEET,
    "load.withdrawn": _MEET,
}
