"""Pools whose firings are too large for one batch: every message is handled."""

import threading

import pytest

from queue_core import ConsumerPool, ConsumerTarget
from queue_core.pool import held
from queue_core.queue.opened import OpenedQueue
from tests.contract.pools import Recorder
from tests.factories import make_queue, orders
from tests.waiting import PATIENCE, until

LOADS, EACH = 6, 5


@pytest.fixture
def queues(store, monkeypatch):
    """Two queues of several loads each, of which no two fit into one batch."""

    def apart(messages):
        return [batch for batch in messages.to_batches(max_chunksize=EACH) if batch.num_rows]

    monkeypatch.setattr(held, "combined", apart)
    made = [make_queue(store, name, shards=1) for name in ("orders", "refunds")]
    for number in range(LOADS):
        for at, queue in enumerate(made):
            queue.load(orders(EACH, 1000 * at + EACH * number))
    return made


EXPECTED = [1000 * at + number for at in range(2) for number in range(LOADS * EACH)]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("batch", [2, 100])
def test_a_pool_handles_every_message(store, queues, concurrency, batch):
    recorder = Recorder()
    with ConsumerPool(
        store, ["orders", "refunds"], recorder, concurrency=concurrency, batch=batch
    ) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": len(EXPECTED)}
    assert recorder.numbers == EXPECTED
    assert [queue.browse().num_rows for queue in queues] == [0, 0]


def test_a_pool_that_stops_gives_back_what_it_has_not_handled(store, queues):
    recorder = Recorder()
    recorder.open.clear()
    with ConsumerPool(store, "orders", recorder, concurrency=1, batch=100) as pool:
        recorder.wait()
        recorder.open.set()
        pool.stop()
    waiting = store.view("queues", "orders").column("waiting").to_pylist()
    assert waiting == [LOADS * EACH - len(recorder.messages)]


def test_what_is_fired_while_a_pool_stops_is_given_back_and_not_handled(store, queues, monkeypatch):
    recorder, come, go_on = Recorder(), threading.Event(), threading.Event()
    real = OpenedQueue.fire

    def fire(*arguments, **options):
        come.set()
        assert go_on.wait(PATIENCE)
        return real(*arguments, **options)

    monkeypatch.setattr(OpenedQueue, "fire", fire)
    pool = ConsumerPool(store, "orders", recorder, concurrency=1, batch=100).start()
    assert come.wait(PATIENCE)
    (worker,) = [each for each in threading.enumerate() if each.name == "worker 1"]
    pool.stop(timeout=0.1)
    go_on.set()
    worker.join(PATIENCE)
    assert recorder.messages == []
    assert store.view("queues", "orders")["waiting"].to_pylist() == [LOADS * EACH]


def test_browsers_show_every_message_once(store, queues):
    recorder = Recorder()
    with (
        ConsumerPool(store, "orders", recorder, browse=True, batch=100),
        ConsumerPool(store, "refunds", recorder, browse=True, batch=100),
    ):
        until(lambda: len(recorder.messages) >= len(EXPECTED))
    assert recorder.numbers == EXPECTED
    with ConsumerTarget(store, "orders", lambda: None, browse=True) as target:
        (consumer,) = target.consumers
        shown = []
        while (firing := consumer.pull(100)) is not None:
            shown += firing.messages.column("number").to_pylist()
    assert shown == list(range(LOADS * EACH))
