"""Tickets are acknowledged or given back, as a streaming query does."""

from __future__ import annotations

from queue_core import Store
from queue_core.selection.request import FireRequest
from queue_core.values.model import State, TicketRange
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.fire import fire
from queue_core.verbs.read_tickets import read_tickets
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import (
    MANY,
    Workload,
    around,
    everything_waits,
    prepared,
    the_queue,
)


def plans_tickets(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    queue, query = the_queue(store), store.consumer("query", beats=True)
    wanted = FireRequest(queue_ids=(queue.info.id,), max_messages=MANY // 4)
    for number in (1, 2):
        ticket = fire(store.catalog, query, wanted, seen=False).ticket
        assert ticket is not None
        assert ticket.number == number
    found = read_tickets(store.catalog, store.storage.uri, [queue.info], TicketRange(query, 0, 2))
    assert len(found) == 2 * (MANY // 4)
    deleted = audit(store).ids(state=State.FIRED)
    journal.write("deleting", ids=sorted(deleted))


def acknowledges(store: Store, journal: Journal) -> None:
    query = store.consumer("query", beats=True)
    for ticket in (1, 2):
        acknowledge(store.catalog, query, ticket, delete=True)


def acknowledged(store: Store, journal: Journal) -> None:
    gone = set(journal.read("deleting")[0]["ids"])
    books = audit(store)
    assert books.deleted == len(gone)
    assert not gone & books.messages.keys()
    assert store.view("consumers").column("acknowledged").to_pylist() == [2]


def fires_unseen(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    queue = the_queue(store)
    wanted = FireRequest(queue_ids=(queue.info.id,), max_messages=MANY // 4)
    for name in ("one", "two"):
        query = store.consumer(name, beats=True)
        assert fire(store.catalog, query, wanted, seen=False).ticket is not None


def recovers(store: Store, journal: Journal) -> None:
    store.admin.recover(dead_after=0)


_ACKNOWLEDGE = Workload(prepare=plans_tickets, act=acknowledges, check=acknowledged)
_RECOVER = Workload(prepare=fires_unseen, act=recovers, check=everything_waits)

FAULTS = {
    **around("acknowledge", _ACKNOWLEDGE, "", ":2"),
    **around("recover", _RECOVER),
}
