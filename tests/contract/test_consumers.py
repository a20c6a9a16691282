"""Consumers: each has one life at a time, and a forked child is somebody else."""

import itertools
import os
import threading

import pyarrow as pa
import pytest
from sqlalchemy import update

from queue_core import ConsumerPool, Store
from queue_core.catalog.holder_tables import consumers as rows
from queue_core.catalog.holders import consumers
from queue_core.consumers import presence
from queue_core.errors import BadName, ConsumerFenced, Invalid
from queue_core.upkeep.tasks.purge import purge
from queue_core.values.outcomes import Settlement
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.forks import in_a_fork
from tests.statements import heard
from tests.waiting import PATIENCE, Caller, all_at_once, waits

pytestmark = pytest.mark.each_catalog


def test_a_process_is_one_consumer_of_each_store_until_told_otherwise(store, address):
    assert store.consumer() is store.consumer()
    assert store.consumer().name.startswith("python:")
    assert f":{os.getpid()}:" in store.consumer().name
    with type(store)(address) as other:
        assert other.consumer().id != store.consumer().id


def test_a_life_in_another_process_leaves_a_sound_row(store, monkeypatch):
    store.consumer("till-1")
    with monkeypatch.context() as patched:
        patched.setattr(consumers, "host", lambda: "another-machine")
        patched.setattr(consumers.os, "getpid", lambda: 12345)
        store.consumer("till-1")

    (row,) = (row for row in store.view("consumers").to_pylist() if row["consumer"] == "till-1")
    assert (row["host"], row["pid"]) == ("another-machine", 12345)
    assert store.admin.fsck().to_pylist() == []


def test_a_new_life_of_a_consumer_has_its_id_and_its_tickets_and_a_higher_epoch(store):
    queue = make_queue(store)
    ids = queue.load(orders(4))
    first = store.consumer("till-1")
    ticket = queue.fire(2, consumer=first).ticket.number

    second = store.consumer("till-1")

    assert (second.id, second.name, second.epoch) == (first.id, "till-1", first.epoch + 1)
    with store.catalog.read() as connection:
        assert consumers.by_name(connection, "till-1") == second
        assert consumers.by_name(connection, "till-2") is None
    assert queue.fire(2, consumer=second).ticket.number > ticket == 1
    # A person who names the consumer means its present life.
    assert queue.reload(ids, consumer="till-1") == 4


@pytest.mark.parametrize("act", ["fire", "heartbeat"])
def test_an_older_life_is_fenced_off_and_changes_nothing(store, act):
    queue = make_filled(store, 4)
    old = store.consumer("till-1", beats=True)
    store.consumer("till-1", beats=True)
    acts = {
        "fire": lambda: queue.fire("all", consumer=old),
        "heartbeat": lambda: store.catalog.write(lambda c: consumers.heartbeat(c, old)),
    }
    before = dump(store)

    with pytest.raises(ConsumerFenced, match="consumer 'till-1' was started again elsewhere"):
        acts[act]()
    assert dump(store) == before


def test_an_older_life_is_told_although_others_have_taken_what_it_saw(store):
    queue = make_filled(store, 4)
    old = store.consumer("till-1")
    new = store.consumer("till-1")
    begun = itertools.count(1)

    def take(_connection):
        # Between its look and its attempt.
        if next(begun) == 2:
            assert len(queue.fire("all", consumer=new)) == 4

    with (
        heard(store.catalog.engine, begin=take),
        pytest.raises(ConsumerFenced, match="consumer 'till-1' was started again elsewhere"),
    ):
        queue.fire(4, consumer=old)
    assert next(begun) > 2


@pytest.mark.parametrize("act", ["delete", "sideline", "reload", "settle"])
def test_an_older_life_settles_no_message_of_its_new_life(store, act):
    queue = make_filled(store, 4)
    old = store.consumer("till-1")
    queue.reload(queue.fire("all", consumer=old))
    new = store.consumer("till-1")
    firing = queue.fire("all", consumer=new)
    outcomes = Settlement.of(pa.table({"_message_id": firing.ids, "outcome": ["delete"] * 4}))
    settle = {
        "delete": lambda consumer: queue.delete(firing.ids, consumer=consumer),
        "sideline": lambda consumer: queue.sideline(firing.ids, "broken", consumer=consumer),
        "reload": lambda consumer: queue.reload(firing.ids, consumer=consumer),
        "settle": lambda consumer: queue.settle(outcomes, consumer=consumer),
    }[act]
    before = dump(store)

    assert settle(old) == 0
    assert dump(store) == before
    assert settle(new) == 4


def test_a_heart_beats_by_the_clock_of_the_catalog(store):
    consumer = store.consumer("query", beats=True)
    store.catalog.write(lambda c: c.execute(update(rows).values(heartbeat_at=0)))
    before = store.catalog.now()

    store.catalog.write(lambda connection: consumers.heartbeat(connection, consumer))

    (beat,) = store.view("consumers").column("heartbeat_at").cast("int64").to_pylist()
    assert before <= beat <= store.catalog.now()


@pytest.mark.each_catalog(False)
@pytest.mark.parametrize("name", ["../x", 5])
def test_a_name_that_could_do_harm_is_refused(store, name):
    before = dump(store)

    with pytest.raises(BadName) as refusal:
        store.consumer(name)
    assert repr(name) in str(refusal.value)
    assert dump(store) == before


def test_threads_of_one_process_share_its_consumer_and_never_a_message(store):
    queue = make_filled(store, 60)
    fired, barrier = [], threading.Barrier(3)

    def work():
        barrier.wait()
        for _ in range(4):
            fired.extend(numbers_of(queue.fire(5).messages))
        # A firing may find nothing while the others hold the messages for long.
        while len(fired) < 60:
            fired.extend(numbers_of(queue.fire(5).messages))

    all_at_once(*[work] * 3)

    assert sorted(fired) == list(range(60))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_uses_the_store_as_another_consumer(store):
    queue = make_filled(store, 6)
    mine = queue.fire(2)

    def work():
        firing = queue.fire(2)
        queue.delete(firing)
        return numbers_of(firing.messages), store.consumer().name

    numbers, name = in_a_fork(work)

    assert numbers == [2, 3]
    assert name != store.consumer().name
    assert queue.delete(mine) == 2
    assert numbers_of(queue.fire("all").messages) == [4, 5]


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_a_connection_is_in_use_disturbs_nobody(store):
    queue = make_filled(store, 6)

    def fired():
        try:
            return len(queue.fire(2))
        except Invalid:
            return 0

    with store.catalog.read() as connection:
        child = in_a_fork(fired)
        assert connection.exec_driver_sql("SELECT count(*) FROM queues").scalar() == 1

    # SQLite cannot share a file that was in use; `test_forks.py` has the error.
    assert child == (2 if store.catalog.file is None else 0)
    assert numbers_of(queue.fire("all").messages) == list(range(child, 6))


# Consumers that are forgotten.


def names_of(store):
    return sorted(store.view("consumers").column("consumer").to_pylist())


def test_a_process_that_holds_nothing_is_forgotten_and_comes_back_under_another_name(
    store, monkeypatch
):
    queue = make_filled(store, 4)
    firing = queue.fire(2)
    (before,) = names_of(store)

    purge(store.catalog, 0)
    assert names_of(store) == [before], "it holds messages"
    assert queue.delete(firing) == 2
    purge(store.catalog)
    assert names_of(store) == [before], "it may be at work"
    purge(store.catalog, 0)
    assert names_of(store) == []

    monkeypatch.setattr(presence, "RENEW_AFTER", -1)
    later = queue.fire(1)
    assert numbers_of(later.messages) == [2]
    assert names_of(store) != [before]
    # What it fired under the name before is still its own.
    assert numbers_of(queue.fire(1).messages) == [3]
    assert queue.delete(later.ids) == 1


def test_who_waits_for_longer_than_its_name_is_kept_fires_under_the_next_one(store, monkeypatch):
    queue = make_queue(store)
    caller = Caller(lambda: queue.fire(1, timeout=PATIENCE))
    waits(store, 1, "fire")
    (before,) = names_of(store)
    purge(store.catalog, 0)
    assert names_of(store) == []

    monkeypatch.setattr(presence, "RENEW_AFTER", -1)
    queue.load(orders(1))

    assert numbers_of(caller.done().messages) == [0]
    assert before not in names_of(store)


def test_keepers_and_pools_that_are_gone_are_forgotten(store):
    queue = make_filled(store, 3)
    assert queue.delete(queue.get_and_keep(2)) == 2
    with ConsumerPool(store, "orders", lambda message: True) as pool:
        assert pool.drain(30)
    with ConsumerPool(store, "orders", lambda message: True, browse=True) as browser:
        browser.drain(30)

    purge(store.catalog, 0)

    assert names_of(store) == []
    assert store.admin.fsck().num_rows == 0


def test_consumers_that_can_come_back_are_never_forgotten(store):
    """A checkpoint of any age names them and their tickets."""
    names = ["pool:main", "python:3", f"spark:{'0' * 32}", "till-1", "till:1:0123abcd"]
    for name in names:
        store.consumer(name, beats=name.startswith("spark"))

    purge(store.catalog, 0)

    assert names_of(store) == names


def test_a_keeper_that_finds_no_thread_sends_heartbeats_from_the_next_call_on(store, monkeypatch):
    """Without them, its messages would be swept after a minute, and handled twice."""
    queue, before = make_queue(store), set(threading.enumerate())
    queue.load(orders(1))

    def refuse(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as crowded:
        crowded.setattr(presence.Heartbeat, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread"):
            queue.get_and_keep(1)
    assert queue.delete(queue.get_and_keep(1)) == 1
    assert "ignis-heartbeat" in {thread.name for thread in set(threading.enumerate()) - before}


def test_a_firing_of_another_store_settles_nothing(tmp_path):
    """Its consumer, its ticket and its messages have the same numbers there."""
    with Store.open(tmp_path / "one") as one, Store.open(tmp_path / "two") as two:
        queues = [make_queue(store) for store in (one, two)]
        for queue in queues:
            queue.load(orders(3))
        held, strange = (queue.fire(3) for queue in queues)
        assert held.ids.equals(strange.ids)
        assert held.ticket.consumer.id == strange.ticket.consumer.id
        assert held.ticket.number == strange.ticket.number

        assert queues[0].delete(strange) == 0
        assert queues[0].delete(held) == 3
