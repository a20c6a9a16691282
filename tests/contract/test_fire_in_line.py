"""Firings that find nothing wait in line, and are served in order of arrival."""

from collections import Counter

from tests.factories import make_queue, numbers_of, orders
from tests.waiting import PATIENCE, Caller, standing, stands_for_ever, waits


def test_firings_are_served_in_order_of_arrival(store):
    queue = make_queue(store)
    callers = []
    for number in range(4):
        callers.append(Caller(lambda: queue.fire(1, timeout=PATIENCE)))
        waits(store, number + 1, "fire")

    for number in range(4):
        queue.load(orders(1, number))

    assert [numbers_of(caller.done().messages) for caller in callers] == [[0], [1], [2], [3]]
    assert standing(store, "fire") == []


def test_one_load_serves_all_waiters(store):
    queue = make_queue(store)
    callers = [Caller(lambda: queue.fire(1, timeout=PATIENCE)) for _ in range(3)]
    waits(store, 3, "fire")

    queue.load(orders(3))

    assert Counter(len(caller.done()) for caller in callers) == {1: 3}


def test_a_firing_does_not_overtake_waiters(store):
    queue = make_queue(store)
    stands_for_ever(store, queue, "fire", alive=9)
    queue.load(orders(2))

    assert not queue.fire("all")
    assert numbers_of(queue.fire("all", selector="number = 1").messages) == [1]
    assert not queue.fire("all", timeout=0.05)


def test_a_firing_with_a_selector_keeps_no_other_waiting(store):
    queue = make_queue(store)
    picky = Caller(lambda: queue.fire(1, timeout=PATIENCE, selector="number = 7"))
    plain = Caller(lambda: queue.fire(1, timeout=PATIENCE))
    waits(store, 1, "fire")

    queue.load(orders(1, 3))
    assert numbers_of(plain.done().messages) == [3]
    queue.load(orders(1, 7))
    assert numbers_of(picky.done().messages) == [7]
