"""Lose in fair queues: suspects take turns among themselves, and come before other messages."""

from collections import Counter

import pyarrow as pa
import pytest

from queue_core import Limit
from tests.books import audit
from tests.contract.lost import fire, losses, start
from tests.dump import backdate
from tests.factories import make_queue, numbers_of, orders

HOURS = 10_000.0


def of(customer, count, first=0):
    return orders(count, first).set_column(1, "customer", pa.array([customer] * count))


def customers_of(messages):
    return Counter(messages.column("customer").to_pylist())


def test_suspects_of_a_fair_queue_take_turns_too(store):
    queue = make_queue(store, shards=2, fair_by="customer")
    queue.load(of("big", 100))
    queue.load(of("small", 4, 100))
    queue.fire(16, consumer=start(store))
    consumer = start(store)

    first = queue.fire(100, consumer=consumer)
    assert len(first) == 8
    # The small customer is not behind all of the big one.
    assert customers_of(first.messages)["small"] >= 3
    queue.delete(first)
    second = queue.fire(100, consumer=consumer)
    assert len(second) == 8
    queue.delete(second)
    assert customers_of(queue.fire(100, consumer=consumer).messages) == {"big": 88}
    assert store.admin.fsck().num_rows == 0


def test_suspects_of_a_fair_queue_keep_the_order_of_their_value(store):
    queue = make_queue(store, shards=3, key="customer", fair_by="customer")
    queue.load(orders(60, customers=3))
    queue.fire(24, consumer=start(store))
    consumer = start(store)

    seen = {f"customer-{n}": [] for n in range(3)}
    while firing := queue.fire(5, consumer=consumer):
        for row in firing.messages.select(["number", "customer"]).to_pylist():
            seen[row["customer"]].append(row["number"])
        queue.delete(firing)

    assert seen == {f"customer-{n}": list(range(n, 60, 3)) for n in range(3)}


def test_a_late_value_does_not_wait_for_values_whose_suspects_are_done(store):
    """What was fired and lost counts as the turns of its customer, and no second time."""
    queue = make_queue(store, fair_by="customer")
    queue.load(of("big", 100))
    queue.fire(40, consumer=start(store))
    consumer = start(store)
    queue.load(of("late", 10, 100))
    queue.delete(queue.fire(100, consumer=consumer))
    queue.delete(queue.fire(100, consumer=consumer))

    assert customers_of(queue.fire(20, consumer=consumer).messages) == {"big": 10, "late": 10}


@pytest.mark.parametrize("how", [{}, {"selector": "number >= 0"}, {"max_bytes": 10**6}])
def test_a_killer_in_a_fair_queue_is_found(store, how):
    queue = make_queue(store, shards=2, fair_by="customer", fair_weights={"customer-1": 3})
    queue.load(orders(40, customers=4))

    deaths = 0
    while not queue.browse(magazine="sideline").num_rows:
        firing = queue.fire(32, consumer=start(store), **how)
        assert deaths < 12
        if 5 in numbers_of(firing.messages):
            deaths += 1
            continue
        queue.delete(firing)
        assert firing or not queue.browse().num_rows

    assert numbers_of(queue.browse(magazine="sideline")) == [5]
    assert deaths <= 8
    assert store.admin.fsck().num_rows == 0


def test_a_suspect_that_comes_back_from_the_sideline_keeps_its_turn_among_suspects(store):
    queue = make_queue(store, fair_by="customer")
    queue.load(orders(8, customers=2))
    dead = store.consumer("dead", beats=True)
    fire(queue, dead, 4)
    backdate(store, HOURS)
    queue.sweep(dead_after=0)
    queue.shovel(force=True)

    assert losses(store) == {(1, 4): 4, (0, 0): 4}
    assert fire(queue, start(store)) == [0, 1]
    assert numbers_of(queue.fire(9).messages) == [2, 3]
    assert numbers_of(queue.fire(9).messages) == [4, 5, 6, 7]


def test_limits_of_a_fair_queue_count_its_suspects(store):
    queue = make_queue(store, fair_by="customer", limits=[Limit(in_flight=3)])
    queue.load(orders(8, customers=2))
    assert fire(queue, start(store), 6) == [0, 1, 2]
    start(store)

    assert [numbers_of(queue.fire(9).messages) for _ in range(4)] == [[0], [1], [2], []]


def test_compaction_of_a_fair_queue_keeps_suspects_apart_and_their_turns(store):
    queue = make_queue(store, fair_by="customer")
    for number in range(40):
        queue.load(orders(1, number, customers=4))
    fire(queue, start(store), 20)
    start(store)
    before = numbers_of(queue.peek(100))

    queue.admin.compact()

    assert losses(store) == {(1, 20): 20, (0, 0): 20}
    assert numbers_of(queue.peek(100)) == before
    audit(store)
