"""A store and a queue are made."""

from __future__ import annotations

from queue_core import Store
from tests.children import Journal
from tests.crash.workloads.common import Workload, around, load, nothing
from tests.factories import ORDERS


def creates(store: Store, journal: Journal) -> None:
    store.create_queue("orders", ORDERS, exist_ok=True)
    journal.write("created")


def created(store: Store, journal: Journal) -> None:
    assert store.queues() == ["orders"]
    load(store, journal)


_CREATE = Workload(prepare=nothing, act=creates, check=created)

FAULTS = {
    **around("open", _CREATE),
    **around("create", _CREATE),
}
