"""Messages are loaded, by a caller and as the tasks of a streaming query do."""

from __future__ import annotations

from queue_core import Store
from queue_core.values.model import Magazine, State
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import (
    FEW,
    MANY,
    Workload,
    around,
    empty,
    load,
    loaded_ids,
    the_queue,
)
from tests.factories import make_batch, make_stager, orders, publish_once


def loads(store: Store, journal: Journal) -> None:
    for count in (FEW, MANY, MANY):
        journal.write("loading", count=count)
        load(store, journal, count)


def loaded_again(store: Store, journal: Journal) -> None:
    """Every load that returned is there, and of the one that did not, all or nothing."""
    acknowledged = loaded_ids(journal)
    there = audit(store).ids(Magazine.MAIN, State.LOADED)
    assert acknowledged <= there
    interrupted = journal.read("loading")[-4]["count"] if len(there) > len(acknowledged) else 0
    assert len(there) - len(acknowledged) in (0, interrupted)


def publishes_a_batch(store: Store, journal: Journal) -> None:
    queue = the_queue(store)
    staged = []
    for part in range(2):
        stager = make_stager(queue)
        for batch in orders(MANY, part * MANY).to_batches():
            stager.add(batch)
        staged.extend(stager.finish())
    publish_once(store.catalog, store.storage, queue.info, staged, make_batch(staged, 7))


def published_once(store: Store, journal: Journal) -> None:
    messages = the_queue(store).browse()
    assert sorted(messages.column("number").to_pylist()) == list(range(2 * MANY))


_LOAD = Workload(prepare=empty, act=loads, check=loaded_again)
_PUBLISH = Workload(prepare=empty, act=publishes_a_batch, check=published_once)

FAULTS = {
    "load.before_segment": _LOAD,
    "load.writing": _LOAD,
    "load.writing:4": _LOAD,
    "load.segment_written": _LOAD,
    "load.segment_written:2": _LOAD,
    "load.segment_synced": _LOAD,
    "load.segment_synced:2": _PUBLISH,
    **around("load", _LOAD),
    "load.before_commit:2": _LOAD,
    **around("load", _PUBLISH, ":1"),
    "load.committed:3": _LOAD,
}
