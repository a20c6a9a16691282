"""Bytes that a pool holds: below its bound, whatever the sizes of the messages are."""

import threading

import pyarrow as pa
import pytest

from queue_core import Breaker, ConsumerPool, batch_handler, limit
from tests.factories import make_filled, make_queue
from tests.waiting import PATIENCE

SCHEMA = pa.schema([("number", pa.int64()), ("payload", pa.binary())])
#: The bound of the pools, and the size of messages of which it has room for three.
BOUND = 100_000
SIZE = 30_000


def load(queue, count, size=SIZE):
    for number in range(count):
        queue.load([{"number": number, "payload": bytes(size)}])


class Watch:
    """A handler that notes the most messages of some queues that were in flight at a call."""

    def __init__(self, *queues):
        self._queues = queues
        self._lock = threading.Lock()
        self.numbers = []
        self.most = 0

    def __call__(self, message):
        found = [sum(queue.metadata()["in_flight"].to_pylist()) for queue in self._queues]
        with self._lock:
            self.most = max(self.most, sum(found))
            self.numbers.append(message["number"])
        return True


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("batch", [1, 100])
def test_the_bytes_in_flight_stay_below_the_bound(store, concurrency, batch):
    queue = make_queue(store, schema=SCHEMA, shards=2)
    load(queue, 12)
    watch = Watch(queue)
    how = {"concurrency": concurrency, "batch": batch, "max_bytes": BOUND}
    with ConsumerPool(store, "orders", watch, **how) as pool:
        assert pool.drain(PATIENCE)
    assert sorted(watch.numbers) == list(range(12))
    # Three fit, and the next one is taken since there is room for some of it.
    assert 1 <= watch.most <= 4


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        ({}, {"order_by": "number DESC"}),
        ({}, {"order": "global"}),
        ({}, {"selector": "number >= 0"}),
        ({}, {"breaker": Breaker(of=50)}),
        ({}, {"max_in_flight": 10}),
        ({"fair_by": "number"}, {}),
        ({"fair_by": "number"}, {"selector": "number >= 0"}),
        ({"limits": limit("number", in_flight=1)}, {}),
        ({"limits": limit("number", in_flight=1)}, {"order_by": "number DESC"}),
        ({"group": "number", "key": "number"}, {}),
    ],
    ids=str,
)
def test_the_bound_holds_for_each_way_to_choose_messages(store, settings, how):
    queue = make_queue(store, schema=SCHEMA, shards=2, **settings)
    load(queue, 8)
    watch = Watch(queue)
    with ConsumerPool(store, "orders", watch, concurrency=2, max_bytes=BOUND, **how) as pool:
        assert pool.drain(PATIENCE)
    assert sorted(watch.numbers) == list(range(8))
    assert watch.most <= 4


def test_several_queues_share_the_bound(store):
    queues = [make_queue(store, name, SCHEMA) for name in ("orders", "refunds", "returns")]
    for queue in queues:
        load(queue, 6)
    watch = Watch(*queues)
    names = [queue.name for queue in queues]
    with ConsumerPool(store, names, watch, concurrency=4, max_bytes=BOUND) as pool:
        assert pool.drain(PATIENCE)
    assert sorted(watch.numbers) == sorted(3 * [*range(6)])
    # One message of each queue more than fit.
    assert watch.most <= 3 + len(queues)


def test_a_message_that_is_larger_than_the_bound_is_handled_alone(store):
    queue = make_queue(store, schema=SCHEMA)
    load(queue, 3, size=2 * BOUND)
    watch = Watch(queue)
    with ConsumerPool(store, "orders", watch, concurrency=2, max_bytes=BOUND) as pool:
        assert pool.drain(PATIENCE)
    assert (sorted(watch.numbers), watch.most) == ([0, 1, 2], 1)


@pytest.mark.parametrize("shards", [1, 8])
def test_one_worker_does_not_take_the_room_of_the_others(store, shards):
    """All four handle a message at the same time, although one could take a batch of 100."""
    queue = make_queue(store, schema=SCHEMA, shards=shards)
    load(queue, 8)
    together = threading.Barrier(4)

    def handler(_):
        together.wait(PATIENCE)
        return True

    how = {"concurrency": 4, "max_bytes": 4 * SIZE + BOUND // 10}
    with ConsumerPool(store, "orders", handler, **how) as pool:
        assert pool.drain(PATIENCE)
    assert pool.counts == {"deleted": 8}


def test_a_pool_that_is_paused_gives_back_the_bytes_that_it_fired_ahead(store):
    queue = make_queue(store, schema=SCHEMA)
    queue.load([{"number": number, "payload": bytes(100)} for number in range(2_000)])
    called = threading.Event()

    def handler(_):
        called.set()
        return True

    how = {"concurrency": 2, "batch": 10, "handler_timeout": 2, "max_bytes": BOUND}
    with ConsumerPool(store, "orders", handler, **how) as pool:
        for _ in range(3):
            assert called.wait(PATIENCE)
            pool.pause()
            called.clear()
            pool.resume()
        assert pool.drain(PATIENCE)
    assert pool.counts == {"deleted": 2_000}


@pytest.mark.parametrize("browse", [True, False])
def test_a_batch_has_no_more_bytes_than_there_is_room_for(store, browse):
    queue = make_queue(store, schema=SCHEMA)
    load(queue, 9)
    sizes = []

    @batch_handler
    def handler(batch):
        sizes.append(batch.num_rows)
        return [True] * batch.num_rows

    how = {"concurrency": 1, "max_bytes": BOUND, "browse": browse}
    with ConsumerPool(store, "orders", handler, **how) as pool:
        assert pool.drain(PATIENCE)
    assert sum(sizes) == 9
    assert max(sizes) == 3


def test_small_messages_still_come_in_whole_batches(store):
    make_filled(store, 1_000)
    sizes = []

    @batch_handler
    def handler(batch):
        sizes.append(batch.num_rows)
        return [True] * batch.num_rows

    with ConsumerPool(store, "orders", handler, concurrency=1) as pool:
        assert pool.drain(PATIENCE)
    assert sizes == [100] * 10
