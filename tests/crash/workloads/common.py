"""What workloads are, and what several of them do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

from queue_core import Queue, Store
from queue_core.values.model import Magazine, State
from tests.books import audit
from tests.children import Journal
from tests.factories import make_queue, orders

#: Messages of a load that is inlined, and of one that becomes a file.
FEW, MANY = 20, 3_000

Act = Callable[[Store, Journal], None]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Work that a crash interrupts."""

    #: What must be there before; runs in the test.
    prepare: Act
    #: The work itself; runs in the child, and then once more in the test.
    act: Act
    #: What must hold once it was done again; runs in the test.
    check: Act
    #: Whether the preparation damages a segment.
    spoiled: bool = False
    #: Whether the queue takes and gives nothing afterwards, or is no more.
    ends: bool = False
    #: Whether it takes back what it has loaded.
    withdraws: bool = False


def around(verb: str, workload: Workload, *passages: str) -> dict[str, Workload]:
    """Let a workload die before and after the commit of a verb, by default at the first passage."""
    return {
        f"{verb}.{point}{passage}": workload
        for passage in passages or ("",)
        for point in ("before_commit", "committed")
    }


def loaded_ids(journal: Journal) -> set[int]:
    """The ids of all messages whose load has returned."""
    return {i for entry in journal.read("loaded") for i in entry["ids"]}


def load(store: Store, journal: Journal, count: int = FEW) -> pa.Array:
    """Load into the queue; noted once the load has returned."""
    ids = the_queue(store).load(orders(count))
    journal.write("loaded", ids=ids.to_pylist())
    return ids


def the_queue(store: Store) -> Queue:
    return store.queue("orders")


def the_consumer(store: Store) -> str:
    """The name of the only consumer that there is."""
    (name,) = store.view("consumers").column("consumer").to_pylist()
    return str(name)


def prepared(store: Store, journal: Journal) -> None:
    """A queue with messages in the catalog, and others in a file."""
    make_queue(store, shards=3, key="customer")
    load(store, journal, FEW)
    load(store, journal, MANY)


def empty(store: Store, journal: Journal) -> None:
    make_queue(store, shards=3, key="customer")


def nothing(store: Store, journal: Journal) -> None:
    """No more than the store."""


def fires_all(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    firing = the_queue(store).fire("all", consumer=store.consumer("reader"))
    journal.write("fired", ids=firing.ids.to_pylist())


def everything_waits(store: Store, journal: Journal) -> None:
    books = audit(store)
    assert books.ids(Magazine.MAIN, State.LOADED) == loaded_ids(journal) == books.ids()


def everything_is_aside(store: Store, journal: Journal) -> None:
    books = audit(store)
    assert books.ids(Magazine.SIDELINE, State.LOADED) == loaded_ids(journal) == books.ids()
