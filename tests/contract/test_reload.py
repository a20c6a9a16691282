"""Reload: fired messages go back to their old places, as if they had not been taken."""

import random

import pyarrow as pa
import pytest

from tests.factories import make_filled, make_queue, numbers_of, orders


def test_reloaded_messages_are_fired_again_before_later_ones_as_if_they_had_not_failed(store):
    queue = make_queue(store)
    ids = queue.load(orders(10))
    for _ in range(2):
        queue.reload(queue.fire(5))
    firing = queue.fire(5)
    assert queue.reload(firing) == 5

    assert queue.peek(1).column("_fired_at").cast("int64").to_pylist() == [firing.ticket.fired_at]
    assert sorted(store.view("slices").column("deliveries").to_pylist()) == [0, 3]
    again = queue.fire("all").messages
    assert numbers_of(again) == list(range(10))
    assert set(again.column("_attempt").to_pylist()) == {0}
    assert queue.failures().num_rows == 0
    queue.reload(ids[4:5])
    assert numbers_of(queue.fire("all").messages) == [4]


def test_messages_reloaded_one_by_one_in_any_order_keep_their_old_order(store):
    queue = make_filled(store, 30, each=10)
    ids = queue.fire("all").ids.to_pylist()
    random.Random(7).shuffle(ids)

    for id in ids:
        queue.reload([id])

    fired = [numbers_of(queue.fire(4).messages) for _ in range(8)]
    assert [number for numbers in fired for number in numbers] == list(range(30))


@pytest.mark.parametrize("limit", ["messages", "bytes"])
def test_messages_that_interleave_are_fired_in_order_within_any_limit(store, limit):
    """Every other one was deleted, and the others came back in two goes."""
    queue = make_queue(store)
    ids = queue.load(orders(24))
    queue.fire("all")
    queue.reload(ids.take(pa.array(range(0, 24, 4))))
    queue.reload(ids.take(pa.array(range(1, 24, 3))))
    expected = sorted({*range(0, 24, 4), *range(1, 24, 3)})
    size = sum(store.view("slices").column("bytes").to_pylist())
    most = {"max_messages": 3} if limit == "messages" else {"max_bytes": size // 8}

    fired = []
    while firing := queue.fire(**most):
        fired += numbers_of(firing.messages)

    assert fired == expected


def test_reloading_into_the_sideline_keeps_its_order_too(store):
    queue = make_queue(store)
    ids = queue.load(orders(6))
    queue.sideline(queue.fire("all"))
    queue.fire("all", magazine="sideline")
    queue.reload(ids.take(pa.array([1, 3])))
    queue.reload(ids)
    assert numbers_of(queue.fire("all", magazine="sideline").messages) == [0, 1, 2, 3, 4, 5]
