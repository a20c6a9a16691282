"""Firings from main and from the sideline, beside other firings and shovels."""

from __future__ import annotations

import pytest

from queue_core.errors import ConsumerFenced
from queue_core.values.model import State
from tests.books import audit
from tests.factories import make_filled, make_queue, numbers_of, orders, with_sidelined
from tests.processes.interleavings.steps import BOTH, fires, on_sqlite, two_customers
from tests.processes.interleavings.test_logs import sets

# fire and fire


@pytest.mark.parametrize("pieces", [1, 10], ids=["one slice", "many slices"])
@BOTH
def test_the_second_firing_of_a_shard_goes_on_behind_the_first(store, race, pieces, fails):
    """If the first one fails, it leaves its place to the second."""
    queue = make_queue(store)
    for part in range(pieces):
        queue.load(orders(20 // pieces, part * 20 // pieces))

    first, second = ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9]) if not fails else (None, [0, 1, 2, 3, 4])
    assert race(fires(5), "fire.before_commit", fires(5), fails=fails) == (first, second)
    audit(store)


def test_firings_from_different_shards_do_not_wait_for_each_other(store, one, two):
    queue = make_queue(store, shards=2, key="customer")
    first, second = (
        [{"number": n, "customer": name} for n in range(3)] for name in two_customers(queue)
    )
    queue.load(first)
    one.start(fires(), stop_at="fire.before_commit")
    two.start(lambda store: store.queue("orders").load(second).to_pylist())
    if on_sqlite(store):
        assert two.waits()
    else:
        two.finish()
        two.start(fires())
        assert two.passes()
        assert two.finish() == [0, 1, 2]
    assert one.finish() == [0, 1, 2]


def test_a_firing_in_global_order_waits_for_the_shards_of_others(store, one, two):
    """Else it would take a later message of a free shard, and leave an earlier one."""
    queue = make_queue(store, shards=2, key="customer")
    first, second = two_customers(queue)
    queue.load([{"number": n, "customer": first} for n in range(2)])

    def loads_more(store):
        return len(store.queue("orders").load([{"number": 2, "customer": second}]))

    def fires_one(store):
        return numbers_of(store.queue("orders").fire(selector="number = 1").messages)

    def fires_globally(store):
        return numbers_of(store.queue("orders").fire(3, order="global").messages)

    if on_sqlite(store):
        loads_more(store)
    one.start(fires_one, stop_at="fire.before_commit")
    if not on_sqlite(store):
        two.start(loads_more)
        two.finish()
    two.start(fires_globally)
    assert two.waits()

    assert one.finish() == [1]
    assert two.finish() == [0, 2]
    audit(store)


def test_a_firing_sees_nothing_only_when_nothing_is_left(store, race):
    """Else a query that ends when there is nothing would end too early."""
    make_queue(store).load(orders(10))

    assert race(fires(9), "fire.before_commit", fires()) == (list(range(9)), [9])


def test_one_consumer_fires_one_ticket_after_the_other(store, race):
    make_queue(store).load(orders(10))
    reader = store.consumer("reader")

    def verb(store):
        return store.queue("orders").fire(5, consumer=reader).ticket.number

    first, second = race(verb, "fire.before_commit", verb)

    assert second > first == 1


def test_a_consumer_that_is_started_again_fences_the_first_one_off(store, one, two, race):
    make_queue(store).load(orders(10))
    reader = store.consumer("reader")

    def verb(store):
        return len(store.queue("orders").fire(2, consumer=reader))

    assert race(verb, "fire.before_commit", lambda store: store.consumer("reader").epoch) == (2, 2)
    one.start(verb)
    with pytest.raises(ConsumerFenced, match="reader"):
        one.finish()
    assert len(audit(store).ids(state=State.FIRED)) == 2


# fire and a change of settings


def test_a_firing_finds_the_messages_of_a_queue_that_is_fair_no_more(store, race):
    make_queue(store, fair_by="customer").load(orders(10))

    _, fired = race(sets(fair_by=None), "DELETE FROM flows", fires(3))
    assert fired == [0, 1, 2]
    audit(store)


# fire and shovel, in the sideline


def test_a_shovel_takes_turns_with_a_firing_of_the_sideline(store, race):
    queue = with_sidelined(store, 10, reason="not today")

    def fires_sidelined(store):
        return numbers_of(store.queue("orders").fire(5, magazine="sideline").messages)

    def shovels(store):
        return store.queue("orders").shovel()

    assert race(fires_sidelined, "fire.before_commit", shovels) == ([0, 1, 2, 3, 4], 5)
    assert numbers_of(queue.fire("all").messages) == [5, 6, 7, 8, 9]
    audit(store)


def test_a_firing_of_few_messages_leaves_the_other_shards_to_others(store, one, two):
    make_filled(store, 40, shards=4, key="number")
    one.start(fires(1), stop_at="fire.before_commit")
    two.start(fires(3))
    if on_sqlite(store):
        assert two.waits()
    else:
        assert two.passes()
        assert len(two.finish()) == 3
    assert len(one.finish()) == 1
    audit(store)


def test_firings_that_have_met_lock_only_the_shards_that_they_need(store, one, two):
    """A large firing takes messages from all shards, and would keep the others from firing."""
    make_filled(store, 24_000, each=6000, shards=4)
    one.start(fires(8000), stop_at="fire.before_commit")
    two.start(fires(8000))
    assert two.waits()
    assert len(one.finish()) == len(two.finish()) == 8000

    # Alone, it would need four shards for as many, and two of them hold enough.
    fire_side_by_side(store, two, one, 4000)
    audit(store)


def test_small_firings_go_side_by_side(store, one, two):
    make_filled(store, 400, shards=4, key="number")

    fire_side_by_side(store, one, two, 8)
    audit(store)


def fire_side_by_side(store, first, second, limit):
    first.start(fires(limit), stop_at="fire.before_commit")
    second.start(fires(limit))
    if on_sqlite(store):
        assert second.waits()
    else:
        assert second.passes()
        assert len(second.finish()) == limit
    assert len(first.finish()) == limit


def test_a_firing_waits_for_one_shard_of_several_that_others_have(store, one, two):
    make_filled(store, 40, shards=2, key="number")
    one.start(fires(), stop_at="fire.before_commit")
    two.start(fires(2))
    assert two.waits()
    one.roll_back()

    assert len(two.finish()) == 2
    audit(store)
