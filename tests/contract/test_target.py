"""`ConsumerTarget`: a client of one's own, which is notified of work and pulls it."""

import asyncio
import json
import threading
import time
from functools import partial

import pyarrow as pa
import pytest
from sqlalchemy import select

from queue_core import ConsumerPool, ConsumerTarget, Pressure, Store, SuspendReason
from queue_core.catalog.holder_tables import tickets
from queue_core.errors import BadOption, BadSelector, ConsumerFenced, NoSuchQueue, QueueTaken
from queue_core.pool import target
from tests.contract.pools import Recorder
from tests.factories import drop, load_singly, make_queue, numbers_of, orders
from tests.waiting import PATIENCE, all_at_once, until

pytestmark = pytest.mark.usefixtures("patient")


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2)


class Woken:
    """A `wake` that counts its calls."""

    def __init__(self):
        self.count = 0
        self._event = threading.Event()

    def __call__(self):
        self.count += 1
        self._event.set()

    def wait(self):
        assert self._event.wait(PATIENCE)
        self._event.clear()


def pull_all(target, count, limit=10):
    """Pull and delete until there were *count* messages; return the numbers by queue."""
    pulled = {consumer.queue.name: [] for consumer in target.consumers}
    end = time.monotonic() + PATIENCE
    while sum(map(len, pulled.values())) < count:
        assert time.monotonic() < end
        for consumer in target.ready():
            firing = consumer.pull(limit)
            if firing is not None:
                pulled[consumer.queue.name] += numbers_of(firing.messages)
                consumer.queue.delete(firing)
    return {name: sorted(numbers) for name, numbers in pulled.items()}


def row_of(store, queue):
    (row,) = store.view("queues", queue).to_pylist()
    return row


def test_a_target_of_two_queues_pulls_each_message_once(store, queue):
    other = make_queue(store, "refunds", shards=3)
    queue.load(orders(25))
    with ConsumerTarget(store, ["orders", "refunds"], Woken()) as target:
        assert pull_all(target, 25) == {"orders": list(range(25)), "refunds": []}
        other.load(orders(7))
        assert pull_all(target, 7) == {"orders": [], "refunds": list(range(7))}

    assert row_of(store, "orders")["waiting"] == row_of(store, "orders")["in_flight"] == 0
    assert target.ready() == []
    assert target.consumers == []


def test_it_is_woken_once_while_it_has_work(store, queue, address):
    woken = Woken()
    with ConsumerTarget(store, "orders", woken) as target:
        (consumer,) = target.consumers
        until(lambda: consumer.pull() is None and not target.ready())
        count = woken.count
        with Store(address) as producer:
            load_singly(producer.queue("orders"), 5)
        until(lambda: target.ready() == [consumer])
        assert [len(consumer.pull(2)) for _ in range(2)] == [2, 2]
        assert target.ready() == [consumer]
        assert woken.count == count + 1


def test_a_pull_of_the_only_message_readies_no_other_target(store, queue):
    targets = [ConsumerTarget(store, "orders", print, name=name) for name in ("one", "two")]
    with targets[0], targets[1]:
        for target in targets:
            while target.ready():
                assert target.ready()[0].pull() is None
        for count in (1, 2):
            queue.load(orders(count))
            until(lambda: any(target.ready() for target in targets))
            first, second = sorted(targets, key=lambda target: not target.ready())
            firing = first.ready()[0].pull()
            assert firing.more is (count == 2)
            assert len(second.ready()) == count - 1
            for each in (*first.ready(), *second.ready()):
                while each.pull():
                    continue


def test_a_suspended_consumer_is_not_ready_and_lets_another_one_go(store, queue):
    woken, other = Woken(), Woken()
    first = ConsumerTarget(store, "orders", woken, priority=9)
    with first, ConsumerTarget(store, "orders", other, priority=1) as second:
        (consumer,) = first.consumers
        consumer.suspend(SuspendReason.CREDIT)
        queue.load(orders(3))
        until(lambda: second.ready())
        assert first.ready() == []
        assert pull_all(second, 3) == {"orders": [0, 1, 2]}

        consumer.resume(SuspendReason.CREDIT)
        queue.load(orders(3))
        until(lambda: first.ready())
        assert second.consumers[0].pull() is None
        assert pull_all(first, 3) == {"orders": [0, 1, 2]}


def test_pressure_suspends_it(store, queue):
    pressure = Pressure()
    pressure.apply()
    queue.load(orders(1))
    with ConsumerTarget(store, "orders", Woken(), pressure=pressure) as target:
        time.sleep(0.3)
        assert target.ready() == []
        pressure.relieve()
        assert pull_all(target, 1) == {"orders": [0]}


def test_what_was_not_settled_returns_to_its_place(store, queue):
    queue.load(orders(6))
    with ConsumerTarget(store, "orders", Woken()) as target:
        (consumer,) = target.consumers
        held = consumer.pull(4)
        consumer.queue.delete(held.ids[:1])
        assert row_of(store, "orders")["in_flight"] == 3

    assert row_of(store, "orders")["in_flight"] == 0
    assert row_of(store, "orders")["waiting"] == 5
    assert numbers_of(queue.fire("all").messages) == sorted(
        set(range(6)) - {numbers_of(held.messages)[0]}
    )


def test_what_was_not_settled_is_back_before_another_target_becomes_active(
    store, queue, monkeypatch
):
    queue.load(orders(2))
    active, spare = (
        ConsumerTarget(store, "orders", print, single_active=True, name=name)
        for name in ("one", "two")
    )
    put_back, pulled = target.put_back, []

    def pull_first(*arguments):
        pulled.append(spare.consumers[0].pull())
        return put_back(*arguments)

    monkeypatch.setattr(target, "put_back", pull_first)
    active.start()
    with spare:
        assert len(active.consumers[0].pull()) == 1
        active.stop()
        assert pulled == [None]
        monkeypatch.undo()
        assert len(spare.consumers[0].pull(5)) == 2


def test_a_second_target_of_its_name_fences_it_and_keeps_its_own_messages(store, queue):
    queue.load(orders(4))
    first = ConsumerTarget(store, "orders", Woken(), name="client").start()
    first.consumers[0].pull(1)
    with ConsumerTarget(store, "orders", Woken(), name="client") as second:
        # What the first one held is a suspect, and is fired alone.
        assert len(second.consumers[0].pull(2)) == 1
        with pytest.raises(ConsumerFenced):
            first.consumers[0].pull(1)
        first.stop()
        assert row_of(store, "orders")["in_flight"] == 1


def test_a_browser_sees_every_message_once_and_takes_none(store, queue):
    queue.load(orders(9))
    with ConsumerTarget(store, "orders", Woken(), browse=True, name="eyes") as target:
        (consumer,) = target.consumers
        shown = []
        while (firing := consumer.pull(4)) is not None:
            assert firing.ticket is None
            assert isinstance(firing.messages, pa.Table)
            shown += numbers_of(firing.messages)

    assert sorted(shown) == list(range(9))
    assert row_of(store, "orders")["waiting"] == 9


def ids_of(store):
    return {store.queue(name).info.id for name in store.queues()}


def shown_by(store, queues, **how):
    """The numbers that a browser of a name shows, by queue; it pulls from its queues by turns."""
    shown = {name: [] for name in queues}
    with ConsumerTarget(store, queues, Woken(), browse=True, name="eyes", **how) as target:
        waiting = list(target.consumers)
        while waiting:
            consumer = waiting.pop(0)
            if (firing := consumer.pull(4)) is not None:
                shown[consumer.queue.name] += numbers_of(firing.messages)
                waiting.append(consumer)
            assert len(shown[consumer.queue.name]) < 1000, "the same messages come again"
    return {name: sorted(numbers) for name, numbers in shown.items()}


def test_a_browser_of_several_queues_sees_every_message_once(store):
    queues = {name: make_queue(store, name, shards=2) for name in ("a", "b", "c")}
    for name in ("a", "b"):
        queues[name].load(orders(9))

    assert shown_by(store, list(queues)) == {"a": [*range(9)], "b": [*range(9)], "c": []}
    queues["b"].load(orders(3, 9))
    queues["c"].load(orders(2))
    assert shown_by(store, list(queues)) == {"a": [], "b": [9, 10, 11], "c": [0, 1]}
    assert all(queue.browse().num_rows == len(queue.fire("all")) for queue in queues.values())


def test_a_browser_goes_on_where_it_was_whatever_else_it_has_visited(store, queue):
    other = make_queue(store, "other")
    queue.load(orders(9))
    other.load(orders(5))
    other.sideline(other.fire(2))

    assert shown_by(store, ["orders"]) == {"orders": [*range(9)]}
    assert shown_by(store, ["other"]) == {"other": [2, 3, 4]}
    assert shown_by(store, ["other"], magazine="sideline") == {"other": [0, 1]}
    queue.load(orders(1, 9))
    assert shown_by(store, ["orders", "other"]) == {"orders": [9], "other": []}
    assert shown_by(store, ["other"], magazine="sideline") == {"other": []}


def test_a_browser_sees_all_of_a_queue_that_was_dropped_and_made_again(store, queue):
    gone = make_queue(store, "gone")
    for each in (queue, gone):
        each.load(orders(9))
    assert shown_by(store, ["orders", "gone"]) == {"orders": [*range(9)], "gone": [*range(9)]}

    drop(gone)
    assert shown_by(store, ["orders"]) == {"orders": []}
    make_queue(store, "gone").load(orders(3))
    queue.load(orders(1, 9))

    assert shown_by(store, ["orders", "gone"]) == {"orders": [9], "gone": [0, 1, 2]}
    # It remembers no place of a queue that is gone.
    with store.catalog.read() as connection:
        (places,) = connection.scalars(select(tickets.c.browsed))
    assert {int(place.split("/")[0]) for place in json.loads(places)} == ids_of(store)


def test_it_selects_and_leaves_the_rest_to_a_pool(store, queue):
    recorder = Recorder()
    queue.load(orders(20))
    with ConsumerTarget(store, "orders", Woken(), selector="number < 5") as target:
        assert pull_all(target, 5) == {"orders": list(range(5))}
        with ConsumerPool(store, "orders", recorder) as pool:
            assert pool.drain(PATIENCE)
    assert recorder.numbers == list(range(5, 20))


def test_an_event_loop_serves_it(store, queue):
    async def serve():
        loop, event = asyncio.get_running_loop(), asyncio.Event()
        done = []
        with ConsumerTarget(
            store, "orders", lambda: loop.call_soon_threadsafe(event.set)
        ) as target:
            await loop.run_in_executor(None, queue.load, orders(12))
            while len(done) < 12:
                await asyncio.wait_for(event.wait(), PATIENCE)
                event.clear()
                while ready := target.ready():
                    for consumer in ready:
                        firing = await loop.run_in_executor(None, consumer.pull, 5)
                        if firing is not None:
                            done += numbers_of(firing.messages)
                            queue.delete(firing)
        return done

    assert sorted(asyncio.run(serve())) == list(range(12))


def test_threads_that_pull_from_one_consumer_get_each_message_once(store, queue):
    queue.load(orders(200))
    pulled, lock = [], threading.Lock()

    def work(consumer):
        while (firing := consumer.pull(7)) is not None:
            with lock:
                pulled.extend(numbers_of(firing.messages))
            consumer.queue.delete(firing)

    with ConsumerTarget(store, "orders", Woken()) as target:
        all_at_once(*[partial(work, target.consumers[0])] * 4)
        pulled += pull_all(target, 200 - len(pulled))["orders"]
    assert sorted(pulled) == list(range(200))


def test_a_target_that_cannot_start_has_no_queue_to_itself(store, queue):
    def wake():
        raise RuntimeError("Event loop is closed")

    queue.load(orders(1))
    closed = ConsumerTarget(store, "orders", wake, exclusive=True)
    with pytest.raises(RuntimeError, match="loop is closed"):
        closed.start()

    assert closed.consumers == []
    with ConsumerTarget(store, "orders", Woken(), exclusive=True) as other:
        assert pull_all(other, 1) == {"orders": [0]}


def test_claims(store, queue):
    with (
        ConsumerTarget(store, "orders", Woken(), exclusive=True),
        pytest.raises(QueueTaken, match="orders"),
    ):
        ConsumerTarget(store, "orders", Woken()).start()


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"wake": None}, BadOption, "wake=None"),
        ({"queue": []}, BadOption, "queue is empty"),
        ({"queue": "nothing"}, NoSuchQueue, "nothing"),
        ({"selector": "colour = 1"}, BadSelector, "colour"),
        ({"browse": True, "exclusive": True}, BadOption, "browse"),
        ({"priority": "high"}, BadOption, "priority"),
    ],
)
def test_bad_arguments_are_refused(store, queue, arguments, error, text):
    with pytest.raises(error, match=text):
        ConsumerTarget(store, **{"queue": "orders", "wake": Woken(), **arguments})


def test_bad_calls_are_refused(store, queue):
    with ConsumerTarget(store, "orders", Woken()) as target:
        for limit in (0, True, 1.5):
            with pytest.raises(BadOption, match="limit"):
                target.consumers[0].pull(limit)
        with pytest.raises(BadOption, match="started already"):
            target.start()
