"""The end of one queue, deactivated, expired or dropped: readers of several go on with the rest."""

import time
from contextlib import suppress

import pytest

from ignis_source import requests
from ignis_source.offset import Offset
from queue_core import ConsumerPool
from queue_core.errors import NoSuchQueue, QueueDeactivated, SubscriptionDetached
from queue_core.segments.reader import read_table
from queue_core.upkeep.tasks.expire import retire
from tests.contract.pools import Recorder
from tests.factories import drop, make_filled, make_queue, orders
from tests.waiting import PATIENCE, until

START = Offset("reader", 0)


def outlive(queue):
    queue.admin.change_settings(queue_expiry=0.001)
    time.sleep(0.01)
    retire(queue.store.catalog, queue.refresh().info)


ENDS = {"deactivated": lambda queue: queue.admin.deactivate(), "expired": outlive, "dropped": drop}
ENDED = (NoSuchQueue, QueueDeactivated)
TOLD = "goes on with its other queues"
each_end = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)


def only_line_of(caplog):
    (line,) = [one.getMessage() for one in caplog.records if TOLD in one.getMessage()]
    return line


@pytest.fixture
def queues(store):
    """Three queues of two messages each."""
    return [make_filled(store, 2, name, retry=None) for name in ("red", "blue", "gray")]


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(requests, "SETTINGS_SECONDS", 0.01)


def batch(session, start):
    """Ask as Spark does until there are messages; return the end of the batch, and the queues."""
    limit = time.monotonic() + PATIENCE
    while (end := session.next(start, None, None)) == start:
        assert time.monotonic() < limit, "there are no messages"
    rows = read_table(session.plan(start, end), ["_queue"])
    return end, sorted(rows.column("_queue").to_pylist())


@each_end
def test_a_query_goes_on_with_its_other_queues(queues, session, caplog, end):
    red, blue, gray = queues
    query = session(queues="red,blue,gray")
    first, served = batch(query, START)
    assert served == ["blue", "blue", "gray", "gray", "red", "red"]
    end(blue)
    query.acknowledge(first)

    red.load(orders(1, 2))
    second, served = batch(query, first)
    assert served == ["red"]
    query.acknowledge(second)
    gray.load(orders(1, 2))
    third, served = batch(query, second)
    assert served == ["gray"]

    assert "queue 'blue' was d" in only_line_of(caplog)
    query.acknowledge(third)
    end(red)
    end(gray)
    with pytest.raises(ENDED, match=r"queue '(red|gray)' was d"):
        query.next(third, None, None)


def test_a_queue_that_ends_between_a_look_and_a_firing_leaves_the_others(queues, session):
    red, blue, _ = queues
    query = session(queues="red,blue,gray", refreshInterval="1h")
    red.admin.deactivate()

    query.set_horizon()
    end, served = batch(query, START)

    assert served == ["blue", "blue", "gray", "gray"]
    query.acknowledge(end)
    assert query.next(end, None, None) == end
    assert blue.browse().num_rows == 0


def test_messages_that_were_in_flight_are_planned_again_and_settled(queues, session):
    _, blue, gray = queues
    first = session(queues="red,blue,gray", consumer="reader")
    end, _ = batch(first, START)
    first.close()
    blue.admin.deactivate()

    again = session(queues="red,blue,gray", consumer="reader")

    plan = again.plan(START, end)
    assert sorted(set(read_table(plan, ["_queue"]).column("_queue").to_pylist())) == [
        "blue",
        "gray",
        "red",
    ]
    again.acknowledge(end)
    assert blue.browse().num_rows == 0
    gray.load(orders(1, 2))
    assert batch(again, end)[1] == ["gray"]


def test_a_queue_that_is_both_ended_and_beside_a_paused_one_ends_no_query(queues, session):
    red, blue, gray = queues
    query = session(queues="red,blue,gray")
    red.admin.deactivate()
    blue.admin.pause()
    end, served = batch(query, START)
    assert served == ["gray", "gray"]
    query.acknowledge(end)
    gray.admin.deactivate()

    assert query.next(end, None, None) == end
    blue.admin.resume()
    assert batch(query, end)[1] == ["blue", "blue"]


def test_a_browsing_query_shows_a_deactivated_queue_and_outlives_a_dropped_one(queues, session):
    red, blue, gray = queues
    red.admin.deactivate()
    query = session(queues="red,blue,gray", ack="browse")
    end, served = batch(query, START)
    assert len(served) == 6
    drop(blue)
    gray.load(orders(1, 2))
    _, served = batch(query, end)
    assert served == ["gray"]


@each_end
@pytest.mark.parametrize("workers", [1, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_pool_goes_on_with_its_other_queues(store, queues, caplog, end, workers):
    red, blue, gray = queues
    recorder = Recorder()
    names = ["red", "blue", "gray"]
    with suppress(*ENDED), ConsumerPool(store, names, recorder, concurrency=workers) as pool:
        assert pool.drain(PATIENCE)
        end(blue)
        for count in range(1, 4):
            red.load(orders(1, count))
            gray.load(orders(1, count))
            assert pool.drain(PATIENCE)
            assert pool.counts == {"deleted": 6 + 2 * count}
        until(lambda: TOLD in caplog.text)
        pool.increase()
        assert pool.drain(PATIENCE)
        assert pool.error is None
        assert "queue 'blue' was d" in only_line_of(caplog)

        end(red)
        end(gray)
        until(lambda: pool.error is not None)
    assert isinstance(pool.error, ENDED)
    assert pool.error.args[0].startswith(("queue 'red' was d", "queue 'gray' was d"))


def test_a_pool_settles_what_it_holds_of_a_queue_that_ended(store, queues):
    _, blue, gray = queues
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, ["blue", "gray"], recorder, concurrency=2, batch=1) as pool:
        recorder.wait()
        recorder.wait()
        blue.admin.deactivate()
        recorder.open.set()
        gray.load(orders(1, 2))
        assert pool.drain(PATIENCE)
        assert pool.error is None
        # What was not fired before the end stays.
        assert pool.counts["deleted"] == 5 - blue.browse().num_rows


def test_a_pool_loses_what_is_dropped_in_its_hands(store, queues):
    _, blue, gray = queues
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, ["blue", "gray"], recorder, concurrency=2) as pool:
        recorder.wait()
        recorder.wait()
        drop(blue)
        recorder.open.set()
        gray.load(orders(1, 2))
        assert pool.drain(PATIENCE)
        assert pool.error is None
        assert pool.counts == {"deleted": 3, "lost": 2}


def test_a_pool_starts_with_a_deactivated_queue_among_others(store, queues):
    _, blue, _ = queues
    blue.admin.deactivate()
    with ConsumerPool(store, ["red", "blue", "gray"], Recorder()) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 4}


def test_limits_of_an_ended_queue_keep_no_pool_from_draining(store, queues):
    red, blue, _ = queues
    blue.admin.change_settings(limits="limit(per_second=0.01)")
    with ConsumerPool(store, ["red", "blue"], Recorder(), batch=1) as pool:
        until(lambda: pool.counts.get("deleted", 0) >= 3)
        blue.admin.deactivate()
        assert pool.drain(PATIENCE)
        assert red.browse().num_rows == 0


@each_end
def test_a_browsing_pool_outlives_a_queue(store, queues, caplog, end):
    red, blue, gray = queues
    recorder = Recorder()
    names = ["red", "blue", "gray"]
    with ConsumerPool(store, names, recorder, browse=True) as pool:
        until(lambda: len({(m["_queue"], m["number"]) for m in recorder.messages}) == 6)
        end(blue)
        gray.load(orders(1, 2))
        until(lambda: any(m["number"] == 2 for m in recorder.messages))
        until(lambda: TOLD in caplog.text or end is not drop)
        red.load(orders(1, 3))
        until(lambda: any(m["number"] == 3 for m in recorder.messages))
        assert pool.error is None


def test_a_detached_queue_that_is_paused_gives_later_what_waits_in_it(store, session):
    readers = []
    for name in ("orders", "bills"):
        topic = make_queue(store, name, log="1 day")
        readers.append(store.subscribe(f"{name}-reader", to=name))
        if name == "bills":
            topic.load(orders(2))
    empty, paused = readers
    # It takes in what the log has.
    assert paused.browse().num_rows == 2
    paused.admin.pause()
    for reader in readers:
        reader.admin.detach()
    query = session(queues=f"{empty.name},{paused.name}")
    assert query.next(START, None, None) == START

    paused.admin.resume()

    end, served = batch(query, START)
    assert served == [paused.name] * 2
    query.acknowledge(end)
    with pytest.raises(SubscriptionDetached, match=paused.name):
        batch(query, end)


def test_a_subscription_that_is_attached_again_is_read_again(store, session):
    topics = [make_queue(store, name, log="1 day") for name in ("orders", "bills")]
    kept, away = (store.subscribe(f"{topic.name}-reader", to=topic.name) for topic in topics)
    query = session(queues=f"{kept.name},{away.name}")
    away.admin.detach()
    topics[1].load(orders(2))
    assert query.next(START, None, None) == START
    topics[0].load(orders(1))
    end, served = batch(query, START)
    assert served == [kept.name]
    query.acknowledge(end)

    away.admin.attach()
    assert batch(query, end)[1] == [away.name] * 2
