"""Workloads for the crash points of smart loads, and of messages that are kept."""

from __future__ import annotations

from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.holder_tables import consumers
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
from tests.factories import make_queue, orders

#: Enough for a file.
_ORDERS = orders(MANY, customers=MANY)

# smart load: messages take over values of new ones


def loads_one_of_each(store: Store, journal: Journal) -> None:
    queue = make_queue(store, shards=3, key="customer", policy="merge(sum(amount))")
    journal.write("loaded", ids=queue.load(_ORDERS).to_pylist())


def merges(store: Store, journal: Journal) -> None:
    for _ in range(3):
        journal.write("merging")
        assert the_queue(store).load(_ORDERS).null_count == MANY
        journal.write("merged")


def merged_all_or_none(store: Store, journal: Journal) -> None:
    """Each message has the values of the finished loads, and all have the same."""
    messages = the_queue(store).browse()
    (loaded,) = journal.read("loaded")
    assert set(messages.column("_message_id").to_pylist()) == set(loaded["ids"])
    of_one = messages.column("number").to_numpy() / 4
    times = set((messages.column("amount").to_numpy()[of_one > 0] / of_one[of_one > 0]).tolist())
    (loads,) = times
    assert len(journal.read("merged")) <= loads - 1 <= len(journal.read("merging"))
    audit(store)


# reset


def keeps_all(store: Store, journal: Journal) -> None:
    """By a process that is dead."""
    prepared(store, journal)
    queue = the_queue(store)
    while len(queue.get_and_keep(MANY // 2)):
        pass
    store.keeper.stop()
    store.catalog.write(lambda c: c.execute(update(consumers).values(heartbeat_at=0)))


def resets(store: Store, journal: Journal) -> None:
    the_queue(store).reset()


_MERGE = Workload(prepare=loads_one_of_each, act=merges, check=merged_all_or_none)
_RESET = Workload(prepare=keeps_all, act=resets, check=everything_waits)

FAULTS = {
    "policy.rewritten": _MERGE,
    "policy.rewritten:2": _MERGE,
    "load.before_commit:3": _MERGE,
    "load.committed:2": _MERGE,
    **around("reset", _RESET),
}
