"""The verbs of a streaming query: acknowledge, recover and hold; and peeking."""

from __future__ import annotations

import pytest

from queue_core.upkeep.tasks.purge import purge
from queue_core.values.model import Magazine, State, TicketRange
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.read_tickets import read_tickets
from tests.books import audit
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.processes.interleavings.steps import (
    fired_ids,
    fires,
    fires_unseen,
    on_sqlite,
    recovers,
    settles,
)


@pytest.fixture
def query(store):
    """A streaming query that has fired ten messages, and has not seen them."""
    make_queue(store).load(orders(10))
    query = store.consumer("query", beats=True)
    fires_unseen(store, query)
    return query


def acknowledges(query):
    return lambda store: acknowledge(store.catalog, query, 1, delete=True)


def plans(query):
    def verb(store):
        info = store.queue("orders").info
        return len(read_tickets(store.catalog, store.storage.uri, [info], TicketRange(query, 0, 1)))

    return verb


# acknowledge, recover and hold, as a streaming query does


def test_acknowledging_deletes_only_what_a_settlement_has_left(store, query, race):
    ids = sorted(audit(store).ids())
    settling = settles("sideline", ids[:4])

    assert race(settling, "settle.before_commit", acknowledges(query)) == (4, 6)
    assert audit(store).ids() == set(ids[:4])


def test_what_is_acknowledged_is_not_given_back(store, query, race):
    first, waits = acknowledges(query), on_sqlite(store)
    assert race(first, "acknowledge.before_commit", recovers, waits=waits) == (10, 0)
    assert audit(store).ids() == set()


def test_what_is_given_back_is_not_acknowledged(store, query, race):
    """The consumer was thought to be dead, and was not."""
    assert race(recovers, "recover.before_commit", acknowledges(query)) == (10, 0)
    assert len(audit(store).ids(Magazine.MAIN, State.LOADED)) == 10


def test_what_is_given_back_is_not_shown(store, query, race):
    assert race(recovers, "recover.before_commit", plans(query)) == (10, 0)
    audit(store)


def test_a_settlement_and_a_recovery_share_a_ticket(store, query, race):
    ids = sorted(audit(store).ids())

    assert race(settles("delete", ids[:4]), "settle.before_commit", recovers) == (4, 6)
    assert audit(store).ids(Magazine.MAIN, State.LOADED) == set(ids[4:])


# looking, while others change what is looked at


@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_who_reads_a_ticket_sees_it_before_or_after_a_settlement(store, query, race, outcome):
    settling = settles(outcome, sorted(audit(store).ids()))

    assert race(plans(query), "SELECT segments", settling, waits=False) == (10, 10)
    assert plans(query)(store) == 0


def test_who_looks_at_a_queue_sees_it_before_or_after_a_settlement(store, race):
    queue = make_filled(store, 10)
    settling = settles("delete", fired_ids(store))

    def looks(store):
        return store.queue("orders").browse().num_rows

    assert race(looks, "SELECT segments", settling, waits=False) == (10, 10)
    assert queue.browse().num_rows == 0


def test_a_selector_takes_only_what_is_still_there(store, one, two):
    """It looks at the messages before it takes them; others may be faster."""
    make_filled(store, 10)

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
    queue = make_filled(store, 10)

    one.start(fires(4, name="python:host:1:0123abcd"), "fire.before_commit")
    two.start(lambda store: purge(store.catalog, 0))
    assert two.waits()

    assert one.finish() == [0, 1, 2, 3]
    two.finish()
    assert store.view("consumers").column("consumer").to_pylist() == ["python:host:1:0123abcd"]
    assert queue.sweep(0) == 4
