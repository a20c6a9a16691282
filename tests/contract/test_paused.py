"""A paused queue gives nothing to anybody; changes of concurrency reach those that run in 2 s."""

import threading
import time

import pytest

from queue_core import ConsumerPool
from tests.contract.pools import PATIENCE, Recorder, eventually
from tests.factories import make_queue, orders

#: Two seconds, and what a busy machine takes.
SOON = 20.0


@pytest.fixture
def queue(store):
    return make_queue(store)


def within(seconds, condition):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_paused_queue_gives_nothing_unless_it_is_told_to(queue):
    queue.load(orders(5))
    queue.change_settings(concurrency=0)

    assert queue.fire("all").messages.num_rows == 0
    assert queue.fire("all", selector="number = 1").messages.num_rows == 0
    assert queue.get_and_keep("all").messages.num_rows == 0
    assert queue.peek(10).num_rows == 5
    assert queue.fire(2, even_if_paused=True).messages.num_rows == 2

    queue.change_settings(concurrency=1)
    assert queue.fire("all").messages.num_rows == 3


def test_the_sideline_is_paused_too_and_loads_and_settlements_are_not(queue):
    queue.load(orders(2))
    firing = queue.fire("all")
    queue.change_settings(concurrency=0)

    queue.sideline(firing)
    queue.load(orders(3, 2))

    assert queue.fire("all", magazine="sideline").messages.num_rows == 0
    assert queue.shovel() == 2
    assert queue.browse().num_rows == 5


@pytest.mark.parametrize("how", [{}, {"selector": "number >= 0"}])
def test_a_firing_that_waits_goes_on_when_the_pause_ends(store, queue, how):
    queue.load(orders(3))
    queue.change_settings(concurrency=0)
    fired = []
    waiting = threading.Thread(
        target=lambda: fired.append(queue.fire("all", timeout=PATIENCE, **how).messages.num_rows)
    )
    waiting.start()
    time.sleep(0.3)
    assert fired == []

    store.queue("orders").change_settings(concurrency=1)
    waiting.join(SOON)

    assert fired == [3]


def test_a_wait_for_a_paused_queue_is_no_busy_loop(queue, monkeypatch):
    queue.load(orders(3))
    queue.change_settings(concurrency=0)
    looks, read = [], queue.store.catalog.read
    monkeypatch.setattr(queue.store.catalog, "read", lambda: looks.append(1) or read())

    assert queue.fire("all", timeout=1.0).messages.num_rows == 0
    assert len(looks) < 20


@pytest.mark.parametrize("concurrency", [None, 3])
def test_a_pause_stops_a_running_pool_and_its_end_starts_it_again(store, queue, concurrency):
    with ConsumerPool(store, "orders", Recorder(), concurrency=concurrency) as pool:
        queue.load(orders(3))
        eventually(lambda: pool.counts == {"deleted": 3})
        queue.change_settings(concurrency=0)
        queue.load(orders(3, 3))
        time.sleep(1.5)
        assert pool.counts == {"deleted": 3}
        assert not pool.drain(0.1)

        queue.change_settings(concurrency=2)
        within(SOON, lambda: pool.counts == {"deleted": 6})
        assert pool.drain(PATIENCE)


def test_messages_that_were_fired_ahead_return_when_the_queue_is_paused(store, queue):
    recorder = Recorder()
    waiting = lambda: store.view("queues")["waiting"][0].as_py()  # noqa: E731
    queue.load(orders(2000))
    with ConsumerPool(store, "orders", recorder, concurrency=1, batch=10) as pool:
        eventually(lambda: pool.counts.get("deleted", 0) > 500)
        recorder.open.clear()
        queue.change_settings(concurrency=0)
        eventually(lambda: "orders paused" in repr(pool))
        # All but the batch in hand wait again, or are handled.
        eventually(lambda: waiting() + len(recorder.messages) >= 2000 - 10)
        seen = len(recorder.messages)
        recorder.open.set()
        time.sleep(0.5)
        # The rest of the batch in hand.
        assert len(recorder.messages) <= seen + 10


def test_one_paused_queue_of_a_pool_does_not_stop_the_other(store, queue):
    other = make_queue(store, "other")
    queue.change_settings(concurrency=0)
    with ConsumerPool(store, ["orders", "other"], Recorder()) as pool:
        for each in (queue, other):
            each.load(orders(3))
        within(SOON + 1, lambda: pool.counts == {"deleted": 3})
        assert [queue.browse().num_rows, other.browse().num_rows] == [3, 0]


def test_a_pool_follows_the_queue_unless_it_has_a_number_of_its_own(store, queue):
    queue.change_settings(concurrency=4)
    with (
        ConsumerPool(store, "orders", Recorder()) as follows,
        ConsumerPool(store, "orders", Recorder(), concurrency=3) as fixed,
        ConsumerPool(store, "orders", Recorder()) as scaled,
    ):
        assert scaled.increase() == 5
        queue.change_settings(concurrency=1)
        within(SOON, lambda: follows.concurrency == 1)
        queue.change_settings(concurrency=7)
        within(SOON, lambda: follows.concurrency == 7)

        assert (fixed.concurrency, scaled.concurrency) == (3, 5)
