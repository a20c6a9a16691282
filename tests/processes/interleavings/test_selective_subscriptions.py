"""What a subscription with a selector takes in, beside what stops, turns or passes it."""

from __future__ import annotations

import pytest

from queue_core.errors import SubscriptionDetached
from tests.books import in_order
from tests.dump import log_earlier
from tests.factories import numbers_of, orders
from tests.processes.interleavings.steps import BOTH, MANY
from tests.processes.interleavings.test_logs import trims


def takes(count):
    """A firing from the subscription; returns the numbers of its orders, and None at its end."""

    def verb(store):
        queue, consumer = store.queue("even"), store.consumer(f"reader-{id(store)}")
        try:
            return numbers_of(queue.fire(count, consumer=consumer, timeout=0).messages)
        except SubscriptionDetached:
            return None

    return verb


def detaches(store):
    store.queue("even").admin.detach()
    return "detached"


def turns(store):
    return store.queue("even").admin.change_settings(selector="number % 2 = 1").selector


@pytest.fixture
def topic(store, topic):
    store.subscribe("even", to="orders", selector="number % 2 = 0")
    topic.load(orders(MANY))
    return topic


@BOTH
def test_a_trim_waits_for_an_intake(store, topic, race, fails):
    topic.delete(topic.fire("all"))
    log_earlier(store, 3_601)

    taken, trimmed = race(takes(3), "take_in.before_commit", trims, fails=fails)
    assert taken == (None if fails else [0, 2, 4])
    assert trimmed == (0 if fails else MANY)
    assert len(takes("all")(store)) == MANY // 2 - (0 if fails else 3)
    in_order(store)


@BOTH
def test_two_intakes_take_each_message_once(store, topic, race, fails):
    one, two = race(takes(3), "take_in.before_commit", takes(3), fails=fails)
    assert sorted((one or []) + two) == list(range(0, 6 if fails else 12, 2))
    assert len(takes("all")(store)) == MANY // 2 - (3 if fails else 6)
    in_order(store)


@BOTH
def test_a_new_selector_waits_for_an_intake_and_does_not_undo_it(store, topic, race, fails):
    taken, selector = race(takes(3), "take_in.before_commit", turns, fails=fails)
    assert selector == "number % 2 = 1"
    left = takes("all")(store)
    first = 1 if fails else 0
    assert (taken or []) + left == list(range(first, MANY, 2))
    in_order(store)


@BOTH
def test_a_detachment_waits_for_an_intake(store, topic, race, fails):
    taken, _ = race(takes(3), "take_in.before_commit", detaches, fails=fails)
    assert taken == (None if fails else [0, 2, 4])
    left = takes("all")(store)
    assert left is None if fails else len(left) == MANY // 2 - 3
    in_order(store)


@BOTH
def test_an_intake_waits_for_a_detachment(store, topic, race, fails):
    _, taken = race(detaches, "detach.before_commit", takes(3), fails=fails)
    assert taken == ([0, 2, 4] if fails else None)
    in_order(store)
