"""Messages are loaded into a queue that has no room, or where the two meet."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

from queue_core import Store
from queue_core.catalog.holders import waiters
from queue_core.errors import QueueFull
from queue_core.segments import stager
from queue_core.values.model import Magazine, State
from queue_core.verbs.capacity.bounds import OnFull
from tests.books import audit, leftover_files
from tests.children import Journal
from tests.crash.workloads.common import FEW, Workload, load, loaded_ids, the_consumer, the_queue
from tests.factories import make_batch, make_queue, make_staged, orders, publish_once

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


def meets_a_thread(store: Store, journal: Journal) -> None:
    """The batch of a query, which a consumer fires; the repeated batch loads nothing."""
    queue = the_queue(store)
    with hurry(), ThreadPoolExecutor() as others:
        firing = others.submit(queue.fire, "all", timeout=2 * TIMEOUT)
        staged = make_staged(queue, orders(FEW))
        batch = make_batch(staged, 7)
        catalog, storage = store.catalog, store.storage
        publish_once(catalog, storage, queue.info, staged, batch, OnFull(timeout=4 * TIMEOUT))
        assert len(firing.result()) in (0, FEW)


def met(store: Store, journal: Journal) -> None:
    """The messages were loaded once, and none waits."""
    assert list(audit(store).messages.values()) == [(Magazine.MAIN, State.FIRED)] * FEW


_FULL = Workload(prepare=fills, act=waits_in_vain, check=nothing_came_in)
_MEET_ONCE = Workload(prepare=a_rendezvous, act=meets_a_thread, check=met)
_MEET = Workload(prepare=a_rendezvous, act=meets_nobody, check=withdrawn, withdraws=True)

FAULTS = {
    "load.waiting": _FULL,
    "load.waiting:1": _MEET,
    "load.offered": _MEET,
    "load.offered:1": _MEET_ONCE,
    "load.before_withdrawal": _MEET,
    "load.withdrawn": _MEET,
}
