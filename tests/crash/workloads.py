"""For each crash point of the core, work that passes it, and what must come of doing it again.

A workload is prepared in the test, done in a child that dies of it, and done again in the test.
Whatever it loads or deletes is in the journal: before a deletion, and after a load has returned.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pyarrow as pa
from sqlalchemy import func, select

from queue_core import Queue, Store, staging
from queue_core.catalog import lines
from queue_core.catalog.tables import files
from queue_core.errors import DamagedSegment, QueueFull
from queue_core.model import Magazine, State
from queue_core.outcomes import Settlement
from queue_core.tasks.candidates import NEIGHBOURS
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.choose import Wanted
from queue_core.verbs.fire import fire
from queue_core.verbs.held import held
from queue_core.verbs.load import publish_once
from queue_core.verbs.settle import settle
from tests.books import audit, leftover_files
from tests.children import Journal
from tests.factories import ORDERS, make_queue, make_stager, orders

#: Messages of a load that is inlined, and of one that becomes a file.
FEW, MANY = 20, 4_000

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


def load(store: Store, journal: Journal, count: int = FEW) -> pa.Array:
    """Load into the queue; noted once the load has returned."""
    ids = the_queue(store).load(orders(count))
    journal.write("loaded", ids=ids.to_pylist())
    return ids


def the_queue(store: Store) -> Queue:
    return store.queue("orders")


def prepared(store: Store, journal: Journal) -> None:
    """A queue with messages in the catalog, and others in a file."""
    make_queue(store, shards=3, key="customer")
    load(store, journal, FEW)
    load(store, journal, MANY)


def empty(store: Store, journal: Journal) -> None:
    make_queue(store, shards=3, key="customer")


def nothing(store: Store, journal: Journal) -> None:
    """No more than the store."""


# load


def loads(store: Store, journal: Journal) -> None:
    for count in (FEW, MANY, MANY):
        journal.write("loading", count=count)
        load(store, journal, count)


def loaded_again(store: Store, journal: Journal) -> None:
    """Every load that returned is there, and of the one that did not, all or nothing."""
    acknowledged = {i for entry in journal.read("loaded") for i in entry["ids"]}
    there = audit(store).ids(Magazine.MAIN, State.LOADED)
    assert acknowledged <= there
    interrupted = journal.read("loading")[-4]["count"] if len(there) > len(acknowledged) else 0
    assert len(there) - len(acknowledged) in (0, interrupted)


# load, as the tasks of a streaming query do


def publishes_a_batch(store: Store, journal: Journal) -> None:
    queue = the_queue(store)
    staged = []
    for part in range(2):
        stager = make_stager(queue)
        for batch in orders(MANY, part * MANY).to_batches():
            stager.add(batch)
        staged.extend(stager.finish())
    publish_once(store.catalog, store.storage, queue.info, staged, "query", 7)


def published_once(store: Store, journal: Journal) -> None:
    messages = the_queue(store).browse()
    assert sorted(messages.column("number").to_pylist()) == list(range(2 * MANY))


# load, into a queue that has no room


def fills(store: Store, journal: Journal) -> None:
    """A queue that is full of what is in flight."""
    make_queue(store, max_size=FEW)
    load(store, journal, FEW)
    the_queue(store).fire()


@contextlib.contextmanager
def hurry() -> Iterator[None]:
    """Who has died in line is not waited for long."""
    with mock.patch.object(lines, "ALIVE_SECONDS", 0.3):
        yield


def waits_in_vain(store: Store, journal: Journal) -> None:
    """Into a file, which is left over when nothing comes of it."""
    with hurry(), mock.patch.object(staging, "INLINE_BYTES", 0), contextlib.suppress(QueueFull):
        the_queue(store).load(orders(FEW), timeout=0.5)


def nothing_came_in(store: Store, journal: Journal) -> None:
    loaded = {i for entry in journal.read("loaded") for i in entry["ids"]}
    assert audit(store).ids() == loaded
    assert len(leftover_files(store)) == 1
    journal.write("deleting", ids=sorted(loaded))
    the_queue(store).delete(sorted(loaded))
    with hurry():
        load(store, journal, FEW)


def meets_nobody(store: Store, journal: Journal) -> None:
    """Offers messages that nobody fires, and withdraws them."""
    with hurry(), contextlib.suppress(QueueFull):
        the_queue(store).load(orders(FEW), timeout=0.5)


def withdrawn(store: Store, journal: Journal) -> None:
    """What was offered by who died waits, and what by who lived is gone."""
    books = audit(store)
    assert len(books.ids(Magazine.MAIN, State.LOADED)) == len(books.ids()) in (0, FEW)
    assert books.deleted + len(books.ids()) in (FEW, 2 * FEW)


def a_rendezvous(store: Store, journal: Journal) -> None:
    make_queue(store, max_size=0)


# fire


def fires(store: Store, journal: Journal) -> None:
    reader = store.consumer("reader")
    for _ in range(2):
        firing = the_queue(store).fire(FEW, consumer=reader)
        journal.write("fired", ids=firing.ids.to_pylist())


def fired_apart(store: Store, journal: Journal) -> None:
    """No firing gave what another one had given, and nothing was passed over in its shard."""
    seen = [i for entry in journal.read("fired") for i in entry["ids"]]
    assert len(seen) == len(set(seen))
    assert set(seen) <= audit(store).ids(Magazine.MAIN, State.FIRED)


# settle


def settlement_of(firing_ids: list[int]) -> Settlement:
    rows = pa.table(
        {
            "_message_id": firing_ids,
            "outcome": [("delete", "sideline", "reload")[i % 3] for i in range(len(firing_ids))],
            "reason": [f"reason {i}" for i in range(len(firing_ids))],
        }
    )
    return Settlement.of(rows)


def fires_all(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    firing = the_queue(store).fire(consumer=store.consumer("reader"))
    journal.write("fired", ids=firing.ids.to_pylist())


def settles(store: Store, journal: Journal) -> None:
    ids = journal.read("fired")[0]["ids"]
    for part in (ids[: MANY // 2], ids[MANY // 2 :]):
        journal.write("deleting", ids=part[::3])
        the_queue(store).settle(settlement_of(part))


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
    settle(store.catalog, [the_queue(store).info], everything, batch=("query", 7))


def nothing_is_left(store: Store, journal: Journal) -> None:
    books = audit(store)
    assert books.messages == {}
    assert books.deleted == FEW + MANY


# acknowledge and recover, as a streaming query does


def plans_tickets(store: Store, journal: Journal) -> None:
    prepared(store, journal)
    queue, query = the_queue(store), store.consumer("query", beats=True)
    wanted = Wanted(queue_ids=(queue.info.id,), max_messages=MANY // 4)
    for number in (1, 2):
        ticket = fire(store.catalog, query, wanted, seen=False)
        assert ticket is not None
        assert ticket.number == number
    found = held(store.catalog, store.storage.uri, [queue.info], query.id, 0, 2)
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
    wanted = Wanted(queue_ids=(queue.info.id,), max_messages=MANY // 4)
    for name in ("one", "two"):
        assert fire(store.catalog, store.consumer(name, beats=True), wanted, seen=False) is not None


def recovers(store: Store, journal: Journal) -> None:
    store.recover(dead_after=0)


def everything_waits(store: Store, journal: Journal) -> None:
    books = audit(store)
    loaded = {i for entry in journal.read("loaded") for i in entry["ids"]}
    assert books.ids(Magazine.MAIN, State.LOADED) == loaded == books.ids()


# shovel and sweep


def sidelines(store: Store, journal: Journal) -> None:
    fires_all(store, journal)
    the_queue(store).sideline(journal.read("fired")[0]["ids"], reason="not today")


def shovels(store: Store, journal: Journal) -> None:
    the_queue(store).shovel(MANY // 2)
    the_queue(store).shovel()


def sweeps(store: Store, journal: Journal) -> None:
    the_queue(store).sweep(0, dead_after=0)


def everything_is_aside(store: Store, journal: Journal) -> None:
    books = audit(store)
    loaded = {i for entry in journal.read("loaded") for i in entry["ids"]}
    assert books.ids(Magazine.SIDELINE, State.LOADED) == loaded == books.ids()


# quarantine and repair


def the_file(store: Store) -> Path:
    (location,) = store.storage.list()
    return Path(store.storage.uri, location)


def spoils_a_file(store: Store, journal: Journal) -> None:
    """A bit of a segment is flipped; some of its messages are in flight."""
    prepared(store, journal)
    the_queue(store).fire(FEW, consumer=store.consumer("reader"))
    path = the_file(store)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def restores_the_file(store: Store) -> None:
    path = the_file(store)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def reads_all(store: Store, journal: Journal) -> None:
    """Once what is damaged is set apart, the others can be read."""
    with contextlib.suppress(DamagedSegment):
        the_queue(store).browse()
    journal.write("read", count=the_queue(store).browse().num_rows)


def set_apart(store: Store, journal: Journal) -> None:
    assert journal.read("read")[-1]["count"] == FEW
    assert len(audit(store).ids(state=State.DAMAGED)) == MANY
    restores_the_file(store)
    assert the_queue(store).repair() == MANY
    assert the_queue(store).browse().num_rows == FEW + MANY


def restores_what_was_set_apart(store: Store, journal: Journal) -> None:
    spoils_a_file(store, journal)
    reads_all(store, journal)
    restores_the_file(store)


def repairs(store: Store, journal: Journal) -> None:
    the_queue(store).repair()


def all_is_readable(store: Store, journal: Journal) -> None:
    assert audit(store).ids(state=State.DAMAGED) == set()
    assert the_queue(store).browse().num_rows == FEW + MANY


# vacuum


def leaves_files(store: Store, journal: Journal) -> None:
    """Files of messages that are deleted, and one of a writer that never published it."""
    prepared(store, journal)
    load(store, journal, MANY)
    ids = the_queue(store).fire().ids.to_pylist()
    journal.write("deleting", ids=ids)
    the_queue(store).delete(ids)
    stager = make_stager(the_queue(store))
    for batch in orders(MANY).to_batches():
        stager.add(batch)
    stager.finish()
    load(store, journal, MANY)
    assert len(leftover_files(store)) == 3


def vacuums(store: Store, journal: Journal) -> None:
    store.vacuum(grace=0)


def only_what_is_needed_is_left(store: Store, journal: Journal) -> None:
    assert leftover_files(store) == set()
    assert the_queue(store).browse().num_rows == MANY
    with store.catalog.read() as connection:
        assert connection.scalar(select(func.count()).select_from(files)) == 1


# compaction


def loads_singly(store: Store, journal: Journal) -> None:
    """Many single messages in each magazine, and a file of which little is left."""
    queue = make_queue(store)
    for _ in range(NEIGHBOURS):
        load(store, journal, 1)
    queue.sideline(queue.fire(), reason="not today")
    singles = [load(store, journal, 1)[0].as_py() for _ in range(NEIGHBOURS)]
    ids = load(store, journal, MANY).to_pylist()
    queue.fire()
    journal.write("deleting", ids=ids[MANY // 10 :])
    queue.delete(ids[MANY // 10 :])
    queue.reload([*singles, *ids])


def compacts(store: Store, journal: Journal) -> None:
    """So that also what would be inlined becomes a file."""
    with mock.patch.object(staging, "INLINE_BYTES", 0):
        the_queue(store).compact()


def compacted(store: Store, journal: Journal) -> None:
    loaded = {i for entry in journal.read("loaded") for i in entry["ids"]}
    books = audit(store)
    assert books.ids(state=State.LOADED) == loaded - set(journal.read("deleting")[0]["ids"])
    assert len(books.ids(Magazine.SIDELINE)) == NEIGHBOURS
    assert the_queue(store).compact() == 0
    assert store.view("slices").num_rows == len(Magazine)


# store and queue


def creates(store: Store, journal: Journal) -> None:
    store.create_queue("orders", ORDERS, exist_ok=True)
    journal.write("created")


def created(store: Store, journal: Journal) -> None:
    assert store.queues() == ["orders"]
    load(store, journal)


_LOAD = Workload(prepare=empty, act=loads, check=loaded_again)
_PUBLISH = Workload(prepare=empty, act=publishes_a_batch, check=published_once)
_FULL = Workload(prepare=fills, act=waits_in_vain, check=nothing_came_in)
_MEET = Workload(prepare=a_rendezvous, act=meets_nobody, check=withdrawn, withdraws=True)
_FIRE = Workload(prepare=prepared, act=fires, check=fired_apart)
_SETTLE = Workload(prepare=fires_all, act=settles, check=settled)
_SETTLE_BATCH = Workload(prepare=fires_all, act=settles_a_batch, check=nothing_is_left)
_ACKNOWLEDGE = Workload(prepare=plans_tickets, act=acknowledges, check=acknowledged)
_RECOVER = Workload(prepare=fires_unseen, act=recovers, check=everything_waits)
_SHOVEL = Workload(prepare=sidelines, act=shovels, check=everything_waits)
_SWEEP = Workload(prepare=fires_all, act=sweeps, check=everything_is_aside)
_QUARANTINE = Workload(prepare=spoils_a_file, act=reads_all, check=set_apart, spoiled=True)
_REPAIR = Workload(prepare=restores_what_was_set_apart, act=repairs, check=all_is_readable)
_COMPACT = Workload(prepare=loads_singly, act=compacts, check=compacted)
_VACUUM = Workload(prepare=leaves_files, act=vacuums, check=only_what_is_needed_is_left)
_CREATE = Workload(prepare=nothing, act=creates, check=created)

#: What to run for each fault: a point, and at which passage the child dies.
WORKLOADS = {
    "open.before_commit": _CREATE,
    "open.committed": _CREATE,
    "create.before_commit": _CREATE,
    "create.committed": _CREATE,
    "load.before_segment": _LOAD,
    "load.writing": _LOAD,
    "load.writing:4": _LOAD,
    "load.segment_written": _LOAD,
    "load.segment_written:2": _LOAD,
    "load.segment_synced": _LOAD,
    "load.segment_synced:2": _PUBLISH,
    "load.before_commit": _LOAD,
    "load.before_commit:2": _LOAD,
    "load.before_commit:1": _PUBLISH,
    "load.committed": _LOAD,
    "load.committed:3": _LOAD,
    "load.committed:1": _PUBLISH,
    "load.waiting": _FULL,
    "load.waiting:1": _MEET,
    "load.offered": _MEET,
    "load.before_withdrawal": _MEET,
    "load.withdrawn": _MEET,
    "fire.before_commit": _FIRE,
    "fire.before_commit:2": _FIRE,
    "fire.committed": _FIRE,
    "fire.committed:2": _FIRE,
    "settle.before_commit": _SETTLE,
    "settle.before_commit:2": _SETTLE,
    "settle.before_commit:1": _SETTLE_BATCH,
    "settle.committed": _SETTLE,
    "settle.committed:2": _SETTLE,
    "settle.committed:1": _SETTLE_BATCH,
    "acknowledge.before_commit": _ACKNOWLEDGE,
    "acknowledge.before_commit:2": _ACKNOWLEDGE,
    "acknowledge.committed": _ACKNOWLEDGE,
    "acknowledge.committed:2": _ACKNOWLEDGE,
    "recover.before_commit": _RECOVER,
    "recover.committed": _RECOVER,
    "shovel.before_commit": _SHOVEL,
    "shovel.before_commit:2": _SHOVEL,
    "shovel.committed": _SHOVEL,
    "shovel.committed:2": _SHOVEL,
    "sweep.before_commit": _SWEEP,
    "sweep.committed": _SWEEP,
    "quarantine.reported": _QUARANTINE,
    "quarantine.before_commit": _QUARANTINE,
    "quarantine.committed": _QUARANTINE,
    "repair.before_commit": _REPAIR,
    "repair.committed": _REPAIR,
    "load.writing:1": _COMPACT,
    "load.segment_synced:1": _COMPACT,
    "compact.written": _COMPACT,
    "compact.written:2": _COMPACT,
    "compact.before_commit": _COMPACT,
    "compact.before_commit:2": _COMPACT,
    "compact.committed": _COMPACT,
    "compact.committed:2": _COMPACT,
    "vacuum.before_commit": _VACUUM,
    "vacuum.condemned": _VACUUM,
    "vacuum.removing": _VACUUM,
    "vacuum.removing:2": _VACUUM,
    "vacuum.removed": _VACUUM,
}
