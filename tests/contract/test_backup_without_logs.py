"""A backup without the history that only logs keep: the rest is as if the logs had been trimmed."""

import random

import pytest
from sqlalchemy import select

from ignis_source.log_session import LogSession
from ignis_source.options import SourceOptions
from ignis_source.schema import source_schema
from queue_core import Store
from queue_core.catalog.tables import files, id_map, log_slices, logs, segments
from queue_core.errors import OffsetsLost
from queue_core.segments import stager
from tests.books import audit, leftover_files
from tests.command_line import answer
from tests.dump import log_in_a_minute
from tests.factories import make_queue, numbers_of, orders


@pytest.fixture
def topic(store, monkeypatch):
    """A topic with 30 messages in its log, in files and in the catalog; ten still wait in it."""
    made = make_queue(store, shards=2, log="7 days")
    made.load(orders(10))
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    made.load(orders(10, 10))
    made.load(orders(10, 20))
    made.delete(made.fire("all", selector="number < 20"))
    return made


@pytest.fixture
def copied(store, tmp_path):
    """Restore a backup without logs into a new place; return the new store and the backup."""
    opened = []

    def copy(**how):
        place = tmp_path / f"copy-{len(opened)}"
        done = store.admin.backup(tmp_path / "backup", logs=False, **how)
        restored = Store.restore(tmp_path / "backup", place)
        assert (restored.found, restored.damaged) == ((), 0)
        opened.append(Store.open(place, create=False))
        assert opened[-1].admin.fsck(deep=True).to_pylist() == []
        audit(opened[-1])
        return opened[-1], done

    yield copy
    for each in opened:
        each.close()


def rest_of(queue):
    """The numbers of all that a queue still gives."""
    return sorted(numbers_of(queue.fire("all", timeout=0).messages))


def test_what_readers_have_still_to_take_is_there(store, topic, copied):
    fast, slow, some = (
        store.subscribe(name, to="orders", start="earliest", **how)
        for name, how in (("fast", {}), ("slow", {}), ("some", {"selector": "number >= 25"}))
    )
    stopped = store.subscribe("stopped", to="orders", start="earliest")
    stopped.delete(stopped.fire(3))
    stopped.admin.detach()
    fast.delete(fast.fire("all"))
    slow.delete(slow.fire("all", selector="number < 10"))
    # It keeps its place in the log: nothing was chosen from there on.
    some.fire("all")

    other, done = copied()

    assert done.segments == 2
    assert rest_of(other.queue("orders")) == [*range(20, 30)]
    assert rest_of(other.queue("fast")) == []
    assert rest_of(other.queue("slow")) == rest_of(slow)
    state = {row["queue"]: row["state"] for row in other.view("subscriptions").to_pylist()}
    assert state == {"fast": "reading", "slow": "reading", "some": "reading", "stopped": "detached"}
    other.queue("stopped").admin.attach()
    got = rest_of(other.queue("stopped"))
    assert set(got) <= {*range(30)}
    # Both go on by themselves.
    for each in (store, other):
        each.queue("orders").load(orders(3, 100))
        assert rest_of(each.queue("slow")) == rest_of(each.queue("fast")) == [100, 101, 102]
        audit(each)


def test_a_reader_that_has_nothing_yet_keeps_all_and_none_keeps_nothing(store, topic, copied):
    other, done = copied()
    assert done.segments == 1
    assert [row["messages"] for row in other.view("logs").to_pylist()] == [0, 0]
    late = other.subscribe("late", to="orders", start="earliest")
    other.queue("orders").load(orders(3, 100))
    assert rest_of(late) == [100, 101, 102]

    store.subscribe("billing", to="orders", start="earliest").admin.snapshot("before")
    store.queue("billing").delete(store.queue("billing").fire("all"))
    again, done = copied()
    assert done.segments == 2
    assert sum(row["messages"] for row in again.view("logs").to_pylist()) == 30
    again.queue("billing").admin.pause()
    again.queue("billing").admin.seek("before")
    again.queue("billing").admin.resume()
    assert rest_of(again.queue("billing")) == [*range(30)]


def test_a_replay_keeps_its_part(store, topic, copied):
    replayed = topic.replay("again")
    replayed.delete(replayed.fire(4))
    topic.load(orders(3, 30))
    other, _ = copied()
    assert rest_of(other.queue("again")) == rest_of(replayed)
    ended, _ = copied()
    assert rest_of(ended.queue("again")) == []
    assert sum(row["messages"] for row in ended.view("logs").to_pylist()) == 0


def rows_of(store, *tables):
    """The rows of some tables, without the names of files, which only the storage has."""
    with store.catalog.read() as connection:
        return {
            table.name: [
                {name: value for name, value in row.items() if name != "since"}
                for row in connection.execute(
                    select(table).order_by(*table.primary_key.columns)
                ).mappings()
            ]
            for table in tables
        }


@pytest.mark.parametrize(
    "seed", [0, 1, *(pytest.param(n, marks=pytest.mark.nightly) for n in (2, 3))]
)
def test_the_rows_are_those_that_a_trim_of_each_log_leaves(
    store, copied, monkeypatch, tmp_path, seed
):
    chance = random.Random(seed)
    monkeypatch.setattr(stager, "INLINE_BYTES", 2_000)
    topics = [make_queue(store, name, shards=n, log="7 days") for name, n in (("a", 3), ("b", 1))]
    make_queue(store, "plain").load(orders(7))
    readers = {
        topic.name: [
            store.subscribe(f"{topic.name}{n}", to=topic.name) for n in range(chance.randrange(4))
        ]
        for topic in topics
    }
    for step in range(12):
        for topic in topics:
            topic.load(orders(chance.choice((1, 3, 200)), 1000 * step))
            if chance.random() < 0.5:
                topic.delete(topic.fire(chance.choice((1, 50, 1000))))
            for reader in readers[topic.name]:
                if chance.random() < 0.6:
                    reader.delete(reader.fire(chance.choice((1, 50, 1000))))
        if step == 6:
            log_in_a_minute(store)
            for topic in topics:
                topic.admin.compact()
    for each in readers["a"][1:2]:
        each.admin.detach()

    other, _ = copied()
    for topic in topics:
        topic.admin.change_settings(log="0s")
        topic.admin.trim()

    tables = (log_slices, logs, segments, id_map)
    assert rows_of(other, *tables) == rows_of(store, *tables)
    states = [
        {row["location"]: row["state"] for row in rows_of(each, files)["files"]}
        for each in (other, store)
    ]
    assert states[0] == states[1]
    audit(store)


def test_over_the_same_storage_the_files_of_the_history_are_garbage(store, topic, tmp_path):
    store.admin.backup(tmp_path / "backup", logs=False)
    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    restored = Store.restore(tmp_path / "backup", **where, over=True)
    assert (restored.found, restored.copied, restored.damaged) == ((), 0, 0)
    with Store.open(**where) as again:
        assert again.admin.fsck(deep=True).to_pylist() == []
        assert len(again.admin.vacuum(grace=0)) > 0
        assert leftover_files(again) == set()
        assert rest_of(again.queue("orders")) == [*range(20, 30)]
        audit(again)


def test_the_next_backup_with_logs_is_whole(store, topic, tmp_path, copied):
    copied()
    done = store.admin.backup(tmp_path / "backup")
    assert (done.segments, done.copied) == (2, 1)
    Store.restore(tmp_path / "backup", tmp_path / "whole")
    with Store.open(tmp_path / "whole", create=False) as whole:
        assert rest_of(whole.subscribe("all", to="orders", start="earliest")) == [*range(30)]


def test_a_query_that_reads_the_log_is_told_what_is_gone(store, topic, copied):
    store.subscribe("late", to="orders")
    topic.load(orders(2, 30))
    other, _ = copied()
    assert sum(row["messages"] for row in other.view("logs").to_pylist()) == 2
    address = {"catalog": other.address.catalog, "storage": other.address.storage}
    options = {"read": "log", "queue": "orders", "startingOffsets": '{"orders": {"0": 0, "1": 0}}'}
    parsed = SourceOptions.of(address | options)
    session = LogSession(parsed, source_schema(parsed))
    with pytest.raises(OffsetsLost, match=r"were trimmed"):
        session.batch()


def test_the_command_leaves_them_out(store, topic, ignis, tmp_path):
    [whole] = answer(ignis("--json", "backup", str(tmp_path / "whole")))
    [without] = answer(ignis("--json", "backup", str(tmp_path / "without"), "--without-logs"))
    assert whole["segments"] > without["segments"]
    [verified] = answer(ignis("--json", "backup", str(tmp_path / "without"), "--verify"))
    assert (verified["segments"], verified["faults"]) == (without["segments"], [])
