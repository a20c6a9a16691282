"""Workloads of logs and of subscriptions, which read them."""

from __future__ import annotations

from contextlib import suppress
from unittest import mock

from queue_core import Store
from queue_core.catalog.tables import log_slices
from queue_core.errors import BadOption, QueueExists
from queue_core.segments import stager
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import (
    FEW,
    MANY,
    Act,
    Workload,
    around,
    load,
    loaded_ids,
    the_queue,
)
from tests.dump import age, log_earlier, log_in_a_minute, rows_in
from tests.factories import make_queue

NAME = "billing"


def is_logged(store: Store, journal: Journal) -> None:
    """A queue with a log of rows in the catalog, and of others in a file."""
    make_queue(store, shards=3, key="customer", log="1 hour")
    load(store, journal, FEW)
    load(store, journal, MANY)


def is_read(store: Store, journal: Journal) -> None:
    is_logged(store, journal)
    store.subscribe(NAME, to="orders", start="earliest")


def subscribes(store: Store, journal: Journal) -> None:
    if NAME not in store.queues():
        store.subscribe(NAME, to="orders", start="earliest")


def gets_everything(store: Store, journal: Journal) -> None:
    """The subscription gets each message once, whatever it has taken in before."""
    if NAME not in store.queues():
        subscribes(store, journal)
    reader = store.queue(NAME)
    reader.sweep(0, dead_after=0)
    reader.shovel()
    ids = reader.fire("all").ids.to_pylist()
    assert len(ids) == len(set(ids))
    assert set(ids) == loaded_ids(journal)
    audit(store)
    try:
        store.subscribe(NAME, to="orders")
    except QueueExists:
        return
    raise AssertionError("it was created twice")


def takes_in(store: Store, journal: Journal) -> None:
    store.queue(NAME).fire(FEW, selector="number >= 0", consumer=store.consumer("reader"))


def grows_old(store: Store, journal: Journal) -> None:
    is_read(store, journal)
    ids = store.queue(NAME).fire("all").ids
    journal.write("deleting", ids=ids.to_pylist())
    store.queue(NAME).delete(ids)
    log_earlier(store, 3_601)
    load(store, journal, FEW)


def trims(store: Store, journal: Journal) -> None:
    the_queue(store).admin.trim()


def only_the_log_is_shorter(store: Store, journal: Journal) -> None:
    assert the_queue(store).admin.trim() in (0, FEW + MANY)
    books = audit(store)
    assert set(books.of_queues[the_queue(store).info.id]) == loaded_ids(journal)
    read = set(journal.read("deleting")[0]["ids"])
    assert set(store.queue(NAME).fire("all").ids.to_pylist()) == loaded_ids(journal) - read
    audit(store)


def has_small_rows(store: Store, journal: Journal) -> None:
    """One reader has taken the first rows, and another one nothing."""
    make_queue(store, log="1 hour")
    for name in (NAME, "shipping"):
        store.subscribe(name, to="orders")
    for number in range(2 * FEW):
        load(store, journal, 1)
        if number == FEW:
            consumer = store.consumer("reader")
            ids = store.queue(NAME).fire("all", consumer=consumer).ids
            journal.write("fired", ids=ids.to_pylist())
    log_in_a_minute(store)


def merges(store: Store, journal: Journal) -> None:
    """So that also what would be inlined becomes a file."""
    with mock.patch.object(stager, "INLINE_BYTES", 0):
        the_queue(store).admin.compact()


def merged_rows_are_read(store: Store, journal: Journal) -> None:
    assert the_queue(store).admin.compact() == 0
    assert rows_in(store, log_slices) == 2
    fired, ids = journal.read("fired")[0]["ids"], sorted(loaded_ids(journal))
    reader = store.queue(NAME)
    assert sorted(reader.fire("all").ids.to_pylist()) == ids[len(fired) :]
    # Only of what the first reader holds is it the consumer.
    assert reader.sweep(0, dead_after=0) == len(ids)
    other = store.queue("shipping").fire("all")
    assert other.ids.to_pylist() == ids
    assert store.queue("shipping").delete(other.ids) == len(ids)
    audit(store)


def is_half_read(store: Store, journal: Journal) -> None:
    """A subscription with messages in the sideline, in flight, waiting, and in the log."""
    is_read(store, journal)
    reader = store.queue(NAME)
    reader.sideline(reader.fire(FEW), reason="no")
    reader.browse()
    reader.fire(FEW)
    load(store, journal, FEW)


def replays(store: Store, journal: Journal) -> None:
    if "again" not in store.queues():
        the_queue(store).replay("again")


def clones(store: Store, journal: Journal) -> None:
    if "again" not in store.queues():
        store.queue(NAME).clone("again")


def a_copy_has(less: int) -> Act:
    """Check that a replay or a clone has each message once, without some of them."""

    def check(store: Store, journal: Journal) -> None:
        copy = store.queue("again")
        copy.shovel()
        ids = copy.fire("all").ids.to_pylist()
        assert len(ids) == len(set(ids)) == len(loaded_ids(journal)) - less
        gets_everything(store, journal)

    return check


def snaps(store: Store, journal: Journal) -> None:
    admin = store.queue(NAME).admin
    if not admin.snapshots().num_rows:
        assert admin.snapshot("kept").messages == len(loaded_ids(journal))


def goes_back(store: Store, journal: Journal) -> None:
    reader = store.queue(NAME)
    reader.delete(reader.fire(FEW))
    reader.admin.pause()
    assert reader.admin.seek("kept", force=True).messages == len(loaded_ids(journal))
    reader.admin.resume()
    gets_everything(store, journal)


def is_kept(store: Store, journal: Journal) -> None:
    is_half_read(store, journal)
    snaps(store, journal)
    reader = store.queue(NAME)
    reader.delete(reader.fire(MANY))
    reader.admin.pause()


def seeks(store: Store, journal: Journal) -> None:
    found = store.queue(NAME).admin.seek("kept", force=True)
    assert found.messages == len(loaded_ids(journal))


def is_back(store: Store, journal: Journal) -> None:
    store.queue(NAME).admin.resume()
    gets_everything(store, journal)


_MERGE = Workload(prepare=has_small_rows, act=merges, check=merged_rows_are_read, ends=True)


def is_late(store: Store, journal: Journal) -> None:
    """A subscription that has 50 messages in its hands, and whose others exceed its budget."""
    is_logged(store, journal)
    late = {"late": "1 hour", "when_late": "drop"}
    store.subscribe(NAME, to="orders", start="earliest", **late).fire(50)
    log_earlier(store, 3_601, "loaded_at")
    age(store, 3_601)


def is_dropped_once(store: Store, journal: Journal) -> None:
    trims(store, journal)
    assert NAME not in store.queues()
    audit(store)


def is_detached(store: Store, journal: Journal) -> None:
    is_read(store, journal)
    store.queue(NAME).admin.detach()


def attaches(store: Store, journal: Journal) -> None:
    # It may be attached since the kill.
    with suppress(BadOption):
        store.queue(NAME).admin.attach()


def goes_on(store: Store, journal: Journal) -> None:
    """It gets each message once, whether it was attached before the kill or is now."""
    attaches(store, journal)
    gets_everything(store, journal)


_SUBSCRIBE = Workload(prepare=is_logged, act=subscribes, check=gets_everything, ends=True)
_TAKE_IN = Workload(prepare=is_read, act=takes_in, check=gets_everything, ends=True)
_TRIM = Workload(prepare=grows_old, act=trims, check=only_the_log_is_shorter, ends=True)
_REPLAY = Workload(prepare=is_half_read, act=replays, check=a_copy_has(0), ends=True)
_CLONE = Workload(prepare=is_half_read, act=clones, check=a_copy_has(FEW), ends=True)
_SNAPSHOT = Workload(prepare=is_half_read, act=snaps, check=goes_back, ends=True)
_SEEK = Workload(prepare=is_kept, act=seeks, check=is_back, ends=True)
_DETACH = Workload(prepare=is_late, act=trims, check=is_dropped_once, ends=True)
_ATTACH = Workload(prepare=is_detached, act=attaches, check=goes_on, ends=True)
FAULTS = {
    **around("subscribe", _SUBSCRIBE),
    **around("replay", _REPLAY),
    **around("clone", _CLONE),
    **around("snapshot", _SNAPSHOT),
    **around("seek", _SEEK),
    **around("take_in", _TAKE_IN),
    **around("trim", _TRIM),
    **around("detach", _DETACH),
    **around("attach", _ATTACH),
    "merge.written": _MERGE,
    "merge.written:2": _MERGE,
    **around("merge", _MERGE, "", ":2"),
}
