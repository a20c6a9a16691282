"""Reports: what side tasks have moved, as a log that can be read on from any number of it."""

import os
import threading
from pathlib import Path

import pytest

from queue_core.catalog.records import task_log
from queue_core.catalog.records.task_log import Moves
from tests.factories import make_queue, with_sidelined


def shovelled(store, count=5, name="orders", **shape):
    """A queue of *count* orders, which were sidelined and moved back."""
    queue = with_sidelined(store, count, name, **shape)
    queue.shovel()
    return queue


def last(store, *infos, tasks=("shovel",)):
    with store.catalog.read(locking=True) as connection:
        return task_log.last(connection, infos, tasks)


def read(store, *infos, tasks=("shovel",), **between):
    with store.catalog.read() as connection:
        table = task_log.read(connection, infos, tasks, **between)
    return table.select(["task", "queue", "moved"]).to_pylist()


def write(connection, queue, task="shovel"):
    """A report as a task writes it that has moved one message."""
    moves = Moves()
    moves.count(0, 1, "sideline", "main")
    moves.record(connection, queue.info.id, task)


def test_each_shard_in_which_something_was_moved_is_told(store):
    shovelled(store, 30, shards=3, key="number")

    rows = store.view("reports").to_pylist()

    assert sorted(row["shard"] for row in rows) == [0, 1, 2]
    assert sum(row["moved"] for row in rows) == 30
    assert {(r["task"], r["queue"], r["from"], r["to"]) for r in rows} == {
        ("shovel", "orders", "sideline", "main")
    }


def test_a_vacuum_is_of_the_store_and_tells_how_many_files_went(store, in_files):
    store.admin.vacuum(grace=0)
    assert store.view("reports").num_rows == 0, "nothing was removed"
    queue = shovelled(store, 2)
    queue.delete(queue.fire("all"))
    for location in store.storage.list():
        os.utime(Path(store.storage.uri) / location, (0, 0))
    assert len(store.admin.vacuum(grace=0)) == 1

    *_, row = store.view("reports").to_pylist()
    del row["when"]
    assert row == {
        "task": "vacuum",
        "queue": None,
        "shard": None,
        "moved": 1,
        "from": "storage",
        "to": None,
    }
    assert set(store.view("reports", "orders").column("task").to_pylist()) == {"shovel"}


def test_the_log_is_read_between_two_of_its_numbers(store):
    one = shovelled(store, 2, "one")
    first = last(store, one.info)
    other = shovelled(store, 3, "other")
    second = last(store, one.info, other.info)
    shovelled(store, 4, "third")

    assert last(store, one.info) == first < second == last(store, one.info, other.info)
    assert read(store, one.info, other.info, upto=first) == [
        {"task": "shovel", "queue": "one", "moved": 2}
    ]
    assert read(store, one.info, other.info, after=first, upto=second) == [
        {"task": "shovel", "queue": "other", "moved": 3}
    ]
    assert read(store, one.info, other.info, tasks=["sweep"]) == []
    assert last(store, one.info, None, tasks=["sweep", "vacuum"]) == 0


@pytest.mark.parametrize("commits", [True, False])
def test_no_number_is_told_while_a_lower_one_may_still_come(store, commits):
    """One writes, another one is faster with a later report, and only then the first commits."""
    queue = make_queue(store)
    written, go_on = threading.Event(), threading.Event()

    def slow(connection):
        write(connection, queue)
        written.set()
        assert go_on.wait(30)
        if not commits:
            raise ZeroDivisionError

    def writer():
        try:
            store.catalog.write(slow)
        except ZeroDivisionError:
            assert not commits

    thread = threading.Thread(target=writer)
    thread.start()
    assert written.wait(30)
    faster = threading.Thread(target=store.catalog.write, args=[lambda c: write(c, queue)])
    faster.start()
    if store.catalog.file is None:
        faster.join()
    meanwhile = last(store, queue.info)
    go_on.set()
    thread.join()
    faster.join()

    told = read(store, queue.info)
    assert len(told) == 1 + commits
    assert last(store, queue.info) >= len(told)
    # SQLite has one writer at a time, and shows nothing of it.
    assert meanwhile == (0 if store.catalog.file is not None else None)
