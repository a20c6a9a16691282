"""Pools side by side: which goes first or alone, which takes over, and how each of them ends.

Other processes are other stores here; `tests/processes/test_hand_over.py` kills real ones.
"""

import os
import re
import signal
import threading
import time
from functools import partial
from socket import gethostname

import pytest

from queue_core import Breaker, ConsumerPool, ConsumerTarget
from queue_core.catalog import notifications
from queue_core.catalog.holders import interests
from queue_core.catalog.poller import Poller
from queue_core.catalog.records.breakers import SharedBreaker
from queue_core.errors import BadOption, CatalogUnavailable, ConsumerFenced, QueueTaken
from queue_core.pool import dispatcher, life, outage, outcome_buffer, worker
from queue_core.pool.source import AcquiringSource
from queue_core.support.loop import Loop
from queue_core.upkeep.tasks import background
from queue_core.values.names import is_of_process
from tests.contract.pools import Recorder
from tests.factories import make_queue, orders
from tests.waiting import PATIENCE, Caller, until

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2)


def failing(error):
    """Return a method that raises an error."""

    def fails(*_, **__):
        raise error

    return fails


def only_for(name, instead):
    """Return the start of threads, with another one for those of a name."""
    start = threading.Thread.start

    def starts(thread):
        (instead if thread.name == name else start)(thread)

    return starts


# Priorities and claims, as other processes see them; here, other stores.


@pytest.fixture
def other(store, address):
    with type(store)(address) as opened:
        yield opened


def test_a_lower_priority_works_when_the_higher_one_stops(store, other, queue):
    high, low = Recorder(), Recorder()
    with ConsumerPool(other, "orders", low, priority=1, concurrency=2) as lower:
        with ConsumerPool(store, "orders", high, priority=5, concurrency=2) as higher:
            queue.load(orders(20))
            until(lambda: len(high.messages) == 20)
            assert higher.drain(PATIENCE)
        queue.load(orders(20, 20))
        until(lambda: len(low.messages) == 20)
        assert lower.drain(PATIENCE)

    assert high.numbers == list(range(20))


@pytest.mark.usefixtures("quick_beats")
def test_a_lower_priority_works_when_the_higher_one_is_out_of_credit(store, other, queue):
    high, low = Recorder(), Recorder()
    high.open.clear()
    with (
        ConsumerPool(other, "orders", low, priority=1, concurrency=1),
        ConsumerPool(store, "orders", high, priority=5, max_in_flight=2, concurrency=1),
    ):
        queue.load(orders(10))
        high.wait()
        until(lambda: len(low.messages) == 8)
        high.open.set()
        until(lambda: len(high.messages) == 2)


def test_an_exclusive_pool_keeps_others_out(store, other, queue):
    late = ConsumerPool(other, "orders", Recorder())
    with (
        ConsumerPool(store, "orders", Recorder(), exclusive=True),
        pytest.raises(QueueTaken, match="has it to itself"),
    ):
        late.start()
    with ConsumerPool(other, "orders", Recorder()):
        pass


def test_a_spare_takes_over_from_the_single_active_one(store, other, queue):
    first, second = Recorder(), Recorder()
    with ConsumerPool(other, "orders", second, single_active=True) as spare:
        with ConsumerPool(store, "orders", first, single_active=True, priority=1):
            pass
        queue.load(orders(5))
        until(lambda: len(second.messages) == 5)
        assert spare.drain(PATIENCE)


def test_a_spare_does_nothing_while_the_active_one_lives(store, other, queue):
    first, second = Recorder(), Recorder()
    with (
        ConsumerPool(store, "orders", first, single_active=True) as active,
        ConsumerPool(other, "orders", second, single_active=True),
    ):
        queue.load(orders(50))
        assert active.drain(PATIENCE)
        until(lambda: len(first.messages) == 50)
    assert second.messages == []


# How a pool begins and ends.


@pytest.mark.parametrize("browse", [True, False])
def test_a_second_start_of_a_running_pool_changes_nothing(store, queue, browse):
    """A second life showed each message a second time, and held its workers forever."""
    recorder = Recorder()
    pool = ConsumerPool(store, "orders", recorder, concurrency=2, browse=browse).start()
    consumers = store.view("consumers").column("consumer").to_pylist()
    with pool:
        assert pool.start() is pool
        queue.load(orders(20))
        assert pool.drain(PATIENCE)
    assert recorder.numbers == list(range(20))
    assert store.view("consumers").column("consumer").to_pylist() == consumers
    with pool:
        assert pool.concurrency == 2
    assert pool.concurrency == 0


@pytest.mark.usefixtures("quick_beats")
def test_a_pool_that_has_failed_says_so_at_a_second_start_and_begins_anew(store, other, queue):
    pool = ConsumerPool(store, "orders", Recorder(), name="till", handler_timeout=0.2).start()
    other.consumer("till")
    until(lambda: pool.error is not None)
    with pytest.raises(ConsumerFenced, match="'till' was started again elsewhere"):
        pool.start()
    with pool:
        queue.load(orders(1))
        assert pool.drain(PATIENCE)


def test_stop_finishes_the_batches_in_hand(store, queue):
    queue.load(orders(10))
    recorder = Recorder()
    recorder.open.clear()
    pool = ConsumerPool(store, "orders", recorder, concurrency=1, batch=4).start()
    recorder.wait()
    stopping = Caller(pool.stop)
    until(lambda: pool.concurrency == 0)
    recorder.open.set()
    stopping.done()

    assert len(recorder.numbers) == 4
    assert pool.counts == {"deleted": 4}
    assert queue.browse().num_rows == 6
    assert len(queue.fire("all")) == 6


def test_stop_reloads_the_messages_that_are_not_handled_in_time(store, queue):
    queue.load(orders(10))
    recorder = Recorder()
    pool = ConsumerPool(store, "orders", recorder, concurrency=1, batch=10, name="till").start()
    pool.stop()
    queue.load(orders(10, 10))
    recorder = Recorder(lambda message: (recorder.open.clear(), True)[1])
    recorder.messages.clear()
    pool = ConsumerPool(store, "orders", recorder, concurrency=1, batch=10, name="till").start()
    recorder.wait()
    recorder.wait()
    pool.stop(timeout=0.1)
    recorder.open.set()

    assert pool.counts["deleted"] == 1
    assert pool.counts["reloaded"] == 9
    again = queue.fire("all")
    assert len(again) == queue.browse().num_rows
    assert set(again.messages["_attempt"].to_pylist()) == {0}


def test_a_signal_stops_a_pool_that_is_being_started(store, queue, monkeypatch):
    """As one does whose handler stops what the program has."""
    recorder = Recorder()
    pool = ConsumerPool(store, "orders", recorder)
    start_again = life.start_again

    def interrupted(*given, **how):
        pool.stop()
        return start_again(*given, **how)

    with monkeypatch.context() as patched:
        patched.setattr(life, "start_again", interrupted)
        pool.start()
    queue.load(orders(3))
    assert pool.concurrency == 0
    assert recorder.messages == []

    with pool:
        assert pool.drain(PATIENCE)
    assert recorder.numbers == [0, 1, 2]


def test_a_signal_shortens_the_stop_of_a_pool(store, queue):
    queue.load(orders(1))
    recorder = Recorder()
    recorder.open.clear()
    pool = ConsumerPool(store, "orders", recorder, concurrency=1).start()
    recorder.wait()
    before = signal.signal(signal.SIGUSR1, lambda *_: pool.stop(timeout=0))
    try:
        begin = time.monotonic()
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        pool.stop(timeout=PATIENCE)
        assert time.monotonic() - begin < PATIENCE / 2
    finally:
        signal.signal(signal.SIGUSR1, before)
        recorder.open.set()

    assert pool.counts == {"reloaded": 1}
    assert len(queue.fire("all")) == 1


@pytest.mark.parametrize(
    ("scale", "step", "left"), [("increase", "start", 2), ("decrease", "end", 0)]
)
def test_a_signal_stops_a_pool_whose_workers_are_added_or_removed(
    store, queue, monkeypatch, scale, step, left
):
    """Another thread stops it: that of the signal would wait for itself."""
    pool = ConsumerPool(store, "orders", Recorder(), concurrency=1).start()
    real = getattr(worker.Worker, step)

    def interrupted(self):
        if isinstance(threading.current_thread(), Caller):
            pool.stop()
        real(self)

    monkeypatch.setattr(worker.Worker, step, interrupted)
    assert Caller(getattr(pool, scale)).done() == left
    until(lambda: pool.concurrency == 0)
    # It returns when the other thread has stopped it.
    pool.stop()
    assert pool.increase() == 0


@pytest.mark.usefixtures("quick_beats")
def test_a_consumer_of_the_same_name_ends_the_pool(store, other, queue, caplog):
    pool = ConsumerPool(store, "orders", Recorder(), name="till", handler_timeout=0.2).start()
    other.consumer("till")
    until(lambda: pool.error is not None)

    with pytest.raises(ConsumerFenced, match="'till' was started again elsewhere"):
        pool.stop()
    said = [record.getMessage() for record in caplog.records]
    ended = "pool of queue 'orders' ended: consumer 'till' was started again"
    assert any(ended in text for text in said)


def test_the_name_of_a_pool_tells_its_handler_and_its_host(store, queue):
    def charge(order):
        return True

    with ConsumerPool(store, "orders", charge):
        (name,) = store.view("consumers").column("consumer").to_pylist()

    assert re.fullmatch(rf"pool:charge@{re.escape(gethostname()[:80])}:{os.getpid()}:\w+", name)
    assert is_of_process(name)


def test_a_stopped_pool_has_no_interests_left(store, queue):
    with ConsumerPool(store, "orders", Recorder(), name="till", priority=3):
        (row,) = store.view("consumers").to_pylist()
        assert (row["priority"], row["interested"], row["claim"]) == (3, "orders", "shared")
    (row,) = store.view("consumers").to_pylist()
    assert row["interested"] is None
    with store.catalog.read() as connection:
        assert connection.execute(interests.interests.select()).all() == []


def test_a_removed_worker_finishes_before_the_pool_ends(store, queue):
    queue.load(orders(4))
    recorder = Recorder()
    recorder.open.clear()
    pool = ConsumerPool(store, "orders", recorder, concurrency=1, batch=4).start()
    recorder.wait()
    assert pool.decrease() == 0
    stopping = Caller(pool.stop)
    recorder.open.set()
    stopping.done()

    assert pool.counts == {"deleted": 4}


def test_a_worker_that_is_removed_during_an_outage_settles_after_it(store, queue, monkeypatch):
    """It ended its pool, with the error of the outage."""
    settle, tried, back = AcquiringSource.settle, threading.Semaphore(0), threading.Event()

    def away(self, outcomes):
        tried.release()
        if not back.is_set():
            raise CatalogUnavailable("away")
        return settle(self, outcomes)

    monkeypatch.setattr(AcquiringSource, "settle", away)
    monkeypatch.setattr(outcome_buffer, "RETRY_SECONDS", 0.01)
    queue.load(orders(1))
    with ConsumerPool(store, "orders", Recorder(), concurrency=2, tasks=[]) as pool:
        assert tried.acquire(timeout=PATIENCE)
        assert (pool.decrease(2), pool.increase()) == (0, 1)
        for _ in range(3):
            assert tried.acquire(timeout=PATIENCE)
        back.set()
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 1}


def test_an_outage_while_a_pool_asks_who_goes_first_does_not_end_it(store, queue, monkeypatch):
    ask, asked = AcquiringSource.held_back, threading.Event()

    def away(self):
        if not asked.is_set():
            asked.set()
            raise CatalogUnavailable("away")
        return ask(self)

    monkeypatch.setattr(AcquiringSource, "held_back", away)
    for module in (outage, worker):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.1)
    with ConsumerPool(store, "orders", Recorder(), concurrency=1, priority=1) as pool:
        assert asked.wait(PATIENCE)
        queue.load(orders(1))
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 1}


def test_drain_waits_for_what_a_removed_worker_gives_back(store, queue, monkeypatch):
    """Even if no notification and no look of the dispatcher comes to help."""
    monkeypatch.setattr(notifications, "notify", lambda *_: None)
    monkeypatch.setattr(dispatcher, "Poller", partial(Poller, blind=10 * PATIENCE))
    take, taken, go_on = AcquiringSource.take, threading.Event(), threading.Event()

    def late(self, limit):
        batch = take(self, limit)
        if batch is not None and not taken.is_set():
            taken.set()
            assert go_on.wait(PATIENCE)
        return batch

    monkeypatch.setattr(AcquiringSource, "take", late)
    queue.load(orders(1))
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, concurrency=1, tasks=[]) as pool:
        assert taken.wait(PATIENCE)
        assert pool.decrease() == 0
        pool.increase()
        opened = dispatcher.open_dispatcher(store.catalog, queue.info)
        manager = opened.manager
        until(lambda: not manager.has_work)
        looked = manager.arrival
        draining = Caller(lambda: (pool.drain(PATIENCE), recorder.numbers))
        # The worker that is left has found nothing, since the other one has it in hand.
        until(lambda: manager.arrival > looked and not manager.has_work)
        go_on.set()
        assert draining.done() == (True, [0])
        assert pool.counts == {"reloaded": 1, "deleted": 1}
    dispatcher.close_dispatcher(opened)


def test_a_stopped_pool_leaves_no_thread_behind(store, queue):
    """A thread that outlives the store would leave its connection to the catalog open."""
    before = set(threading.enumerate())
    queue.load(orders(5))
    with ConsumerPool(store, "orders", Recorder(), concurrency=2) as pool:
        assert pool.drain(PATIENCE)

    # The one that closes idle connections is the store's, and ends with them.
    left = set(threading.enumerate()) - before
    assert {thread.name for thread in left} <= {"ignis-idle-connections"}
    store.catalog.close()
    until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.parametrize("client", ["pool", "target"])
def test_all_dispatchers_of_a_client_end_before_one_of_them_is_waited_for(
    store, monkeypatch, client
):
    """Else a client of a hundred queues would wait for each of them in turn."""
    names, calls = ["one", "two", "three"], []
    for name in names:
        make_queue(store, name)

    class Noted(Loop):
        def end(self):
            calls.append("end")
            super().end()

        def stop(self, timeout=None):
            calls.append("stop")
            super().stop(timeout)

    if client == "pool":
        used = ConsumerPool(store, names, Recorder(), concurrency=1, tasks=[])
    else:
        used = ConsumerTarget(store, names, lambda: None)
    monkeypatch.setattr(dispatcher, "Loop", Noted)
    used.start()
    used.stop()

    assert calls[:3] == ["end"] * 3
    assert calls.count("stop") == 3


def test_a_pool_that_stops_during_an_outage_ends_all_the_same(store, queue, monkeypatch):
    """Else its heartbeat would keep sweeps from the messages that it holds."""
    before = {thread.name for thread in threading.enumerate()}
    queue.load(orders(5))
    pool = ConsumerPool(store, "orders", Recorder(), exclusive=True).start()
    assert pool.drain(PATIENCE)
    with monkeypatch.context() as gone:
        gone.setattr(AcquiringSource, "give_back", failing(CatalogUnavailable("gone")))
        with pytest.raises(CatalogUnavailable, match="gone"):
            pool.stop()

    left = {thread.name for thread in threading.enumerate()} - before
    assert left <= {"ignis-idle-connections"}
    queue.load(orders(5, 5))
    with pool:
        assert pool.drain(PATIENCE)
    assert pool.counts == {"deleted": 10}


def test_a_settlement_that_fails_at_the_stop_keeps_no_other_messages_in_flight(
    store, queue, monkeypatch
):
    settle, settled = AcquiringSource.settle, []

    def fails_once(self, outcomes):
        settled.append(outcomes)
        if len(settled) == 1:
            raise CatalogUnavailable("busy")
        return settle(self, outcomes)

    queue.load(orders(2))
    recorder = Recorder()
    recorder.open.clear()
    pool = ConsumerPool(store, "orders", recorder, concurrency=2, batch=1, tasks=[]).start()
    recorder.wait()
    recorder.wait()
    monkeypatch.setattr(AcquiringSource, "settle", fails_once)
    with pytest.raises(CatalogUnavailable, match="busy"):
        pool.stop(timeout=0.1)
    recorder.open.set()

    assert len(settled) == 2
    assert store.view("queues", "orders")["in_flight"].to_pylist() == [1]


def test_a_pool_that_cannot_start_claims_nothing(store, queue, monkeypatch):
    pool = ConsumerPool(store, "orders", Recorder(), exclusive=True, breaker=Breaker())
    with monkeypatch.context() as gone:
        gone.setattr(SharedBreaker, "look", failing(CatalogUnavailable("gone")))
        with pytest.raises(CatalogUnavailable, match="gone"):
            pool.start()

    assert "ignis-heartbeat" not in {thread.name for thread in threading.enumerate()}
    queue.load(orders(5))
    with pool:
        assert pool.drain(PATIENCE)


def test_a_pool_whose_last_thread_cannot_start_ends_the_others(store, queue, monkeypatch):
    """Else they would fire for ever, for a consumer that has left."""
    before = set(threading.enumerate())
    refused = failing(RuntimeError("can't start new thread"))
    monkeypatch.setattr(background, "background_tasks", refused)
    with pytest.raises(RuntimeError, match="new thread"):
        ConsumerPool(store, "orders", Recorder(), concurrency=2).start()

    def left():
        return {thread.name for thread in set(threading.enumerate()) - before}

    until(lambda: left() <= {"ignis-idle-connections"})


def test_a_queue_for_which_there_was_no_thread_has_one_in_the_next_pool(store, queue, monkeypatch):
    refused = failing(RuntimeError("can't start new thread"))
    with monkeypatch.context() as crowded:
        crowded.setattr(threading.Thread, "start", only_for("ignis-dispatcher-orders", refused))
        with pytest.raises(RuntimeError, match="new thread"):
            ConsumerPool(store, "orders", Recorder()).start()

    with ConsumerPool(store, "orders", Recorder()) as pool:
        assert pool.drain(PATIENCE)
        queue.load(orders(3))
        until(lambda: pool.counts == {"deleted": 3})


def test_a_pool_whose_worker_cannot_start_says_why(store, queue, monkeypatch):
    refused = failing(RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading.Thread, "start", only_for("worker 2", refused))
    pool = ConsumerPool(store, "orders", Recorder(), concurrency=2)
    with pytest.raises(RuntimeError, match="new thread"):
        pool.start()

    until(lambda: "worker 1" not in {thread.name for thread in threading.enumerate()})


@pytest.mark.usefixtures("quick_beats")
def test_a_pool_has_all_its_workers_once_there_are_threads_for_them(store, queue, monkeypatch):
    refused = failing(RuntimeError("can't start new thread"))
    monkeypatch.setattr(threading.Thread, "start", only_for("worker 2", refused))
    queue.admin.change_settings(concurrency=1)
    before = set(threading.enumerate())

    def working():
        new = set(threading.enumerate()) - before
        return sum(each.name.startswith("worker ") for each in new)

    # The pool looks after its workers four times within the limit of a call.
    with ConsumerPool(store, "orders", Recorder(), handler_timeout=1.0) as pool:
        until(lambda: working() == 1)
        queue.admin.change_settings(concurrency=4)
        until(lambda: working() == 4)
        assert pool.concurrency == 4


def test_a_pool_can_be_started_again(store, queue):
    recorder = Recorder()
    pool = ConsumerPool(store, "orders", recorder)
    for first in (0, 5):
        queue.load(orders(5, first))
        with pool:
            assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(10))
    with pytest.raises(BadOption, match="was not started"):
        ConsumerPool(store, "orders", recorder).drain()
