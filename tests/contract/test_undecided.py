"""A handler that returns nothing, or cannot take its arguments, is refused by a pool."""

import pytest

from queue_core import ConsumerPool, batch_handler
from queue_core.errors import BadOption, BadOutcome
from tests.factories import make_queue, numbers_of, orders
from tests.waiting import PATIENCE


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2)


def run(pool):
    with pool:
        pool.drain(PATIENCE)
    return pool.counts


def test_a_handler_that_returns_nothing_ends_the_pool_at_its_first_message(store, queue):
    queue.load(orders(300))
    charged = []

    def charge(message):
        charged.append(message["number"])

    pool = ConsumerPool(store, "orders", charge, concurrency=1)
    with pytest.raises(BadOutcome, match=r"queue 'orders': .*charge returned None.*on_none='del"):
        run(pool)

    assert len(charged) == 1
    assert numbers_of(queue.peek(9, magazine="sideline")) == charged
    assert [row["kind"] for row in queue.failures().to_pylist()] == ["undecided"]
    assert queue.peek(500).num_rows == 299
    assert store.view("queues").column("in_flight").to_pylist() == [0]

    # It is not handled again, even if the pool is started again: another message is.
    with pytest.raises(BadOutcome, match="returned None"):
        run(pool)
    assert len(charged) == len(set(charged)) == 2


def test_several_workers_handle_a_message_each_at_most(store, queue):
    queue.load(orders(300))
    charged = []

    with pytest.raises(BadOutcome, match="returned None"):
        # The list's own method returns nothing.
        run(ConsumerPool(store, "orders", charged.append, concurrency=4, batch=10))

    assert 1 <= len(charged) <= 4
    aside = sorted(numbers_of(queue.peek(9, magazine="sideline")))
    assert aside == sorted(message["number"] for message in charged)
    assert queue.peek(500).num_rows == 300 - len(charged)


def test_a_batch_handler_that_returns_nothing_is_called_once(store, queue):
    queue.load(orders(50))
    sizes = []

    @batch_handler
    def charge(batch):
        sizes.append(batch.num_rows)

    with pytest.raises(BadOutcome, match="returned None"):
        run(ConsumerPool(store, "orders", charge, concurrency=1, batch=10))

    assert sizes == [10]
    assert queue.peek(99).num_rows == 40


@pytest.mark.parametrize(
    ("on_none", "counted"), [("delete", {"deleted": 3}), ("sideline", {"sidelined": 3})]
)
def test_an_outcome_of_none_can_be_given(store, queue, on_none, counted):
    queue.load(orders(3))

    assert run(ConsumerPool(store, "orders", lambda _: None, on_none=on_none)) == counted


class Handler:
    def handle(self):
        return True


@pytest.mark.parametrize(
    ("handler", "how", "told"),
    [
        (lambda: True, {}, "cannot take its 1 argument, the message"),
        (lambda message: True, {"payload": "customer", "with_metadata": True}, "its 2 arguments"),
        (Handler(), {}, r"Handler.handle\(\)"),
        (batch_handler(lambda: True), {}, "cannot take its 1 argument"),
        (lambda message: True, {"on_none": "reload"}, "on_none='reload'"),
    ],
)
def test_a_handler_that_cannot_be_called_is_refused_at_the_start(store, queue, handler, how, told):
    queue.load(orders(3))

    with pytest.raises(BadOption, match=told):
        ConsumerPool(store, "orders", handler, **how)

    assert queue.peek(9).num_rows == 3
