"""`ConsumerPool`: what becomes of messages, who works, and how it ends."""

import threading
import time
from collections import Counter
from dataclasses import dataclass

import pyarrow as pa
import pytest

from queue_core import ConsumerPool, Pressure, batch_handler
from queue_core.catalog import interests
from queue_core.consumers import trace
from queue_core.consumers.trace import Step
from queue_core.errors import BadOption, BadSelector, ConsumerFenced, QueueTaken, SchemaMismatch
from tests.factories import make_queue, numbers_of, orders

PATIENCE = 30.0


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2)


class Box:
    """A handler that keeps what it was given, and can be made to wait."""

    def __init__(self, verdict=lambda message: True):
        self.messages = []
        self.threads = Counter()
        self.verdict = verdict
        self.open = threading.Event()
        self.open.set()
        self.entered = threading.Semaphore(0)

    def __call__(self, message):
        self.entered.release()
        assert self.open.wait(PATIENCE)
        self.messages.append(message)
        self.threads[threading.current_thread().name] += 1
        return self.verdict(message)

    @property
    def numbers(self):
        return sorted(message["number"] for message in self.messages)

    def wait(self):
        """Until a call has begun."""
        assert self.entered.acquire(timeout=PATIENCE)


def eventually(what):
    end = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def failures(queue):
    return {(row["kind"], row["reason"]) for row in queue.failures().to_pylist()}


# The handler's contract.


def test_true_deletes_and_each_message_is_handled_once(store, queue):
    queue.load(orders(500))
    box = Box()
    with ConsumerPool(store, "orders", box, concurrency=3) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 500}

    assert box.numbers == list(range(500))
    assert queue.browse().num_rows == 0
    assert set(box.messages[0]) == {
        "number", "customer", "amount", "_message_id", "_queue", "_attempt"
    }  # fmt: skip


def test_what_fails_is_sidelined_with_its_reason_and_what_is_ignorable_deleted(store, queue):
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


def test_payloads_are_objects_and_what_cannot_be_read_reaches_no_handler(store):
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
def test_a_call_that_takes_too_long_is_given_up_and_the_rest_is_handled(store, queue, busy):
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

    with ConsumerPool(store, "orders", handler, concurrency=1, handler_timeout=0.2) as pool:
        assert hung.wait(PATIENCE)
        eventually(lambda: sum(pool.counts.values()) == 5)
        assert pool.counts == {"deleted": 4, "sidelined": 1}
        # What only computes is interrupted; what waits for others is left alone.
        assert interrupted.wait(PATIENCE if busy else 0.0) is busy
        over.set()

    assert failures(queue) == {("timeout", "not done after 0.2 s")}


def test_several_queues_have_one_handler(store, queue):
    make_queue(store, "refunds").load(orders(30, 1000))
    queue.load(orders(30))
    box = Box()
    with ConsumerPool(store, ["orders", "refunds"], box, concurrency=2, batch=7) as pool:
        assert pool.drain(PATIENCE)

    assert Counter(message["_queue"] for message in box.messages) == {"orders": 30, "refunds": 30}


def test_a_pool_chooses_by_selector_and_order(store, queue):
    queue.load(orders(10))
    box = Box()
    how = {"selector": "number >= 5", "order_by": "number DESC"}
    with ConsumerPool(store, "orders", box, concurrency=1, **how) as pool:
        assert pool.drain(PATIENCE)

    assert [message["number"] for message in box.messages] == [9, 8, 7, 6, 5]
    assert sorted(numbers_of(queue.peek(10))) == [0, 1, 2, 3, 4]


def test_the_sideline_can_be_handled_too(store, queue):
    queue.load(orders(2))
    queue.sideline(queue.fire())
    box = Box()
    with ConsumerPool(store, "orders", box, magazine="sideline", columns=["number"]) as pool:
        assert pool.drain(PATIENCE)

    assert sorted(tuple(message) for message in box.messages) == [("number", "_message_id")] * 2


# Who works.


@pytest.mark.parametrize("how", ["load", "reload", "shovel", "sweep", "sideline"])
def test_an_idle_pool_is_woken_by_whatever_comes(store, queue, how):
    aside = how in ("sweep", "sideline")
    queue.load(orders(1))
    firing = queue.fire()
    if how == "shovel":
        queue.sideline(firing)
    box = Box()
    magazine = "sideline" if aside else "main"
    with ConsumerPool(store, "orders", box, concurrency=2, magazine=magazine) as pool:
        assert pool.drain(PATIENCE)
        if how == "load":
            queue.load(orders(1))
        elif how in ("reload", "sideline"):
            getattr(queue, how)(firing)
        elif how == "shovel":
            queue.shovel()
        else:
            queue.sweep(0.0)
        box.wait()
        assert pool.drain(PATIENCE)
    queue.delete(firing)


def test_increase_and_decrease(store, queue):
    with ConsumerPool(store, "orders", Box(), concurrency=2) as pool:
        assert (pool.concurrency, pool.increase(3), pool.decrease()) == (2, 5, 4)
        assert (pool.increase(1000), pool.decrease(98), pool.decrease(98)) == (100, 2, 0)
        queue.load(orders(3))
        assert not pool.drain(0.2)
        pool.increase()
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 3}


def test_as_many_workers_as_the_queue_says(store):
    make_queue(store, "few", concurrency=3)
    with ConsumerPool(store, "few", Box()) as pool:
        assert pool.concurrency == 3


def test_all_workers_work_when_there_is_enough_to_do(store, queue):
    queue.load(orders(40))
    box = Box()
    box.open.clear()
    with ConsumerPool(store, "orders", box, concurrency=4, batch=2) as pool:
        for _ in range(4):
            box.wait()
        box.open.set()
        assert pool.drain(PATIENCE)

    assert len(box.threads) == 4


def test_a_paused_pool_finishes_and_takes_nothing_more(store, queue):
    queue.load(orders(10))
    box = Box()
    box.open.clear()
    with ConsumerPool(store, "orders", box, concurrency=1, batch=2) as pool:
        box.wait()
        pool.pause()
        box.open.set()
        eventually(lambda: pool.counts == {"deleted": 2})
        assert pool._workers[0].work is None
        pool.resume()
        assert pool.drain(PATIENCE)

    assert len(box.messages) == 10


def test_back_pressure_holds_all_pools_of_the_process(store, queue):
    pressure = Pressure()
    pressure.apply()
    box = Box()
    with ConsumerPool(store, "orders", box, concurrency=2, pressure=pressure) as pool:
        queue.load(orders(5))
        assert not pool.drain(0.3)
        assert box.messages == []
        pressure.relieve()
        assert pool.drain(PATIENCE)
    assert box.numbers == [0, 1, 2, 3, 4]


def test_no_more_is_in_flight_than_the_credit(store, queue):
    queue.load(orders(30))
    box = Box()
    box.open.clear()
    with ConsumerPool(store, "orders", box, concurrency=4, batch=3, max_in_flight=5) as pool:
        box.wait()
        box.wait()
        eventually(lambda: pool._credit.missing_for() > 0)
        (row,) = store.view("queues").to_pylist()
        assert row["in_flight"] == 5
        box.open.set()
        assert pool.drain(PATIENCE)

    assert box.numbers == list(range(30))


# Browsers.


def test_a_browser_sees_every_message_once_and_takes_none(store, queue):
    queue.load(orders(120))
    box = Box()
    with ConsumerPool(store, "orders", box, browse=True, name="looker", batch=50) as pool:
        assert pool.drain(PATIENCE)
        queue.load(orders(30, 120))
        eventually(lambda: len(box.messages) == 150)
    with ConsumerPool(store, "orders", box, browse=True, name="looker") as pool:
        assert pool.drain(PATIENCE)

    assert box.numbers == list(range(150))
    assert queue.browse().num_rows == 150
    assert len(queue.fire()) == 150


# Priorities and claims, as other processes see them; here, other stores.


@pytest.fixture
def other(store, address):
    with type(store)(address) as opened:
        yield opened


def test_a_lower_priority_works_when_the_higher_one_stops(store, other, queue):
    high, low = Box(), Box()
    with ConsumerPool(other, "orders", low, priority=1, concurrency=2) as lower:
        with ConsumerPool(store, "orders", high, priority=5, concurrency=2) as higher:
            queue.load(orders(20))
            eventually(lambda: len(high.messages) == 20)
            assert higher.drain(PATIENCE)
        queue.load(orders(20, 20))
        eventually(lambda: len(low.messages) == 20)
        assert lower.drain(PATIENCE)

    assert high.numbers == list(range(20))


def test_a_lower_priority_works_when_the_higher_one_is_out_of_credit(store, other, queue):
    high, low = Box(), Box()
    high.open.clear()
    with (
        ConsumerPool(other, "orders", low, priority=1, concurrency=1),
        ConsumerPool(store, "orders", high, priority=5, max_in_flight=2, concurrency=1),
    ):
        queue.load(orders(10))
        high.wait()
        eventually(lambda: len(low.messages) == 8)
        high.open.set()
        eventually(lambda: len(high.messages) == 2)


def test_an_exclusive_pool_keeps_others_out(store, other, queue):
    late = ConsumerPool(other, "orders", Box())
    with (
        ConsumerPool(store, "orders", Box(), exclusive=True),
        pytest.raises(QueueTaken, match="has it to itself"),
    ):
        late.start()
    with ConsumerPool(other, "orders", Box()):
        pass


def test_a_spare_takes_over_from_the_single_active_one(store, other, queue):
    first, second = Box(), Box()
    with ConsumerPool(other, "orders", second, single_active=True) as spare:
        with ConsumerPool(store, "orders", first, single_active=True, priority=1):
            pass
        queue.load(orders(5))
        eventually(lambda: len(second.messages) == 5)
        assert spare.drain(PATIENCE)


def test_a_spare_does_nothing_while_the_active_one_lives(store, other, queue):
    first, second = Box(), Box()
    with (
        ConsumerPool(store, "orders", first, single_active=True) as active,
        ConsumerPool(other, "orders", second, single_active=True),
    ):
        queue.load(orders(50))
        assert active.drain(PATIENCE)
        eventually(lambda: len(first.messages) == 50)
    assert second.messages == []


# The end.


def test_stop_finishes_what_is_in_hand(store, queue):
    queue.load(orders(10))
    box = Box()
    box.open.clear()
    pool = ConsumerPool(store, "orders", box, concurrency=1, batch=4).start()
    box.wait()
    stopping = threading.Thread(target=pool.stop)
    stopping.start()
    eventually(lambda: pool.concurrency == 0)
    box.open.set()
    stopping.join(PATIENCE)

    assert box.numbers == [0, 1, 2, 3] or len(box.numbers) == 4
    assert pool.counts == {"deleted": 4}
    assert queue.browse().num_rows == 6
    assert len(queue.fire()) == 6


def test_stop_gives_back_what_is_not_handled_in_time(store, queue):
    queue.load(orders(10))
    box = Box()
    pool = ConsumerPool(store, "orders", box, concurrency=1, batch=10, name="till").start()
    pool.stop()
    queue.load(orders(10, 10))
    box = Box(lambda message: (box.open.clear(), True)[1])
    box.messages.clear()
    pool = ConsumerPool(store, "orders", box, concurrency=1, batch=10, name="till").start()
    box.wait()
    box.wait()
    pool.stop(timeout=0.1)
    box.open.set()

    assert pool.counts["deleted"] == 1
    assert pool.counts["reloaded"] == 9
    again = queue.fire()
    assert len(again) == queue.browse().num_rows
    assert set(again.messages["_attempt"].to_pylist()) == {0}


def test_whoever_takes_the_name_ends_the_pool(store, other, queue):
    pool = ConsumerPool(store, "orders", Box(), name="till", handler_timeout=0.2).start()
    other.consumer("till")
    eventually(lambda: pool.error is not None)

    with pytest.raises(ConsumerFenced, match="'till' was started again elsewhere"):
        pool.stop()


def test_a_pool_that_stops_leaves_no_trace_in_who_is_interested(store, queue):
    with ConsumerPool(store, "orders", Box(), name="till", priority=3):
        (told,) = store.view("consumers").to_pylist()
        assert (told["priority"], told["interested"], told["claim"]) == (3, "orders", "shared")
    (told,) = store.view("consumers").to_pylist()
    assert told["interested"] is None
    with store.catalog.read() as connection:
        assert connection.execute(interests.interests.select()).all() == []


# The twelve steps.


def test_the_way_of_a_message_from_its_arrival_to_its_delivery(store, queue):
    box = Box()
    with ConsumerPool(store, "orders", box, concurrency=1) as pool:
        assert pool.drain(PATIENCE)
        with trace.tracing() as traced:
            queue.load(orders(1))
            box.wait()
            eventually(lambda: Step.DELIVERED in traced.steps)
        assert pool.drain(PATIENCE)

    # The catalog may have had others look before, who found nothing.
    arrived = max(at for at, step in enumerate(traced.steps) if step is Step.ARRIVED)
    delivered = traced.steps.index(Step.DELIVERED)
    begun = max(at for at in range(delivered) if traced.steps[at] is Step.ARRIVED)
    assert arrived >= begun
    assert traced.steps[begun : delivered + 1] == list(Step)
    threads = [taken.thread for taken in traced.taken[begun : delivered + 1]]
    assert threads[:6] == ["ignis-desk-orders"] * 6
    assert threads[6:] == ["worker 1"] * 6
    assert "12. worker 1 of orders: delivered" in str(traced)


# What cannot be.


@pytest.mark.parametrize(
    ("how", "error", "told"),
    [
        ({"batch": 0}, BadOption, "batch=0: use a whole number, 1 or more"),
        ({"concurrency": 101}, BadOption, "concurrency=101: use a whole number, from 0 to 100"),
        ({"priority": "high"}, BadOption, "priority='high'"),
        ({"max_in_flight": -1}, BadOption, "max_in_flight=-1"),
        ({"magazine": "sidline"}, BadOption, "magazine='sidline'"),
        ({"exclusive": True, "single_active": True}, BadOption, "has no spares"),
        ({"browse": True, "max_in_flight": 1}, BadOption, "browse"),
        ({"browse": True, "selector": "true"}, BadOption, "browse"),
        ({"selector": "amont > 1"}, BadSelector, "amont"),
        ({"columns": ["amont"]}, SchemaMismatch, "'amont'"),
        ({"columns": "amount"}, BadOption, "give a list"),
        ({"payload": "amount"}, BadOption, "is double, not string or binary"),
        ({"payload_type": Paid}, BadOption, "need payload="),
        ({"handler_timeout": 10**6}, BadOption, "handler_timeout"),
        ({"handler": 5}, BadOption, "handler=5"),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_started(store, queue, how, error, told):
    with pytest.raises(error, match=told):
        ConsumerPool(store, "orders", **{"handler": Box(), **how})
    assert store.view("consumers").num_rows == 0
