"""`ConsumerPool`: the outcomes of messages, the workers, and the arguments it refuses."""

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from unittest import mock

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, Later, Pressure, Queue, batch_handler
from queue_core.catalog.poller import Poller
from queue_core.consumers import trace
from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.manager import NotifyReason
from queue_core.consumers.trace import Step
from queue_core.errors import BadOption, BadSelector, SchemaMismatch
from queue_core.pool import dispatcher, outcome_buffer
from queue_core.pool.dispatcher import close_dispatcher, notify_loaded, open_dispatcher
from queue_core.queue.opened import OpenedQueue
from tests.contract.pools import Recorder
from tests.factories import make_queue, numbers_of, orders
from tests.waiting import PATIENCE, until


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2)


def failures(queue):
    return {(row["kind"], row["reason"]) for row in queue.failures().to_pylist()}


def in_flight(store):
    (row,) = store.view("queues").to_pylist()
    return row["in_flight"]


# The handler's contract.


def test_true_deletes_and_each_message_is_handled_once(store, queue):
    queue.load(orders(500))
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, concurrency=3) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 500}

    assert recorder.numbers == list(range(500))
    assert queue.browse().num_rows == 0
    assert set(recorder.messages[0]) == {
        "number", "customer", "amount", "_message_id", "_queue", "_attempt"
    }  # fmt: skip


def test_outcomes_are_settled_though_one_vain_look_follows_another(store, queue, monkeypatch):
    """A look for suspects, which wait for these outcomes, may last until the next one is due."""
    pull = QueueConsumer.pull

    def look(consumer, limit):
        found = pull(consumer, limit)
        time.sleep(0.01)
        consumer.notify_work()
        return found

    monkeypatch.setattr(QueueConsumer, "pull", look)
    queue.load(orders(5))
    with ConsumerPool(store, "orders", Recorder(), concurrency=1) as pool:
        until(lambda: pool.counts == {"deleted": 5})


def test_failures_are_sidelined_with_their_reason_and_ignorable_ones_deleted(store, queue):
    queue.load(orders(6))

    def handler(message):
        match message["number"]:
            case 0:
                return False
            case 1:
                raise ValueError("no funds")
            case 2:
                raise KeyError("who")
            case 3:
                return None
        return True

    with ConsumerPool(store, "orders", handler, concurrency=1, ignorable=KeyError) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 2, "sidelined": 3, "ignored": 1}

    assert sorted(numbers_of(queue.peek(10, magazine="sideline"))) == [0, 1, 3]
    assert failures(queue) == {
        ("rejected", None),
        ("exception", "ValueError: no funds"),
        ("undecided", "not a bool: the handler returned NoneType"),
    }


def test_a_batch_handler_is_given_record_batches(store, queue):
    queue.load(orders(250))
    sizes = []

    @batch_handler
    def handler(batch):
        sizes.append(batch.num_rows)
        return [number != 7 for number in batch.column("number").to_pylist()]

    with ConsumerPool(store, "orders", handler, concurrency=1, batch=100) as pool:
        assert pool.drain(PATIENCE)

    assert sizes == [100, 100, 50]
    assert numbers_of(queue.peek(10, magazine="sideline")) == [7]


@dataclass
class Paid:
    amount: int


def test_payloads_are_objects_and_unreadable_ones_reach_no_handler(store):
    queue = make_queue(store, "paid", pa.schema([("value", pa.string())]))
    queue.load([{"value": '{"amount": 3}'}, {"value": "no json"}])
    seen = []

    def handler(message, columns):
        seen.append((message, columns["_attempt"]))
        return True

    with ConsumerPool(
        store, "paid", handler, payload="value", payload_type=Paid, with_metadata=True
    ) as pool:
        assert pool.drain(PATIENCE)

    assert seen == [(Paid(3), 0)]
    assert [kind for kind, _ in failures(queue)] == ["unreadable"]


@pytest.mark.parametrize("busy", [False, True])
def test_a_call_that_takes_too_long_is_timed_out_and_the_rest_is_handled(store, queue, busy):
    queue.load(orders(5))
    hung, over = threading.Event(), threading.Event()
    interrupted = threading.Event()

    def handler(message):
        if message["number"] == 0:
            hung.set()
            try:
                while not over.is_set():
                    if not busy:
                        over.wait(PATIENCE)
            except BaseException:
                interrupted.set()
                raise
        return True

    with ConsumerPool(store, "orders", handler, concurrency=1, handler_timeout=1.0) as pool:
        assert hung.wait(PATIENCE)
        until(lambda: sum(pool.counts.values()) == 5)
        assert pool.counts == {"deleted": 4, "sidelined": 1}
        # A call that computes is interrupted; one that blocks is not.
        assert interrupted.wait(PATIENCE if busy else 0.0) is busy
        over.set()

    assert failures(queue) == {("timeout", "not done after 1 s")}


def test_several_queues_have_one_handler(store, queue):
    make_queue(store, "refunds").load(orders(30, 1000))
    queue.load(orders(30))
    recorder = Recorder()
    with ConsumerPool(store, ["orders", "refunds"], recorder, concurrency=2, batch=7) as pool:
        assert pool.drain(PATIENCE)

    assert Counter(message["_queue"] for message in recorder.messages) == {
        "orders": 30,
        "refunds": 30,
    }


def test_a_pool_chooses_by_selector_and_order(store, queue):
    queue.load(orders(10))
    recorder = Recorder()
    how = {"selector": "number >= 5", "order_by": "number DESC"}
    with ConsumerPool(store, "orders", recorder, concurrency=1, **how) as pool:
        assert pool.drain(PATIENCE)

    assert [message["number"] for message in recorder.messages] == [9, 8, 7, 6, 5]
    assert sorted(numbers_of(queue.peek(10))) == [0, 1, 2, 3, 4]


def test_the_sideline_can_be_handled_too(store, queue):
    queue.load(orders(2))
    queue.sideline(queue.fire("all"))
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, magazine="sideline", columns=["number"]) as pool:
        assert pool.drain(PATIENCE)

    assert (
        sorted(tuple(message) for message in recorder.messages) == [("number", "_message_id")] * 2
    )


# The workers.


@pytest.mark.parametrize("how", ["load", "reload", "shovel", "sweep", "sideline"])
def test_an_idle_pool_is_woken_by_any_new_message(store, queue, how):
    aside = how in ("sweep", "sideline")
    queue.load(orders(1))
    firing = queue.fire("all")
    if how == "shovel":
        queue.sideline(firing)
    recorder = Recorder()
    magazine = "sideline" if aside else "main"
    with ConsumerPool(store, "orders", recorder, concurrency=2, magazine=magazine) as pool:
        assert pool.drain(PATIENCE)
        if how == "load":
            queue.load(orders(1))
        elif how in ("reload", "sideline"):
            getattr(queue, how)(firing)
        elif how == "shovel":
            queue.shovel()
        else:
            queue.sweep(0.0)
        recorder.wait()
        assert pool.drain(PATIENCE)
    queue.delete(firing)


def test_a_message_wakes_one_worker_and_its_firing_and_settlement_wake_none(store, queue):
    dispatcher = open_dispatcher(store.catalog, queue.info)
    reasons = dispatcher.manager.reasons
    with ConsumerPool(store, "orders", Recorder(), concurrency=3, tasks=[]) as pool:
        assert pool.drain(PATIENCE)
        # The dispatcher looks ten times a second.
        time.sleep(0.3)
        before = reasons[NotifyReason.ARRIVAL]
        queue.load(orders(1))
        until(lambda: pool.counts == {"deleted": 1})
        time.sleep(0.3)
        assert reasons[NotifyReason.ARRIVAL] == before + 1
    close_dispatcher(dispatcher)


@pytest.mark.parametrize("prefetched", [False, True])
def test_one_message_wakes_one_worker_even_if_it_fills_its_batch(store, queue, prefetched):
    dispatcher = open_dispatcher(store.catalog, queue.info)
    manager, reasons = dispatcher.manager, dispatcher.manager.reasons
    # With limits in flight, a pool fires no messages ahead.
    how = {} if prefetched else {"max_in_flight": 50}
    with ConsumerPool(store, "orders", Recorder(), concurrency=3, batch=1, tasks=[], **how) as pool:
        assert pool.drain(PATIENCE)
        for count in range(1, 6):
            time.sleep(0.1)
            by_time, others = reasons[NotifyReason.AVAILABLE], manager.wakeups
            queue.load(orders(1))
            until(lambda: pool.counts == {"deleted": count})  # noqa: B023
            assert reasons[NotifyReason.MORE] == 0
            by_time = reasons[NotifyReason.AVAILABLE] - by_time
            assert manager.wakeups - others <= 1 + by_time
    close_dispatcher(dispatcher)


def test_a_message_is_for_the_worker_that_has_nothing_to_do_and_not_for_one_in_a_call(store, queue):
    other = make_queue(store, "other")
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, ["orders", "other"], recorder, concurrency=4, batch=1, tasks=[]):
        queue.load(orders(3))
        for _ in range(3):
            recorder.wait()
        # Nobody looks again after a second.
        dispatcher = open_dispatcher(store.catalog, other.info)
        dispatcher.loop.stop()
        other.load(orders(1))
        notify_loaded(store.catalog, other.info)
        # Before the calls in progress end by themselves.
        assert recorder.entered.acquire(timeout=PATIENCE / 2)
        recorder.open.set()
    close_dispatcher(dispatcher)


def test_a_message_is_not_for_a_worker_that_is_about_to_take_one_of_another_queue(store, queue):
    other = make_queue(store, "other")
    recorder = Recorder()
    recorder.open.clear()
    dispatchers = [open_dispatcher(store.catalog, each.info) for each in (queue, other)]
    with ConsumerPool(
        store, ["orders", "other"], recorder, concurrency=1, batch=1, tasks=[]
    ) as pool:
        assert pool.drain(PATIENCE)
        # Nobody looks again after a second.
        for each in dispatchers:
            each.loop.stop()
        # The first worker has waited longest, for both.
        pool.increase()
        for each in (queue, other):
            each.load(orders(1))
        for each in (queue, other):
            notify_loaded(store.catalog, each.info)
        for _ in range(2):
            # Before the call in progress ends by itself.
            assert recorder.entered.acquire(timeout=PATIENCE / 2)
        recorder.open.set()
    close_dispatcher(*dispatchers)


def test_a_load_of_some_wakes_as_many_workers(store, queue):
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, "orders", recorder, concurrency=5, batch=1, tasks=[]) as pool:
        queue.load(orders(4))
        for _ in range(4):
            recorder.wait()
        recorder.open.set()
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 4}
    assert len(recorder.threads) == 4


def test_increase_and_decrease(store, queue):
    with ConsumerPool(store, "orders", Recorder(), concurrency=2) as pool:
        assert (pool.concurrency, pool.increase(3), pool.decrease()) == (2, 5, 4)
        assert (pool.increase(1000), pool.decrease(98), pool.decrease(98)) == (100, 2, 0)
        queue.load(orders(3))
        assert not pool.drain(0.2)
        pool.increase()
        assert pool.drain(PATIENCE)
        # A worker that was removed while it fired them may have given them back.
        assert pool.counts["deleted"] == 3
        assert pool.counts.keys() <= {"deleted", "reloaded"}
    # Its watcher may be following the queue's setting while it stops.
    assert (pool.increase(2), pool.concurrency) == (0, 0)


def test_the_queue_or_the_pool_sets_the_number_of_workers(store):
    make_queue(store, "few", concurrency=3)
    for given, workers in ((None, 3), (101, 100)):
        with ConsumerPool(store, "few", Recorder(), concurrency=given, tasks=[]) as pool:
            assert pool.concurrency == workers


def test_nobody_gets_less_than_half_of_a_fair_share(store, queue):
    queue.load(orders(20_000))

    def rest(_):
        time.sleep(1e-4)
        return True

    recorder = Recorder(rest)
    with ConsumerPool(store, "orders", recorder, concurrency=10) as pool:
        assert pool.drain(PATIENCE)

    assert sum(recorder.threads.values()) == 20_000
    assert len(recorder.threads) == 10
    assert min(recorder.threads.values()) >= 1_000


def test_a_paused_pool_finishes_and_takes_nothing_more(store, queue):
    queue.load(orders(10))
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, "orders", recorder, concurrency=1, batch=2) as pool:
        recorder.wait()
        pool.pause()
        recorder.open.set()
        until(lambda: pool.counts == {"deleted": 2})
        until(lambda: "0 messages in hand" in repr(pool))
        assert not pool.drain(0.1)
        assert len(recorder.messages) == 2
        pool.resume()
        assert pool.drain(PATIENCE)

    assert len(recorder.messages) == 10


def test_of_a_pause_and_a_resume_at_the_same_time_the_last_one_counts(store, queue, monkeypatch):
    """The workers that the pause came to last stayed suspended."""
    suspend, others = QueueConsumer.suspend, []

    def late(consumer, reason):
        if not others:
            others.append(reason)
            pool.resume()
        suspend(consumer, reason)

    with ConsumerPool(store, "orders", Recorder(), concurrency=3) as pool:
        monkeypatch.setattr(QueueConsumer, "suspend", late)
        pool.pause()
        queue.load(orders(5))
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 5}
        assert others == [SuspendReason.FLOW_CONTROL]


def test_back_pressure_suspends_all_pools_of_the_process(store, queue):
    pressure = Pressure()
    pressure.apply()
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, concurrency=2, pressure=pressure) as pool:
        queue.load(orders(5))
        assert not pool.drain(0.3)
        assert recorder.messages == []
        pressure.relieve()
        assert pool.drain(PATIENCE)
    assert recorder.numbers == [0, 1, 2, 3, 4]


def test_no_more_is_in_flight_than_the_credit(store, queue):
    queue.load(orders(30))
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, "orders", recorder, concurrency=4, batch=3, max_in_flight=5) as pool:
        recorder.wait()
        recorder.wait()
        until(lambda: in_flight(store) == 5)
        assert not pool.drain(0.1)
        assert in_flight(store) == 5
        recorder.open.set()
        assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(30))


def test_prefetched_messages_go_back_when_the_pool_is_paused(store, queue):
    queue.load(orders(20_000))
    recorder = Recorder()
    with ConsumerPool(
        store, "orders", recorder, concurrency=2, batch=10, handler_timeout=2
    ) as pool:
        # The handler is quick, so that more and more is fired at once.
        until(lambda: len(recorder.messages) > 500)
        pool.pause()
        until(lambda: queue.metadata()["in_flight"].to_pylist() == [0] * 4)
        assert 0 < queue.browse().num_rows < 20_000
        pool.resume()
        assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(20_000))


def test_drain_waits_for_prefetched_messages_that_go_back(store, queue, monkeypatch):
    """The pool goes on before they are back, and finds nothing meanwhile."""
    settle, begun, go_on = Queue.settle, threading.Event(), threading.Event()

    def slowly(self, outcomes, *given):
        if outcomes.reloaded:
            begun.set()
            assert go_on.wait(PATIENCE)
        return settle(self, outcomes, *given)

    monkeypatch.setattr(Queue, "settle", slowly)
    queue.load(orders(20_000))
    recorder = Recorder()
    with ConsumerPool(
        store, "orders", recorder, concurrency=2, batch=10, handler_timeout=2, tasks=[]
    ) as pool:
        until(lambda: len(recorder.messages) > 500)
        while not begun.is_set():
            # At a pause, all messages may be in the hands of workers.
            pool.pause()
            begun.wait(0.5)
            pool.resume()
        assert not pool.drain(0.6)
        go_on.set()
        assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(20_000))


# Browsers.


def test_a_browser_sees_every_message_once_and_takes_none(store, queue):
    queue.load(orders(120))
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, browse=True, name="looker", batch=50) as pool:
        assert pool.drain(PATIENCE)
        queue.load(orders(30, 120))
        until(lambda: len(recorder.messages) == 150)
    with ConsumerPool(store, "orders", recorder, browse=True, name="looker") as pool:
        assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(150))
    assert queue.browse().num_rows == 150
    assert len(queue.fire("all")) == 150


def test_the_handler_of_a_browser_may_return_nothing(store, queue):
    """It ended its pool, and the next one of its name passed over the rest of the batch."""
    queue.load(orders(3))
    shown = []
    with ConsumerPool(store, "orders", shown.append, browse=True) as pool:
        assert pool.drain(PATIENCE)
    assert sorted(message["number"] for message in shown) == [0, 1, 2]


def test_what_the_handler_of_a_browser_raises_is_logged(store, queue, caplog):
    """Nobody heard of it, since a browser settles nothing."""
    caplog.set_level("INFO", "queue_core.handling.failure_log")
    queue.load(orders(3))

    def handler(message):
        raise ValueError("no such customer")

    with ConsumerPool(store, "orders", handler, browse=True) as pool:
        assert pool.drain(PATIENCE)
    assert "failed: exception: ValueError: no such customer" in caplog.text
    assert queue.failures().num_rows == 0


def test_a_browser_of_several_queues_sees_every_message_once(store):
    names = ["a", "b", "c"]
    queues = [make_queue(store, name, shards=2) for name in names]
    recorder, loaded = Recorder(), Counter()

    def load(queue, count, first):
        queue.load(orders(count, first))
        loaded.update((queue.name, number) for number in range(first, first + count))

    def seen():
        return Counter((each["_queue"], each["number"]) for each in recorder.messages)

    how = {"browse": True, "name": "looker", "batch": 7, "concurrency": 4}
    for first in (0, 40):
        for queue in queues:
            load(queue, 40, first)
        with ConsumerPool(store, names, recorder, **how) as pool:
            assert pool.drain(PATIENCE)
            assert seen() == loaded
            load(queues[1], 10, 1000 + first)
            until(lambda: len(seen()) == len(loaded))
            assert pool.drain(PATIENCE)
        assert seen() == loaded
    assert all(len(queue.fire("all")) == queue.browse().num_rows for queue in queues)


# The twelve steps.


def test_the_twelve_steps_from_the_arrival_of_a_message_to_its_delivery(store, queue):
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, concurrency=1) as pool:
        assert pool.drain(PATIENCE)
        with trace.tracing() as traced:
            queue.load(orders(1))
            recorder.wait()
            until(lambda: Step.DELIVERED in traced.steps)
        assert pool.drain(PATIENCE)

    # Other changes of the catalog may have notified consumers meanwhile.
    way, steps = [], traced.steps[: traced.steps.index(Step.DELIVERED) + 1]
    for step in reversed(Step):
        assert step in steps, f"{step!r} is missing in\n{traced}"
        while steps[-1] is not step:
            steps.pop()
        way.insert(0, traced.taken[len(steps) - 1])
    assert [taken.step for taken in way] == list(Step)
    assert [taken.thread for taken in way] == ["ignis-dispatcher-orders"] * 6 + ["worker 1"] * 6
    assert "12. worker 1 of orders: delivered" in str(traced)


# Invalid arguments.


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"batch": 0}, BadOption, "batch=0: use a whole number, 1 or more"),
        ({"concurrency": -1}, BadOption, "concurrency=-1: use a whole number, 0 or more"),
        ({"priority": "high"}, BadOption, "priority='high'"),
        ({"max_in_flight": -1}, BadOption, "max_in_flight=-1"),
        ({"max_bytes": 0}, BadOption, "max_bytes=0: use a whole number, 1 or more"),
        ({"max_bytes": "1MB"}, BadOption, "max_bytes='1MB'"),
        ({"magazine": "sidline"}, BadOption, "magazine='sidline'"),
        ({"exclusive": True, "single_active": True}, BadOption, "has no spares"),
        ({"browse": True, "max_in_flight": 1}, BadOption, "browse=True cannot be combined"),
        ({"browse": True, "selector": "true"}, BadOption, "browse=True cannot be combined"),
        ({"selector": "amont > 1"}, BadSelector, "amont"),
        ({"columns": ["amont"]}, SchemaMismatch, "'amont'"),
        ({"columns": "amount"}, BadOption, "give a list"),
        ({"payload": "amount"}, BadOption, "is double, not string or binary"),
        ({"payload_type": Paid}, BadOption, "need payload="),
        ({"handler_timeout": 10**6}, BadOption, "handler_timeout"),
        ({"handler": 5}, BadOption, "handler=5"),
    ],
)
def test_invalid_arguments_are_refused_before_anything_is_started(
    store, queue, how, error, message
):
    with pytest.raises(error, match=message):
        ConsumerPool(store, "orders", **{"handler": Recorder(), **how})
    assert store.view("consumers").num_rows == 0


# Groups.


@pytest.mark.parametrize(("concurrency", "batch", "shards"), [(1, 10, 1), (3, 5, 2), (1, 1, 1)])
def test_drain_waits_for_those_that_wait_for_others_of_their_group(
    store, concurrency, batch, shards
):
    queue = make_queue(store, "grouped", shards=shards, group="customer")
    queue.load(orders(30, customers=4))

    with ConsumerPool(store, "grouped", Recorder(), concurrency=concurrency, batch=batch) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 30}


@pytest.mark.each_catalog
def test_others_of_a_group_do_not_wait_for_a_slow_call_that_follows(store, monkeypatch):
    """The outcome of the first one waited in the hands of the worker."""
    monkeypatch.setattr(outcome_buffer, "LINGER_SECONDS", 0.5)
    queue = make_queue(store, "grouped", group="customer")
    queue.load(
        [
            {"number": number, "customer": customer, "amount": 1.0}
            for number, customer in enumerate("aba")
        ]
    )
    called, over = threading.Event(), threading.Event()

    def handler(message):
        if message["number"] == 1:
            called.set()
            assert over.wait(PATIENCE)
        return True

    with ConsumerPool(store, "grouped", handler, concurrency=1, batch=1) as pool:
        assert called.wait(PATIENCE)
        pool.increase()
        # If they wait for the call, it fails, and is counted too.
        until(lambda: pool.counts == {"deleted": 2})
        over.set()
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 3}


def test_messages_that_were_taken_away_are_counted_as_lost(store, queue):
    queue.load(orders(4))

    def handle(message):
        if message["number"] == 2:
            # Meanwhile, an operator sweeps what is in flight.
            assert queue.sweep(older_than=0, dead_after=0) > 0
        return True

    with ConsumerPool(store, "orders", handle, concurrency=1, batch=4) as pool:
        assert pool.drain(PATIENCE)
        counts = dict(pool.counts)
    swept = queue.browse(magazine="sideline").num_rows
    assert swept >= 1
    assert counts == {"lost": swept} | ({"deleted": 4 - swept} if swept < 4 else {})


def test_a_message_that_comes_alone_is_fired_and_settled_and_nothing_else(
    store, queue, monkeypatch
):
    """Not even to see that no other one has come."""
    fired, fire = [], OpenedQueue.fire
    rarely = partial(Poller, blind=10 * PATIENCE)
    monkeypatch.setattr(dispatcher, "Poller", rarely)

    def counted(self, *given, **how):
        fired.append(fire(self, *given, **how))
        return fired[-1]

    with ConsumerPool(store, "orders", lambda message: True, concurrency=2) as pool:
        assert pool.drain(PATIENCE)
        with mock.patch.object(OpenedQueue, "fire", counted):
            for number in range(5):
                queue.load(orders(1, number))
                until(lambda number=number: pool.counts == {"deleted": number + 1})

    assert [len(each.messages) for each in fired] == [1] * 5


# A person acts beside the pool.


def test_a_message_put_back_during_its_call_is_handled_again_and_settled_once(store, queue):
    """Both calls are settled together, since the worker is quick."""
    queue.load(orders(1))
    attempts = []

    def handler(message):
        attempts.append(message["number"])
        if len(attempts) > 1:
            return True
        assert queue.choose("all").reload(consumer="till") == 1
        return False

    with ConsumerPool(store, "orders", handler, name="till", concurrency=1) as pool:
        until(lambda: queue.browse().num_rows == 0)
        assert pool.error is None

    assert attempts == [0, 0]
    assert queue.browse(magazine="sideline").num_rows == 0


def test_a_pool_survives_a_person_who_puts_its_messages_back_again_and_again(store, queue):
    queue.load(orders(200))
    failed = set()

    def handler(message):
        time.sleep(0.002)
        if message["number"] % 3 or message["number"] in failed:
            return True
        failed.add(message["number"])
        raise Later(0.05)

    with ConsumerPool(store, "orders", handler, name="till", concurrency=6, batch=10) as pool:
        for _ in range(20):
            queue.choose("all").reload(consumer="till")
            time.sleep(0.02)
        # Drain alone would not do: it does not wait for messages that are put off.
        until(lambda: queue.browse().num_rows == queue.browse(magazine="sideline").num_rows == 0)
        assert pool.drain(PATIENCE)

    assert queue.browse().num_rows == queue.browse(magazine="sideline").num_rows == 0


def test_two_threads_may_stop_a_pool_at_once(store, queue):
    with ThreadPoolExecutor(4) as threads:
        for _ in range(5):
            pool = ConsumerPool(store, "orders", lambda message: True, concurrency=2).start()
            together = threading.Barrier(4)

            def stop(pool=pool, together=together):
                together.wait()
                pool.stop()

            for future in [threads.submit(stop) for _ in range(4)]:
                future.result(PATIENCE)


def test_the_message_with_which_a_handler_stops_its_pool_is_settled(store, queue):
    queue.load(orders(1))
    pool = ConsumerPool(store, "orders", lambda _: pool.stop() is None, concurrency=2)
    pool.start()
    until(lambda: pool.concurrency == 0)
    # Another call waits for the end.
    pool.stop()
    assert pool.counts == {"deleted": 1}
    assert queue.browse().num_rows == in_flight(store) == 0
