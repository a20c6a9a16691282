"""A query that waits for enough messages: minMessagesPerTrigger and maxTriggerDelay."""

import time

import pytest
from sqlalchemy import select

from ignis_source import session
from ignis_source.offset import Offset
from queue_core.catalog.holder_tables import interests
from queue_core.errors import QueueDeactivated, SubscriptionDetached
from queue_core.segments.reader import read_table
from tests.factories import make_filled, make_queue, orders
from tests.waiting import look_at_once, until

pytestmark = pytest.mark.each_catalog

START = Offset("reader", 0)


@pytest.fixture(autouse=True)
def fresh_figures(monkeypatch):
    monkeypatch.setattr(session, "FRESH_SECONDS", 0.0)


def ask(query, start=START):
    return query.next(start, None, None, lingers=True)


def test_a_batch_waits_for_enough_messages_of_all_its_queues(store, session):
    queue, other = make_queue(store), make_queue(store, "others")
    query = session(queues="orders,others", minMessagesPerTrigger=5)
    queue.load(orders(3))

    assert ask(query) == START
    assert store.view("queues").column("in_flight").to_pylist() == [0, 0]
    other.load(orders(2))
    end = ask(query)

    assert read_table(query.plan(START, end), ["number"]).num_rows == 5
    # The next batch waits too.
    queue.load(orders(1, first=3))
    query.acknowledge(end)
    assert ask(query, end) == end


def test_a_query_that_waits_learns_that_its_queue_is_resumed_or_given_up(store, session):
    queue = make_queue(store, concurrency=0)
    query = session(minMessagesPerTrigger=2, refreshInterval="0")
    queue.load(orders(2))
    assert ask(query) == START

    queue.admin.change_settings(concurrency=1)
    end = ask(query)
    assert end != START

    queue.admin.deactivate()
    with pytest.raises(QueueDeactivated):
        ask(query, end)


def test_a_query_does_not_wait_for_messages_of_a_log_that_its_queue_has_left(store, session):
    make_queue(store, log="1 day").load(orders(3))
    reader = store.subscribe("billing", to="orders", start="earliest")
    assert reader.browse().num_rows == 3
    query = session(queues="billing", minMessagesPerTrigger=5, refreshInterval="0")
    assert ask(query) == START

    reader.admin.detach()

    end = ask(query)
    assert end != START
    query.acknowledge(end)
    with pytest.raises(SubscriptionDetached):
        ask(query, end)


def test_a_detached_subscription_ends_the_query_whose_other_queue_has_ended(store, session):
    make_queue(store, "orders", log="1 day")
    reader = store.subscribe("billing", to="orders")
    other = make_queue(store, "other")
    query = session(queues="billing,other", minMessagesPerTrigger=5, refreshInterval="0")
    assert ask(query) == START

    reader.admin.detach()
    other.admin.deactivate()

    with pytest.raises((SubscriptionDetached, QueueDeactivated)):
        ask(query)


def test_the_messages_of_a_batch_do_not_count_for_the_next_one(store, session, monkeypatch):
    monkeypatch.setattr("ignis_source.session.FRESH_SECONDS", 1000.0)
    queue = make_filled(store, 5)
    query = session(minMessagesPerTrigger=5)
    end = ask(query)
    assert end != START

    queue.load(orders(1, first=5))
    query.acknowledge(end)

    assert ask(query, end) == end


def test_messages_do_not_wait_for_ever(store, session):
    queue = make_queue(store)
    query = session(minMessagesPerTrigger=5, maxTriggerDelay="500ms", idleWait="10ms")
    queue.load(orders(1))
    began = time.monotonic()

    while (end := ask(query)) == START:
        assert time.monotonic() - began < 30

    assert time.monotonic() - began >= 0.45
    assert read_table(query.plan(START, end), ["number"]).num_rows == 1


def test_a_run_to_the_end_does_not_wait(store, session):
    make_filled(store, 1)
    query = session(minMessagesPerTrigger=5)
    query.set_horizon()

    assert ask(query) != START


def test_a_batch_that_was_fired_before_does_not_wait(store, session):
    make_filled(store, 5)
    first = session(minMessagesPerTrigger=5)
    end = ask(first)
    assert end != START

    assert ask(session(minMessagesPerTrigger=5)) == end


@pytest.mark.usefixtures("quick_beats")
def test_a_query_sees_that_its_breaker_closes_although_others_take_its_messages(store, session):
    queue, switch = make_queue(store), store.admin.breaker("service")
    switch.open()
    query = session(priority="5", minMessagesPerTrigger=5, breaker='{"name": "service"}')

    def wants():
        with store.catalog.read() as connection:
            return connection.scalar(select(interests.c.interested))

    queue.load(orders(5))
    assert ask(query) == START
    until(lambda: not wants())

    queue.delete(queue.fire("all"))
    switch.close()
    look_at_once(query)
    assert ask(query) == START
    until(wants)
