"""A worker continues after a call that timed out: it pulls until no message is left."""

import asyncio
import threading

import pytest

from queue_core import ConsumerPool, batch_handler
from tests.contract.pools import Recorder
from tests.factories import make_queue, orders
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.usefixtures("patient")

TIMEOUT = 1.0


@pytest.fixture
def slow():
    """A handler whose calls for the first of every hundred orders block until the test is over."""
    over = threading.Event()

    def handler(message):
        if message["number"] % 100 == 0:
            over.wait(PATIENCE)
        return True

    yield handler
    over.set()


def settled(pool, **counts):
    until(lambda: pool.counts == counts)


@pytest.mark.parametrize(
    "batch", [*(pytest.param(n, marks=pytest.mark.nightly) for n in (1, 3)), 100]
)
def test_one_worker_goes_on_with_the_next_batches(store, queue, slow, batch):
    queue.load(orders(7))
    with ConsumerPool(
        store, "orders", slow, concurrency=1, batch=batch, handler_timeout=TIMEOUT
    ) as pool:
        settled(pool, sidelined=1, deleted=6)
        queue.load(orders(5, 1))
        settled(pool, sidelined=1, deleted=11)
        assert pool.drain(PATIENCE)


def test_as_many_timeouts_as_workers_stop_nobody(store, queue, slow):
    for number in range(3):
        queue.load(orders(1, 100 * number))
    with ConsumerPool(
        store, "orders", slow, concurrency=3, batch=1, handler_timeout=TIMEOUT
    ) as pool:
        settled(pool, sidelined=3)
        queue.load(orders(10, 1))
        settled(pool, sidelined=3, deleted=10)


def test_the_worker_goes_on_in_all_of_its_queues(store, queue, slow):
    refunds = make_queue(store, "refunds", shards=1)
    for each in (queue, refunds):
        each.load(orders(3))
    with ConsumerPool(
        store, ["orders", "refunds"], slow, concurrency=1, batch=1, handler_timeout=TIMEOUT
    ) as pool:
        settled(pool, sidelined=2, deleted=4)
        for each in (queue, refunds):
            each.load(orders(3, 1))
        settled(pool, sidelined=2, deleted=10)


def test_the_higher_priority_goes_on_and_the_lower_one_gets_what_it_leaves(store, slow):
    # A message that comes back would be for the lower one.
    queue = make_queue(store, retry=None)
    recorder = Recorder()
    how = {"concurrency": 1, "batch": 1, "handler_timeout": TIMEOUT}
    high = ConsumerPool(store, "orders", slow, priority=9, **how)
    low = ConsumerPool(store, "orders", recorder, priority=1, **how)
    queue.load(orders(1))
    with high, low:
        settled(high, sidelined=1)
        queue.load(orders(5, 1))
        settled(high, sidelined=1, deleted=5)
        assert recorder.messages == []
        high.pause()
        queue.load(orders(5, 6))
        settled(low, deleted=5)
    assert recorder.numbers == [6, 7, 8, 9, 10]


def test_a_coroutine_function_handles_messages(store, queue):
    async def handler(message):
        await asyncio.sleep(0.001)
        return message["number"] != 3

    queue.load(orders(20))
    with ConsumerPool(store, "orders", handler, concurrency=2, batch=5) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 19, "sidelined": 1}


class OfALibrary(BaseException):
    """Not an `Exception`, as trio's `Cancelled`."""


@pytest.mark.parametrize(
    "error",
    [
        SystemExit("enough"),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        OfALibrary(),
        BaseExceptionGroup("several", [OfALibrary()]),
    ],
)
@pytest.mark.parametrize("mark", [lambda handler: handler, batch_handler])
def test_a_handler_that_wants_to_exit_fails_its_message_alone(store, queue, error, mark):
    def handler(message):
        if "3" in str(message["number"]):
            raise error
        return True if isinstance(message, dict) else [True]

    queue.load(orders(6))
    with ConsumerPool(store, "orders", mark(handler), concurrency=2, batch=1) as pool:
        assert pool.drain(PATIENCE)

    assert pool.counts == {"deleted": 5, "sidelined": 1}
    (failure,) = queue.failures().to_pylist()
    assert failure["kind"] == "exception"
    assert failure["reason"].startswith(type(error).__name__)


def test_a_cancelled_task_of_a_coroutine_fails_its_message_alone(store, queue):
    async def handler(message):
        task = asyncio.ensure_future(asyncio.sleep(60))
        await asyncio.sleep(0)
        if message["number"] == 1:
            task.cancel()
            await task
        return True

    queue.load(orders(3))
    with ConsumerPool(store, "orders", handler, concurrency=1) as pool:
        assert pool.drain(PATIENCE)
    assert pool.counts == {"deleted": 2, "sidelined": 1}


@pytest.mark.parametrize("batch", [pytest.param(1, marks=pytest.mark.nightly), 3])
def test_a_worker_that_finds_no_thread_goes_on_once_there_is_one(
    store, queue, slow, batch, monkeypatch
):
    start, refused = threading.Thread.start, []

    def crowded(thread):
        if thread.name == "worker 1" and len(refused) < 2:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    with ConsumerPool(
        store, "orders", slow, concurrency=1, batch=batch, handler_timeout=TIMEOUT
    ) as pool:
        monkeypatch.setattr(threading.Thread, "start", crowded)
        queue.load(orders(7))
        settled(pool, sidelined=1, deleted=6)
        assert len(refused) == 2
