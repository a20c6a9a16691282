"""Reload: fired messages go back to their old places, as if they had not been taken."""

import random

import pyarrow as pa

from tests.factories import make_queue, numbers_of, orders


def test_reloaded_messages_are_fired_again_before_later_ones(store):
    queue = make_queue(store)
    queue.load(orders(10))
    firing = queue.fire(5)

    assert queue.reload(firing) == 5
    assert numbers_of(queue.fire("all").messages) == list(range(10))


def test_a_single_message_goes_back_between_those_that_are_in_flight(store):
    queue = make_queue(store)
    ids = queue.load(orders(10))
    queue.fire("all")

    queue.reload(ids[4:5])
    assert numbers_of(queue.fire("all").messages) == [4]


def test_messages_reloaded_one_by_one_in_any_order_keep_their_old_order(store):
    queue = make_queue(store)
    for first in range(0, 30, 10):
        queue.load(orders(10, first))
    ids = queue.fire("all").ids.to_pylist()
    random.Random(7).shuffle(ids)

    for id in ids:
        queue.reload([id])

    fired = [numbers_of(queue.fire(4).messages) for _ in range(8)]
    assert [number for numbers in fired for number in numbers] == list(range(30))


def test_messages_that_interleave_are_fired_in_order_within_any_limit(store):
    """Every other one was deleted, and the others came back in two goes."""
    queue = make_queue(store)
    ids = queue.load(orders(24))
    queue.fire("all")
    queue.reload(ids.take(pa.array(range(0, 24, 4))))
    queue.reload(ids.take(pa.array(range(1, 24, 3))))
    expected = sorted({*range(0, 24, 4), *range(1, 24, 3)})

    fired = []
    while firing := queue.fire(3):
        fired += numbers_of(firing.messages)
        assert numbers_of(firing.messages) == sorted(numbers_of(firing.messages))

    assert fired == expected


def test_messages_that_interleave_are_fired_in_order_within_any_limit_of_bytes(store):
    queue = make_queue(store)
    ids = queue.load(orders(24))
    queue.fire("all")
    queue.reload(ids.take(pa.array(range(0, 24, 2))))
    queue.reload(ids.take(pa.array(range(1, 24, 2))))
    size = sum(store.view("slices").column("bytes").to_pylist())

    fired = []
    while firing := queue.fire(max_bytes=size // 5):
        fired += numbers_of(firing.messages)

    assert fired == list(range(24))


def test_a_reload_counts_no_failure(store):
    queue = make_queue(store)
    queue.load(orders(2))

    queue.reload(queue.fire("all"))

    assert queue.fire("all").messages.column("_attempt").to_pylist() == [0, 0]
    assert queue.failures().num_rows == 0


def test_a_message_knows_when_it_was_last_fired(store):
    queue = make_queue(store)
    queue.load(orders(1))
    firing = queue.fire("all")

    queue.reload(firing)

    (shown,) = queue.peek().column("_fired_at").cast("int64").to_pylist()
    assert shown == firing.ticket.fired_at


def test_deliveries_are_counted_however_often_a_message_comes_back(store):
    queue = make_queue(store)
    queue.load(orders(1))

    for _ in range(3):
        queue.reload(queue.fire("all"))

    assert store.view("slices").column("deliveries").to_pylist() == [3]


def test_reloading_into_the_sideline_keeps_its_order_too(store):
    queue = make_queue(store)
    ids = queue.load(orders(6))
    queue.sideline(queue.fire("all"))
    queue.fire("all", magazine="sideline")

    queue.reload(ids.take(pa.array([1, 3])))
    queue.reload(ids)

    assert numbers_of(queue.fire("all", magazine="sideline").messages) == [0, 1, 2, 3, 4, 5]


def test_reloading_what_is_not_fired_changes_nothing(store):
    queue = make_queue(store)
    ids = queue.load(orders(4))
    queue.delete(queue.fire(2))

    assert queue.reload(ids) == 0
    assert numbers_of(queue.browse()) == [2, 3]
