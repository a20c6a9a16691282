"""Fired messages are settled."""

from __future__ import annotations

import pyarrow as pa

from queue_core import Store
from queue_core.values.model import Batch, Magazine, State
from queue_core.values.outcomes import Settlement
from queue_core.verbs.settle import settle
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import (
    FEW,
    MANY,
    Workload,
    around,
    fires_all,
    the_consumer,
    the_queue,
)


def settlement_of(firing_ids: list[int]) -> Settlement:
    rows = pa.table(
        {
            "_message_id": firing_ids,
            "outcome": [("delete", "sideline", "reload")[i % 3] for i in range(len(firing_ids))],
            "reason": [f"reason {i}" for i in range(len(firing_ids))],
        }
    )
    return Settlement.of(rows)


def settles(store: Store, journal: Journal) -> None:
    ids = journal.read("fired")[0]["ids"]
    for part in (ids[: MANY // 2], ids[MANY // 2 :]):
        journal.write("deleting", ids=part[::3])
        the_queue(store).settle(settlement_of(part), the_consumer(store))


def settled(store: Store, journal: Journal) -> None:
    ids = journal.read("fired")[0]["ids"]
    parts = (ids[: MANY // 2], ids[MANY // 2 :])
    books = audit(store)
    assert books.ids(state=State.FIRED) == set()
    assert books.ids(Magazine.SIDELINE) == {i for part in parts for i in part[1::3]}
    assert books.ids(Magazine.MAIN) == {i for part in parts for i in part[2::3]}
    failures = the_queue(store).failures().column("message_id").to_pylist()
    assert sorted(failures) == sorted(books.ids(Magazine.SIDELINE))


def settles_a_batch(store: Store, journal: Journal) -> None:
    ids = journal.read("fired")[0]["ids"]
    journal.write("deleting", ids=ids)
    everything = Settlement.of(pa.table({"_message_id": ids, "outcome": ["delete"] * len(ids)}))
    settle(store.catalog, [the_queue(store).info], everything, batch=Batch("query", 7, len(ids)))


def nothing_is_left(store: Store, journal: Journal) -> None:
    books = audit(store)
    assert books.messages == {}
    assert books.deleted == FEW + MANY


_SETTLE = Workload(prepare=fires_all, act=settles, check=settled)
_SETTLE_BATCH = Workload(prepare=fires_all, act=settles_a_batch, check=nothing_is_left)

FAULTS = {
    **around("settle", _SETTLE, "", ":2"),
    **around("settle", _SETTLE_BATCH, ":1"),
}
