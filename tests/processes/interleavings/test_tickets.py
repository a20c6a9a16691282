"""The verbs of a streaming query: acknowledge, recover and hold; and peeking."""

from __future__ import annotations

import pytest

from queue_core.upkeep.tasks.purge import purge
from queue_core.values.model import Magazine, State, TicketRange
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.read_tickets import read_tickets
from tests.books import audit
from tests.factories import make_queue, numbers_of, orders
from tests.processes.interleavings.steps import fired_ids, fires, fires_unseen, on_sqlite, settles

# acknowledge, recover and hold, as a streaming query does


def test_acknowledging_deletes_only_what_a_settlement_has_left(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    query = store.consumer("query", beats=True)
    fires_unseen(store, query)
    ids = sorted(audit(store).ids())

    one.start(settles("sideline", ids[:4]), "settle.before_commit")
    two.start(lambda store: acknowledge(store.catalog, query, 1, delete=True))
    assert two.waits()

    assert one.finish() == 4
    assert two.finish() == 6
    assert audit(store).ids() == set(ids[:4])


def test_what_is_acknowledged_is_not_given_back(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    query = store.consumer("query", beats=True)
    fires_unseen(store, query)

    one.start(
        lambda store: acknowledge(store.catalog, query, 1, delete=True),
        "acknowledge.before_commit",
    )
    two.start(lambda store: store.admin.recover(dead_after=0))
    assert two.waits() == on_sqlite(store)

    assert one.finish() == 10
    assert two.finish() == 0
    assert audit(store).ids() == set()


def test_what_is_given_back_is_not_acknowledged(store, one, two):
    """The consumer was thought to be dead, and was not."""
    queue = make_queue(store)
    queue.load(orders(10))
    query = store.consumer("query", beats=True)
    fires_unseen(store, query)

    one.start(lambda store: store.admin.recover(dead_after=0), "recover.before_commit")
    two.start(lambda store: acknowledge(store.catalog, query, 1, delete=True))
    assert two.waits()

    assert one.finish() == 10
    assert two.finish() == 0
    assert len(audit(store).ids(Magazine.MAIN, State.LOADED)) == 10


def test_what_is_given_back_is_not_shown(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    query = store.consumer("query", beats=True)
    fires_unseen(store, query)

    def plans(store):
        info = store.queue("orders").info
        return len(read_tickets(store.catalog, store.storage.uri, [info], TicketRange(query, 0, 1)))

    one.start(lambda store: store.admin.recover(dead_after=0), "recover.before_commit")
    two.start(plans)
    assert two.waits()

    assert one.finish() == 10
    assert two.finish() == 0
    audit(store)


def test_a_settlement_and_a_recovery_share_a_ticket(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    fires_unseen(store, store.consumer("query", beats=True))
    ids = sorted(audit(store).ids())

    one.start(settles("delete", ids[:4]), "settle.before_commit")
    two.start(lambda store: store.admin.recover(dead_after=0))
    assert two.waits()

    assert one.finish() == 4
    assert two.finish() == 6
    assert audit(store).ids(Magazine.MAIN, State.LOADED) == set(ids[4:])


# looking, while others change what is looked at


@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_who_reads_a_ticket_sees_it_before_or_after_a_settlement(store, one, two, outcome):
    queue = make_queue(store)
    queue.load(orders(10))
    query = store.consumer("query", beats=True)
    fires_unseen(store, query)

    def plans(store):
        info = store.queue("orders").info
        return len(read_tickets(store.catalog, store.storage.uri, [info], TicketRange(query, 0, 1)))

    one.start(plans, stop_at="SELECT segments")
    two.start(settles(outcome, sorted(audit(store).ids())))
    assert two.passes()

    assert two.finish() == 10
    assert one.finish() == 10
    assert plans(store) == 0


def test_who_looks_at_a_queue_sees_it_before_or_after_a_settlement(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = fired_ids(store)

    one.start(lambda store: store.queue("orders").browse().num_rows, stop_at="SELECT segments")
    two.start(settles("delete", ids))
    assert two.passes()

    assert two.finish() == 10
    assert one.finish() == 10
    assert queue.browse().num_rows == 0


def test_a_selector_takes_only_what_is_still_there(store, one, two):
    """It looks at the messages before it takes them; others may be faster."""
    queue = make_queue(store)
    queue.load(orders(10))

    def fires_some(store):
        return numbers_of(store.queue("orders").fire("all", selector="number >= 4").messages)

    one.start(fires_some, stop_at="SELECT segments")
    two.start(fires(7))
    assert two.passes()
    assert two.finish() == [0, 1, 2, 3, 4, 5, 6]
    assert settles("delete", sorted(audit(store).ids(state=State.FIRED))[:7])(store) == 7

    assert one.finish() == [7, 8, 9]
    audit(store)


# purge


def test_a_consumer_that_fires_for_the_first_time_is_not_forgotten(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))

    one.start(fires(4, name="python:host:1:0123abcd"), "fire.before_commit")
    two.start(lambda store: purge(store.catalog, 0))
    assert two.waits()

    assert one.finish() == [0, 1, 2, 3]
    two.finish()
    assert store.view("consumers").column("consumer").to_pylist() == ["python:host:1:0123abcd"]
    assert queue.sweep(0) == 4
