"""The check of a store: it names each broken invariant, repairs, and finds random damages."""

import random
import re
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from sqlalchemy import delete, insert, select, update

from queue_core import Store
from queue_core.catalog import seals
from queue_core.catalog.holder_tables import consumers, interests, leases, tickets, waiters
from queue_core.catalog.holders import consumers as consumer_rows
from queue_core.catalog.holders import interests as interest_rows
from queue_core.catalog.record_tables import (
    acts,
    breakers,
    failures,
    jobs,
    publications,
    schedule,
    task_log,
    traces,
)
from queue_core.catalog.tables import (
    SEALED,
    counters,
    dedup,
    files,
    id_map,
    log_slices,
    logs,
    metadata,
    queues,
    schemas,
    segments,
    shard_locks,
    shards,
    shared_limits,
    slices,
    token_buckets,
)
from queue_core.segments import stager
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.upkeep.tasks.runner import SideTasks
from queue_core.values.model import State
from queue_core.verbs.quarantine import set_apart
from tests.books import audit
from tests.damages import damage, visible
from tests.factories import (
    make_filled,
    make_queue,
    numbers_of,
    orders,
    planned,
    run_task,
)
from tests.waiting import until

FAR = 2**50
PROTOCOL = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")


@pytest.fixture
def queue(store):
    """A queue with two files, a message that was fired, and others in the catalog."""
    make_queue(store, "another")
    queue = make_queue(store)
    with mock.patch.object(stager, "INLINE_BYTES", 0):
        queue.load(orders(10))
        queue.load(orders(10, 10))
    queue.load(orders(5, 20))
    consumer = store.consumer("reader", beats=True)
    planned(store, queue, consumer, 3)
    store.catalog.write(lambda c: interest_rows.register(c, consumer, [queue.info.id], priority=3))
    assert broken(store) == set()
    return queue


def broken(store, **options):
    return {row["invariant"] for row in store.admin.fsck(**options).to_pylist()}


def one(store, table, *where):
    """The first row of a table."""
    with store.catalog.read() as connection:
        return connection.execute(select(table).where(*where).order_by(*table.primary_key)).first()


def change(table, *where, **values):
    """Return what changes a row and keeps its seal right, as a defect in a verb would."""

    def work(store):
        row = one(store, table, *where)
        new = {k: v(row) if callable(v) else v for k, v in values.items()}
        here = [key == getattr(row, key.name) for key in table.primary_key]
        store.catalog.write(lambda c: seals.change(c, table, *here, **new))

    return work


def write(statement):
    """Return what executes a statement that changes the catalog."""
    return lambda store: store.catalog.write(lambda c: c.execute(statement))


def added(table, **values):
    """Return what adds a row."""
    return write(insert(table).values(values))


def two_in_one(store):
    first = one(store, slices, slices.c.position == 3)
    here = (slices.c.position == 10,)
    change(slices, *here, segment_id=first.segment_id, loaded_at=first.loaded_at)(store)


def file_of(store):
    return Path(store.storage.uri) / min(store.storage.list())


def without_file(store):
    file_of(store).unlink()


def with_flip(store):
    data = bytearray(file_of(store).read_bytes())
    data[len(data) // 2] ^= 1
    file_of(store).write_bytes(data)


def without_mark(store):
    for mark in Path(store.storage.uri, "identity").iterdir():
        mark.unlink()


FIRED = slices.c.state == int(State.FIRED)
WAITING = (slices.c.state == int(State.LOADED), slices.c.position == 10)
FILED = segments.c.file.is_not(None)


def set_one_apart(store):
    """Quarantine the messages of one segment, whose file is in order."""
    location = next(iter(store.storage.list()))
    assert store.catalog.write(lambda connection: set_apart(connection, [location]))


#: How each invariant is broken, and no other.
BREAKERS = {
    "I1": write(update(slices).where(*WAITING).values(attempts=3)),
    "I2": change(slices, *WAITING, shard=7),
    "I3": change(slices, *WAITING, attempts=-1),
    "I4": change(segments, FILED, queue_id=1),
    "I5": two_in_one,
    "I6": change(slices, *WAITING, position=11),
    "I7": change(slices, *WAITING, position=FAR),
    "I8": change(slices, FIRED, fired_at=None),
    "I9": change(slices, *WAITING, loaded_at=lambda row: row.loaded_at + 1),
    "I10": change(segments, FILED, schema_version=9),
    "I11": change(segments, FILED, chunks=b""),
    "I12": added(id_map, segment_id=999, queue_id=1, first_id=1, last_id=2, arrow=b""),
    "I13": write(update(files).values(state="condemned")),
    "I14": without_file,
    "I15": with_flip,
    "I16": write(delete(counters).where(counters.c.magazine == 1, counters.c.queue_id == 2)),
    "I17": change(shards, shards.c.queue_id == 2, loaded=26),
    "I18": change(shard_locks, shard_locks.c.queue_id == 2, fired=4),
    "I19": change(counters, counters.c.queue_id == 2, damaged=1),
    "I20": change(counters, counters.c.queue_id == 2, ignored=-1),
    "I21": change(slices, FIRED, ticket=99),
    "I22": write(update(tickets).values(lives=3)),
    "I23": change(consumers, acknowledged=99),
    "I24": write(update(consumers).values(heartbeat_at=2**52)),
    "I25": added(
        interests, queue_id=1, consumer_id=999, claim="shared", interested=True, registered_at=1
    ),
    "I26": added(publications, queue_id=99, query_id="q", batch_id=1, published_at=1),
    "I27": change(queues, queues.c.id == 2, settings="{"),
    "I28": without_mark,
    "I29": change(slices, *WAITING, due_at=1),
    "I30": change(slices, *WAITING, lost_among=3),
    "I31": set_one_apart,
    "I32": added(logs, queue_id=2, shard=0, start=5),
    "I33": write(update(segments).where(FILED).values(log_rows=3)),
    "I34": change(shard_locks, shard_locks.c.queue_id == 2, cursor=3),
    "I35": write(update(shard_locks).where(shard_locks.c.queue_id == 2).values(head=1 << 40)),
}
#: Others that are broken by necessity: messages in the wrong shard are missing in the right one.
ALSO = {"I2": {"I17"}, "I6": {"I7"}}
#: What only a person can repair.
NOT_REPAIRED = {"I22", "I23", "I24", "I26", "I27", "I28", "I31", "I32", "I33", "I34"}


def test_each_invariant_is_broken_by_a_test():
    assert list(BREAKERS) == re.findall(r"^\| (I\d+) \|", PROTOCOL, re.MULTILINE)


@pytest.mark.parametrize("invariant", BREAKERS)
@pytest.mark.spoiled
def test_a_broken_invariant_is_named_and_repaired(invariant, store, queue):
    BREAKERS[invariant](store)
    deep = invariant == "I15"

    assert broken(store, deep=deep) - ALSO.get(invariant, set()) == {invariant}
    repaired = store.admin.fsck(deep=deep, repair=True).to_pylist()

    assert {row["invariant"] for row in repaired} >= {invariant}
    left = {row["invariant"] for row in repaired if not row["repaired"]}
    if invariant in NOT_REPAIRED:
        assert left == {invariant}
        assert {row["remedy"] for row in repaired} == {"none"}
    elif invariant == "I2":
        # Its true shard is not known, since the defect that put it there sealed it so.
        assert "I2" in left
    else:
        # Messages that were set apart wait for a person.
        apart = {"I31"} if "set apart" in {row["remedy"] for row in repaired} else set()
        assert left == apart
        assert broken(store, deep=deep) == apart


#: Tables whose damage does no harm, or is noticed without a check, as docs/protocol.md says.
UNCHECKED = {"facts", "clocks", "locks", "samples", "flows", "tallies", "task_runs"}
#: A damage to each other table.
DAMAGES = {
    "token_buckets": added(token_buckets, queue_id=1, of_column="", value="", spent_until=2**52),
    "shared_limits": added(shared_limits, name="crm", queue_id=1),
    "breakers": added(
        breakers, name="b", state="open", forced=False, since_at=2**52, pause=1, opened=1
    ),
    "consumers": BREAKERS["I24"],
    "counters": write(update(counters).values(deleted=7)),
    "dedup": added(dedup, queue_id=1, key=b"", loaded_at=2**52),
    "failures": added(failures, queue_id=99, failed_at=1, arrow=b""),
    "files": BREAKERS["I13"],
    "id_map": BREAKERS["I12"],
    "interests": BREAKERS["I25"],
    "acts": added(
        acts,
        **{"id": "1", "verb": "v", "who": "", "host": "", "by": "", "chosen": "{", "begun_at": 1},
    ),
    "jobs": added(
        jobs,
        **{"id": "1", "queue_id": 99, "force": False, "who": "", "pointers": "{}"},
        **{"total": 0, "begun_at": 1, "state": "waiting", "moved": 0},
    ),
    "log_slices": added(
        log_slices,
        **dict.fromkeys(("queue_id", "shard", "segment_id", "row_stop", "count", "bytes"), 1),
        **dict.fromkeys(("first_offset", "row_start", "bytes_before"), 0),
        **dict.fromkeys(("logged_at", "loaded_at"), 1),
    ),
    "logs": BREAKERS["I32"],
    "leases": added(leases, role="r", holder="h", term=1, ends_at=2**52),
    "publications": BREAKERS["I26"],
    "queues": write(update(queues).where(queues.c.id == 1).values(created_at=1)),
    "schedule": added(schedule, queue_id=1, task="t", begun_at=2**52, due_at=2**52),
    "schemas": write(update(schemas).where(schemas.c.queue_id == 1).values(arrow=b"\xff")),
    "segments": write(update(segments).where(FILED).values(rows=9)),
    "shards": write(update(shards).values(loaded=7)),
    "slices": BREAKERS["I1"],
    "task_log": added(task_log, queue_id=99, task="t", done_at=1, arrow=b""),
    "tickets": BREAKERS["I22"],
    "traces": added(
        traces, queue_id=99, kind="k", fingerprint="f", message_id=1, failed_at=1, trace="t"
    ),
    "shard_locks": write(update(shard_locks).values(fired=7)),
    "waiters": added(waiters, queue_id=1, verb="load", joined_at=1, alive_until=2**52),
}


@pytest.mark.spoiled
def test_each_table_of_the_catalog_is_checked_or_needs_no_check(store, queue):
    assert metadata.tables.keys() == DAMAGES.keys() | UNCHECKED
    unchecked = PROTOCOL.partition("**Tables without an invariant.**")[2].partition("have none")[0]
    assert set(re.findall(r"`(\w+)`", unchecked)) == UNCHECKED
    for spoil in DAMAGES.values():
        spoil(store)

    assert {row["table"] for row in store.admin.fsck().to_pylist()} == DAMAGES.keys()


@pytest.mark.spoiled
def test_a_seal_that_was_lost_is_found(store, queue):
    there = {table.name for table in SEALED if one(store, table) is not None}
    assert there >= {"queues", "schemas", "shards", "segments", "slices", "consumers", "interests"}
    for table in SEALED:
        write(update(table).values(seal=None))(store)

    found = store.admin.fsck().to_pylist()
    assert {row["table"] for row in found if row["invariant"] == "I1"} == there


@pytest.mark.spoiled
def test_a_waiter_of_the_future_holds_no_other_back_and_is_found_and_removed(store):
    queue = make_filled(store, 5, max_size=5)
    queue.delete(queue.fire(2))
    DAMAGES["waiters"](store)
    queue.load(orders(1), timeout=0.01)

    (found,) = store.admin.fsck(repair=True).to_pylist()

    assert (found["invariant"], found["table"], found["repaired"]) == ("I24", "waiters", True)
    queue.load(orders(1), timeout=0.01)


def test_a_store_in_order_has_no_findings(store, queue):
    for firing in (queue.fire(4), queue.fire(4)):
        queue.sideline(firing.ids[:2], reason="late")
        queue.reload(firing.ids[2:3])
        queue.delete(firing.ids[3:])
    queue.shovel(1)
    queue.admin.compact()
    queue.admin.add_columns(pa.schema([("note", pa.string())]))
    queue.admin.change_settings(sweep_after=30.0)
    store.queue("another").admin.deactivate()
    for ack in ("onCommit", "settle", "browse", "keep"):
        store.catalog.write(
            lambda c, ack=ack: consumer_rows.enlist(c, f"by {ack}", beats=True, ack=ack)
        )
    told = []

    assert store.admin.fsck(deep=True, progress=lambda *what: told.append(what)).num_rows == 0
    assert [done for _, done, _ in told] == list(range(told[0][2]))
    assert {"slices", "files", "shards"} <= {name for name, _, _ in told}

    # A released segment, whose file is dropped.
    queue.delete(queue.fire(7))
    store.admin.vacuum(grace=0)
    assert store.admin.fsck(deep=True).num_rows == 0


@pytest.mark.spoiled
def test_a_finding_says_where_and_since_when(store, queue):
    BREAKERS["I1"](store)
    piece = one(store, slices, *WAITING)

    (found,) = store.admin.fsck().to_pylist()

    assert (found["queue"], found["table"], found["row"]) == ("orders", "slices", str(piece.id))
    assert found["since"].timestamp() == pytest.approx(piece.moved_at / 1e6)
    assert "not what was written" in found["problem"]
    assert found["remedy"] == "set apart"


@pytest.mark.spoiled
def test_a_slice_in_a_shard_that_is_none_goes_back_to_its_own(store, queue):
    write(update(slices).where(*WAITING).values(shard=7))(store)

    store.admin.fsck(repair=True)

    assert broken(store) == set()
    assert numbers_of(queue.fire("all").messages) == list(range(3, 25))


@pytest.mark.spoiled
def test_messages_that_were_set_apart_are_loaded_again_when_their_file_is_back(store, queue):
    aside = file_of(store).with_suffix(".aside")
    shutil.move(file_of(store), aside)
    lost, quarantined = store.admin.fsck(repair=True).to_pylist()
    assert (lost["repaired"], quarantined["repaired"]) == (True, False)
    assert "is missing; copy the file from a backup" in quarantined["problem"]
    waiting = queue.browse().num_rows

    shutil.move(aside, aside.with_suffix(".arrow"))
    queue.admin.repair()

    assert queue.browse().num_rows > waiting
    assert broken(store, deep=True) == set()


@pytest.mark.spoiled
def test_counters_are_computed_from_the_slices(store, queue):
    before = store.view("shards").to_pylist()
    write(update(shards).values(loaded=1, load_pointer=FAR))(store)
    write(update(shard_locks).values(fired=7))(store)
    write(update(counters).values(damaged=5))(store)

    store.admin.fsck(repair=True)

    assert store.view("shards").to_pylist() == before
    audit(store)


def test_work_that_goes_on_raises_no_false_alarm(store):
    queue = make_queue(store, shards=2, attributes=["amount"])
    over = threading.Event()

    def produce():
        with mock.patch.object(stager, "INLINE_BYTES", 0):
            while not over.is_set():
                queue.load(orders(40))

    def consume():
        while not over.is_set():
            firing = queue.fire(25, selector="number % 3 < 2")
            if firing:
                queue.sideline(firing.ids[:3])
                queue.reload(firing.ids[3:6])
                queue.delete(firing.ids[6:-2])

    def tidy():
        while not over.is_set():
            queue.sweep(older_than=0.05)
            queue.shovel()
            queue.admin.compact()
            store.admin.vacuum(grace=30.0)

    with ThreadPoolExecutor(3) as pool:
        running = [pool.submit(work) for work in (produce, consume, tidy)]
        found = [store.admin.fsck(deep=True).to_pylist() for _ in range(6)]
        try:
            # On a busy machine, a sweep may be faster than the first deletions.
            until(lambda: any(store.view("shards").column("deleted").to_pylist()))
        finally:
            over.set()
    for work in running:
        work.result()
    assert found == [[]] * 6


def test_a_value_of_another_kind_ends_a_check_and_not_all_of_them(tmp_path):
    """SQLite keeps a text in a column of numbers."""
    fill(tmp_path)
    with Store.open(tmp_path) as store:
        store.catalog.write(
            lambda c: [
                c.exec_driver_sql("UPDATE shards SET loaded = 'x' WHERE shard = 1"),
                c.exec_driver_sql("UPDATE tickets SET lives = 7"),
            ]
        )
        found = store.admin.fsck().to_pylist()

    assert {(row["invariant"], row["table"]) for row in found} == {
        ("I1", "shards"),
        ("I22", "tickets"),
    }


@pytest.mark.parametrize(
    "count", [pytest.param(10, id="some"), pytest.param(300, id="many", marks=pytest.mark.slow)]
)
@pytest.mark.spoiled
def test_each_damage_that_users_see_is_found(count, tmp_path):
    """A copy of a store for each damage: one value of a row, or one file."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    fill(good)
    shutil.copytree(good, bad)
    with Store.open(bad) as store:
        before = visible(store)
    seen = []
    seed = 0
    while len(seen) < count:
        shutil.rmtree(bad, ignore_errors=True)
        shutil.copytree(good, bad)
        seed += 1
        with Store.open(bad) as store:
            done = damage(store, random.Random(seed))
        with Store.open(bad) as store:
            found = store.admin.fsck(deep=True)
            if visible(store) != before:
                seen.append(done)
                assert found.num_rows, f"seed {seed}: {done}"


@pytest.mark.spoiled
def test_a_report_that_no_reader_reaches_is_found(store, queue):
    queue.fire(3)
    store.admin.recover(dead_after=0)
    queue.sweep(0, dead_after=0)
    assert store.view("reports").num_rows

    write(update(task_log).where(task_log.c.id == one(store, task_log).id).values(id=0))(store)

    assert "I26" in broken(store)


@pytest.mark.spoiled
def test_the_side_task_reports_what_is_broken_and_repairs_nothing(store, queue, caplog):
    tasks = SideTasks(store.catalog, store.storage, LeaseLeader(store.catalog), tasks=["fsck"])
    assert run_task(tasks, "fsck") == 0
    BREAKERS["I3"](store)
    BREAKERS["I17"](store)

    assert run_task(tasks, "fsck") == 2

    reports = store.view("reports").to_pylist()
    assert {(row["task"], row["queue"], row["moved"], row["from"]) for row in reports} == {
        ("fsck", None, 1, "shards: I17 is broken"),
        ("fsck", None, 1, "slices: I3 is broken"),
    }
    assert "I3 is broken: slices" in caplog.text
    assert broken(store) == {"I3", "I17"}


def fill(folder):
    """A store in which every table that users see has rows."""
    with Store.open(folder) as store:
        queue = make_queue(store, shards=2, key="customer", attributes=["amount"])
        with mock.patch.object(stager, "INLINE_BYTES", 0):
            queue.load(orders(40))
            queue.load(orders(20, 40))
        queue.load(orders(5, 60))
        firing = queue.fire(20, selector="number % 2 = 0")
        queue.sideline(firing.ids[:6], reason="declined")
        queue.delete(firing.ids[6:12])
        queue.reload(firing.ids[12:16])
        queue.shovel(2)
        reader = store.consumer("reader", beats=True)
        planned(store, queue, reader, 3)
        store.catalog.write(
            lambda c: interest_rows.register(c, reader, [queue.info.id], priority=3)
        )
        small = make_filled(store, 6, "small", each=1)
        small.admin.compact()
        small.load(orders(3, 100))
        small.fire(2)
