"""Small segments become large ones, and files without use are removed."""

from __future__ import annotations

from unittest import mock

from queue_core import Store
from queue_core.catalog.slices.rewritable import NEIGHBOURS
from queue_core.catalog.tables import files
from queue_core.segments import stager
from queue_core.values.model import Magazine, State
from tests.books import audit, leftover_files
from tests.children import Journal
from tests.crash.workloads.common import (
    MANY,
    Workload,
    around,
    load,
    loaded_ids,
    prepared,
    the_queue,
)
from tests.dump import rows_in
from tests.factories import make_queue, make_stager, orders


def leaves_files(store: Store, journal: Journal) -> None:
    """Files of messages that are deleted, and one of a writer that never published it."""
    prepared(store, journal)
    load(store, journal, MANY)
    ids = the_queue(store).fire("all").ids.to_pylist()
    journal.write("deleting", ids=ids)
    the_queue(store).delete(ids)
    stager = make_stager(the_queue(store))
    for batch in orders(MANY).to_batches():
        stager.add(batch)
    stager.finish()
    load(store, journal, MANY)
    assert len(leftover_files(store)) == 3


def vacuums(store: Store, journal: Journal) -> None:
    store.admin.vacuum(grace=0)


def only_what_is_needed_is_left(store: Store, journal: Journal) -> None:
    assert leftover_files(store) == set()
    assert the_queue(store).browse().num_rows == MANY
    assert rows_in(store, files) == 1


def loads_singly(store: Store, journal: Journal) -> None:
    """Many single messages in each magazine, and a file with few live messages."""
    queue = make_queue(store)
    for _ in range(NEIGHBOURS):
        load(store, journal, 1)
    queue.sideline(queue.fire("all"), reason="not today")
    singles = [load(store, journal, 1)[0].as_py() for _ in range(NEIGHBOURS)]
    ids = load(store, journal, MANY).to_pylist()
    queue.fire("all")
    journal.write("deleting", ids=ids[MANY // 10 :])
    queue.delete(ids[MANY // 10 :])
    queue.reload([*singles, *ids])


def compacts(store: Store, journal: Journal) -> None:
    """So that also what would be inlined becomes a file."""
    with mock.patch.object(stager, "INLINE_BYTES", 0):
        the_queue(store).admin.compact()


def compacted(store: Store, journal: Journal) -> None:
    loaded = loaded_ids(journal)
    books = audit(store)
    assert books.ids(state=State.LOADED) == loaded - set(journal.read("deleting")[0]["ids"])
    assert len(books.ids(Magazine.SIDELINE)) == NEIGHBOURS
    assert the_queue(store).admin.compact() == 0
    assert store.view("slices").num_rows == len(Magazine)


_COMPACT = Workload(prepare=loads_singly, act=compacts, check=compacted)
_VACUUM = Workload(prepare=leaves_files, act=vacuums, check=only_what_is_needed_is_left)

FAULTS = {
    "load.writing:1": _COMPACT,
    "load.segment_synced:1": _COMPACT,
    "compact.written": _COMPACT,
    "compact.written:2": _COMPACT,
    **around("compact", _COMPACT, "", ":2"),
    "vacuum.before_commit": _VACUUM,
    "vacuum.condemned": _VACUUM,
    "vacuum.removing": _VACUUM,
    "vacuum.removing:2": _VACUUM,
    "vacuum.removed": _VACUUM,
}
