"""A store and a queue are made, and a store of an older format is brought up to date."""

from __future__ import annotations

from queue_core import Store
from tests.children import Journal
from tests.crash.workloads.common import (
    Workload,
    everything_waits,
    load,
    nothing,
    prepared,
)
from tests.factories import ORDERS
from tests.golden.old import turn_back


def creates(store: Store, journal: Journal) -> None:
    store.create_queue("orders", ORDERS, exist_ok=True)
    journal.write("created")


def created(store: Store, journal: Journal) -> None:
    assert store.queues() == ["orders"]
    load(store, journal)


def grows_old(store: Store, journal: Journal) -> None:
    """The store has messages and format 1; the first opening migrates it."""
    prepared(store, journal)
    turn_back(store)


_CREATE = Workload(prepare=nothing, act=creates, check=created)
_MIGRATE = Workload(prepare=grows_old, act=nothing, check=everything_waits)

FAULTS = {
    "open.before_commit": _CREATE,
    "open.committed": _CREATE,
    "migrate.before_commit": _MIGRATE,
    "migrate.committed": _MIGRATE,
    "create.before_commit": _CREATE,
    "create.committed": _CREATE,
}
