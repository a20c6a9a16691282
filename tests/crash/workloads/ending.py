"""Workloads of what ends: messages that are stuck, handed out too often or too old, and queues."""

from __future__ import annotations

import contextlib
from unittest import mock

from sqlalchemy import update

from queue_core import Store
from queue_core.catalog.tables import slices
from queue_core.errors import QueueDeactivated
from queue_core.values.model import Magazine, State
from queue_core.verbs import sweep
from queue_core.verbs.lose import start_again
from tests.books import audit
from tests.children import Journal
from tests.crash.workloads.common import (
    FEW,
    MANY,
    Workload,
    around,
    everything_is_aside,
    everything_waits,
    load,
    loaded_ids,
    prepared,
    the_queue,
)
from tests.factories import make_queue

#: Seconds; what is made older than that is too old.
EXPIRY = 10_000.0
#: Slices that are swept at a time.
BATCH = 8

# sweep, batch by batch


def fires_many_slices(store: Store, journal: Journal) -> None:
    make_queue(store, shards=2)
    for _ in range(3 * BATCH):
        load(store, journal, 1)
    the_queue(store).fire("all", consumer=store.consumer("reader"))


def sweeps_in_batches(store: Store, journal: Journal) -> None:
    with mock.patch.object(sweep, "BATCH_SLICES", BATCH):
        the_queue(store).sweep(0, dead_after=0)


# abandon


def fires_too_often(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    queue = the_queue(store)
    queue.admin.change_settings(max_deliveries=1)
    queue.reload(queue.fire(MANY // 2))


def abandons(store: Store, journal: Journal) -> None:
    the_queue(store).sweep()


def abandoned(store: Store, journal: Journal) -> None:
    queue = the_queue(store)
    books = audit(store)
    aside = books.ids(Magazine.SIDELINE, State.LOADED)
    assert len(aside) == MANY // 2
    assert len(books.ids(Magazine.MAIN, State.LOADED)) == FEW + MANY // 2
    assert sorted(queue.failures().column("message_id").to_pylist()) == sorted(aside)
    assert queue.shovel() == 0
    queue.admin.change_settings(max_deliveries=None)


# lose


def dies_with_some(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    the_queue(store).fire(MANY // 4, consumer=start_again(store.catalog, "till"))


def starts_again(store: Store, journal: Journal) -> None:
    start_again(store.catalog, "till")


def lost_once(store: Store, journal: Journal) -> None:
    everything_waits(store, journal)
    rows = store.view("slices").to_pylist()
    lost = {(row["lost"], row["lost_among"]) for row in rows}
    assert lost == {(0, 0), (1, MANY // 4)}
    assert sum(row["messages"] for row in rows if row["lost"]) == MANY // 4


# expire


def grows_old(store: Store, journal: Journal) -> None:
    """Messages of both magazines are too old, others in flight too, and some are not."""
    prepared(store, journal)
    queue = the_queue(store)
    queue.admin.change_settings(message_expiry=EXPIRY, sideline_expiry=EXPIRY)
    queue.sideline(queue.fire(MANY // 4))
    earlier = update(slices).values(loaded_at=slices.c.loaded_at - int(EXPIRY * 1e6))
    store.catalog.write(lambda connection: connection.execute(earlier))
    old = audit(store).ids()
    store.catalog.write(
        lambda c: c.execute(update(slices).where(slices.c.shard == 0).values(loaded_at=2**60))
    )
    young = set(queue.peek(2 * MANY).column("_message_id").to_pylist())
    young |= set(queue.peek(2 * MANY, magazine="sideline").column("_message_id").to_pylist())
    journal.write("young", ids=sorted(young))
    journal.write("deleting", ids=sorted(old - young))


def expires(store: Store, journal: Journal) -> None:
    the_queue(store).admin.expire()


def only_the_young_are_left(store: Store, journal: Journal) -> None:
    assert audit(store).ids() == set(journal.read("young")[0]["ids"])


# deactivate and drop


def deactivates(store: Store, journal: Journal) -> None:
    the_queue(store).admin.deactivate()


def takes_no_more(store: Store, journal: Journal) -> None:
    with contextlib.suppress(QueueDeactivated):
        load(store, journal)
        raise AssertionError("it was loaded")
    assert audit(store).ids() == loaded_ids(journal)


def is_given_up(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    the_queue(store).admin.deactivate()


def drops(store: Store, journal: Journal) -> None:
    if store.queues():
        the_queue(store).admin.drop()


def nothing_is_left_of_it(store: Store, journal: Journal) -> None:
    assert store.queues() == []
    store.admin.vacuum(grace=0)
    assert store.storage.list() == {}
    make_queue(store)


_SWEEP = Workload(prepare=fires_many_slices, act=sweeps_in_batches, check=everything_is_aside)
_ABANDON = Workload(prepare=fires_too_often, act=abandons, check=abandoned)
_LOSE = Workload(prepare=dies_with_some, act=starts_again, check=lost_once)
_EXPIRE = Workload(prepare=grows_old, act=expires, check=only_the_young_are_left)
_DEACTIVATE = Workload(prepare=prepared, act=deactivates, check=takes_no_more, ends=True)
_DROP = Workload(prepare=is_given_up, act=drops, check=nothing_is_left_of_it, ends=True)

FAULTS = {
    "sweep.before_commit:2": _SWEEP,
    "sweep.committed:3": _SWEEP,
    **around("abandon", _ABANDON),
    **around("lose", _LOSE),
    **around("expire", _EXPIRE),
    "expire.before_commit:2": _EXPIRE,
    **around("deactivate", _DEACTIVATE),
    **around("drop", _DROP),
}
