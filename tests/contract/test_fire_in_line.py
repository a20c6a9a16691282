"""Firings that find nothing wait in line, and are served in order of arrival."""

import time
from collections import Counter

import pyarrow as pa
import pytest

from queue_core.catalog import notifications
from queue_core.catalog.holders import waiters
from tests.factories import load_singly, make_queue, numbers_of, orders
from tests.statements import counted
from tests.waiting import PATIENCE, Caller, standing, stands_for_ever, until, waits

pytestmark = pytest.mark.each_catalog


def test_firings_are_served_in_order_of_arrival(store):
    queue = make_queue(store)
    callers = []
    for number in range(4):
        callers.append(Caller(lambda: queue.fire(1, timeout=PATIENCE)))
        waits(store, number + 1, "fire")

    load_singly(queue, 4)

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


def test_a_firing_goes_at_once_while_there_is_enough_for_all(store):
    queue = make_queue(store, shards=2)
    stands_for_ever(store, queue, "fire", alive=9)
    for _ in range(2):
        queue.load(orders(30))

    assert [len(queue.fire(20)) for _ in range(3)] == [20, 20, 0]
    # A few messages are never enough for two, however small their limits are.
    assert [len(queue.fire(1)) for _ in range(2)] == [1, 0]


@pytest.mark.parametrize(
    ("settings", "loads"), [({}, 2), ({"shards": 4}, 1), ({"shards": 2, "fair_by": "customer"}, 2)]
)
def test_a_firing_overtakes_none_if_the_order_of_messages_would_show_it(store, settings, loads):
    queue = make_queue(store, **settings)
    stands_for_ever(store, queue, "fire", alive=9)
    for _ in range(loads):
        queue.load(orders(50))
    assert not queue.fire(1)


def test_a_waiter_goes_before_a_slow_one_if_there_is_enough_for_both(store):
    queue = make_queue(store, shards=2)
    stands_for_ever(store, queue, "fire", alive=9)
    caller = Caller(lambda: queue.fire(20, timeout=PATIENCE))
    waits(store, 2, "fire")

    queue.load(orders(30))
    assert not queue.fire(20)
    queue.load(orders(10, 30))

    assert len(caller.done()) == 20
    assert len(standing(store, "fire")) == 1


@pytest.mark.parametrize("timeout", [0, PATIENCE])
def test_a_killed_waiter_keeps_others_from_messages_for_a_moment_only(store, timeout):
    """Its place in the line lasts for longer. Pools do not wait in line, but try again."""
    queue = make_queue(store, fair_by="customer")
    for _ in range(2):
        stands_for_ever(store, queue, "fire", alive=9)
    caller = Caller(lambda: queue.fire(1, timeout=PATIENCE)) if timeout else None
    if caller:
        waits(store, 3, "fire")
    queue.load(orders(1))

    until(lambda: not caller.is_alive() if caller else len(queue.fire(1)))

    assert len(standing(store, "fire")) == 2, "they still counted as alive"
    assert caller is None or len(caller.done()) == 1
    queue.load(orders(1))
    assert len(queue.fire(1)) == 1, "there was no other sign of life"
    first = standing(store, "fire")[0]
    for act in (waiters.renew, waiters.leave):
        store.catalog.write(lambda connection, act=act: act(connection, first))
        queue.load(orders(1))
        assert not queue.fire(1), "whoever lives or comes next has its own time"


@pytest.mark.parametrize(("place", "looks_often"), [(2, True), (3, False)])
def test_the_second_in_line_looks_soon_after_each_change(store, place, looks_often):
    """Its turn may come with any of them; the others look less and less often."""
    queue = make_queue(store)
    for _ in range(place - 1):
        stands_for_ever(store, queue, "fire", alive=9)
    caller = Caller(lambda: queue.fire(1, timeout=PATIENCE))
    waits(store, place, "fire")
    slow = standing(store, "fire")[:-1]

    def change(connection):
        for number in slow:
            waiters.renew(connection, number)
        notifications.notify(connection, queue.info.id)

    def looks_often_now():
        """At a distance of 0.3 seconds, 20 looks take longer."""
        end = time.monotonic() + (3 if looks_often else 1.0)
        with counted(store) as statements:
            while time.monotonic() < end:
                store.catalog.write(change)
                time.sleep(0.01)
                if sum("count(waiters.id)" in each for each in statements) >= 20:
                    return True
        return False

    # A busy machine may need another three seconds.
    often = any(looks_often_now() for _ in range(10 if looks_often else 1))

    assert often == looks_often
    queue.load(orders(1))
    for number in slow:
        store.catalog.write(lambda connection, number=number: waiters.leave(connection, number))
    assert len(caller.done()) == 1


def test_a_firing_that_waits_has_the_columns_that_another_thread_adds(store):
    queue = make_queue(store)
    caller = Caller(lambda: queue.fire(1, timeout=PATIENCE))
    waits(store, 1, "fire")
    queue.admin.add_columns(pa.schema([pa.field("note", pa.string())]))
    queue.load(orders(1).append_column("note", pa.array(["fragile"])))
    assert caller.done().messages.column("note").to_pylist() == ["fragile"]


@pytest.mark.parametrize("picks", [{"selector": "number = 7"}, {"magazine": "sideline"}], ids=str)
def test_a_firing_that_wants_other_messages_keeps_no_other_waiting(store, picks):
    queue = make_queue(store)
    picky = Caller(lambda: queue.fire(1, timeout=PATIENCE, **picks))
    plain = Caller(lambda: queue.fire(1, timeout=PATIENCE))
    waits(store, 1, "fire")

    queue.load(orders(1, 3))
    firing = plain.done()
    assert numbers_of(firing.messages) == [3]
    queue.sideline(firing)
    queue.load(orders(1, 7))
    assert numbers_of(picky.done().messages) == [3 if "magazine" in picks else 7]
