"""Deliveries: messages that were handed out too often are sidelined for good."""

import pytest

from queue_core.verbs.abandon import abandon
from tests.dump import dump
from tests.factories import aside, make_filled, numbers_of, planned, seen


def deliveries(store):
    return store.view("slices").column("deliveries").to_pylist()


def test_a_sweep_sets_messages_aside_that_were_fired_too_often(store):
    queue = make_filled(store, 3, max_deliveries=2)
    for _ in range(2):
        queue.reload(queue.fire(2))

    assert numbers_of(queue.fire("all").messages) == [2]
    assert queue.sweep() == 2
    assert aside(queue) == [0, 1]
    assert queue.failures().column("kind").to_pylist() == ["deliveries"] * 2
    assert queue.shovel() == 0
    assert numbers_of(queue.fire("all", magazine="sideline").messages) == [0, 1]


def test_without_the_setting_nothing_is_counted_out(store):
    queue = make_filled(store, 1)
    for _ in range(5):
        queue.reload(queue.fire("all"))
    assert queue.sweep() == 0
    assert len(queue.fire("all")) == 1


def test_what_the_setting_does_not_count_out_any_more_stays_in_a_sweep_that_has_begun(store):
    queue = make_filled(store, 1, max_deliveries=2)
    for _ in range(2):
        queue.reload(queue.fire("all"))
    known = queue.info
    queue.admin.change_settings(max_deliveries=None)

    assert abandon(store.catalog, known) == 0
    assert len(queue.fire("all")) == 1


@pytest.mark.each_catalog
@pytest.mark.parametrize("most", [2**31 - 1, 2**31, 2**63])
def test_a_setting_may_be_more_than_any_message_can_reach(store, most):
    queue = make_filled(store, 2, max_deliveries=most)
    queue.reload(queue.fire("all"))
    assert queue.sweep() == 0
    queue.sideline(queue.fire("all"))
    assert queue.shovel() == 2
    assert len(queue.fire("all")) == 2


# --- a message that kills its query each time -----------------------------------------------------


def test_only_being_shown_to_a_new_life_is_one_delivery_more(store):
    queue = make_filled(store, 2)
    ticket = planned(store, queue, store.consumer("query", beats=True), 2)

    for expected in (1, 2, 3):
        seen(store, queue, ticket)
        assert deliveries(store) == [expected]
        before = dump(store)
        seen(store, queue, ticket)
        assert dump(store) == before
        store.consumer("query", beats=True)


def test_what_was_shown_to_too_many_lives_is_taken_from_its_ticket(store):
    queue = make_filled(store, 3, max_deliveries=2)
    ticket = planned(store, queue, store.consumer("query", beats=True), 2)
    assert len(seen(store, queue, ticket)) == 2
    store.consumer("query", beats=True)
    assert len(seen(store, queue, ticket)) == 2

    store.consumer("query", beats=True)

    assert len(seen(store, queue, ticket)) == 0
    assert aside(queue) == [0, 1]
    failures = queue.failures()
    assert failures.column("kind").to_pylist() == ["deliveries"] * 2
    assert failures.column("consumer").to_pylist() == ["query"] * 2
    assert queue.shovel() == 0


@pytest.mark.parametrize("most", [None, 3])
def test_others_of_the_ticket_are_shown_as_before(store, most):
    queue = make_filled(store, 4, max_deliveries=most)
    queue.reload(queue.fire(1))
    ticket = planned(store, queue, store.consumer("query", beats=True), 4)
    for _ in range(2):
        seen(store, queue, ticket)
        store.consumer("query", beats=True)
    assert len(seen(store, queue, ticket)) == (4 if most is None else 3)
