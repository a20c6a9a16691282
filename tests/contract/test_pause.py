"""A person pauses a queue: nothing is fired from it, everything else goes on."""

import threading

import pytest

from queue_core import ConsumerPool
from queue_core.errors import BadOption, QueueDeactivated
from tests.command_line import answer, refusal
from tests.contract.pools import PATIENCE, Recorder, eventually
from tests.factories import make_queue, numbers_of, orders


@pytest.fixture
def queue(store):
    return make_queue(store)


def paused_at(store):
    return store.view("queues", "orders").column("paused_at").to_pylist()[0]


def test_a_paused_queue_fires_nothing_and_takes_loads(store, queue):
    queue.load(orders(2))
    queue.pause()
    queue.load(orders(3, 2))

    assert len(queue.fire("all")) == 0
    assert len(queue.fire("all", selector="number = 1")) == 0
    assert len(queue.fire("all", magazine="sideline")) == 0
    assert queue.peek(10).num_rows == 5
    assert len(queue.fire(1, even_if_paused=True)) == 1

    queue.resume()
    assert numbers_of(queue.fire("all").messages) == [1, 2, 3, 4]


def test_messages_in_flight_can_be_settled_and_shovelled_meanwhile(queue):
    queue.load(orders(3))
    firing = queue.fire("all")
    queue.pause()

    assert queue.delete(firing.ids[:1]) == 1
    assert queue.sideline(firing.ids[1:2]) == 1
    assert queue.reload(firing.ids[2:]) == 1
    assert queue.shovel() == 1
    assert numbers_of(queue.browse()) == [2, 1]


def test_a_pause_is_not_a_setting_and_keeps_its_time(store, queue):
    assert paused_at(store) is None
    queue.pause()
    first = paused_at(store)
    queue.pause()

    assert paused_at(store) == first is not None
    assert queue.info.is_paused
    assert queue.refresh().info.settings.concurrency == 8
    queue.change_settings(concurrency=3)
    assert len(queue.load(orders(1))) == 1
    assert len(queue.fire()) == 0

    queue.resume()
    queue.resume()
    assert paused_at(store) is None
    assert not queue.info.is_paused
    assert len(queue.fire()) == 1


def test_a_queue_with_a_concurrency_of_0_stays_paused(queue):
    queue.load(orders(1))
    queue.change_settings(concurrency=0)
    queue.pause()
    queue.resume()

    assert queue.info.is_paused
    assert len(queue.fire()) == 0


def test_a_firing_that_waits_is_woken_by_the_end_of_the_pause(store, queue):
    queue.load(orders(1))
    queue.pause()
    fired = []
    waiting = threading.Thread(target=lambda: fired.append(queue.fire(timeout=PATIENCE)))
    waiting.start()
    waiting.join(0.5)
    assert waiting.is_alive()

    store.queue("orders").resume()
    waiting.join(PATIENCE)
    assert [len(firing) for firing in fired] == [1]


def test_one_paused_queue_of_a_pool_does_not_stop_the_other(store, queue):
    other = make_queue(store, "other")
    queue.pause()
    with ConsumerPool(store, ["orders", "other"], Recorder()) as pool:
        for each in (queue, other):
            each.load(orders(3))
        eventually(lambda: pool.counts == {"deleted": 3})
        assert [queue.browse().num_rows, other.browse().num_rows] == [3, 0]
        queue.resume()
        eventually(lambda: pool.counts == {"deleted": 6})
        assert pool.drain(PATIENCE)


@pytest.mark.parametrize("how", ["by a person", "by its setting"])
def test_drain_waits_for_the_end_of_a_pause_and_says_so(store, queue, caplog, how):
    queue.load(orders(3))
    begin, end = {
        "by a person": (queue.pause, queue.resume),
        "by its setting": (
            lambda: queue.change_settings(concurrency=0),
            lambda: queue.change_settings(concurrency=2),
        ),
    }[how]
    begin()
    with ConsumerPool(store, "orders", Recorder()) as pool:
        pool.increase()
        assert not pool.drain(0.2)
        assert "drain waits, since queue 'orders' is paused" in caplog.text
        end()
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 3}


def test_drain_of_a_pool_without_workers_says_so(store, queue, caplog):
    queue.load(orders(3))
    with ConsumerPool(store, "orders", Recorder(), concurrency=0) as pool:
        assert not pool.drain(0.1)
        assert "the pool of queue 'orders' has no workers" in caplog.text
        pool.increase()
        assert pool.drain(PATIENCE)


def test_only_a_whole_queue_in_use_is_paused(store, queue):
    with pytest.raises(BadOption, match="needs the whole queue"):
        store.queue("orders_SIDELINE").pause()
    queue.deactivate()
    for change in (queue.pause, queue.resume):
        with pytest.raises(QueueDeactivated):
            change()


def test_the_command_line_pauses_and_resumes(ignis, store, queue):
    queue.load(orders(1))

    assert answer(ignis("--json", "pause", "orders")) == [{"queue": "orders", "paused": True}]
    assert len(queue.fire()) == 0
    assert answer(ignis("--json", "queues"))[0]["paused_at"] is not None
    assert ignis("resume", "orders").stdout == "queue orders is resumed\n"
    assert len(queue.fire()) == 1
    queue.change_settings(concurrency=0)
    assert answer(ignis("--json", "resume", "orders")) == [{"queue": "orders", "paused": True}]
    assert "no queue 'order'" in refusal(ignis("pause", "order"))
