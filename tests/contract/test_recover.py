"""Recover and acknowledge: the fate of tickets that no checkpoint names."""

import time

import pytest
from sqlalchemy import select

from queue_core.catalog.holder_tables import tickets
from queue_core.catalog.holders.tickets import ticket_behind
from queue_core.errors import CatalogUnavailable, ConsumerFenced
from queue_core.selection.fired import Fired
from queue_core.values.model import Magazine
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.recover import give_back
from tests.dump import backdate, dump
from tests.factories import make_filled, numbers_of, planned, seen, with_sidelined


@pytest.fixture
def query(store):
    return store.consumer("query", beats=True)


# --- recover --------------------------------------------------------------------------------------


def test_what_a_dead_query_fired_and_nobody_saw_goes_back_to_its_place(store, query):
    """It counts as no delivery and no attempt, and is done once."""
    queue = make_filled(store, 10)
    planned(store, queue, query, 6)

    assert store.admin.recover(dead_after=0) == 6
    with store.catalog.read() as connection:
        assert connection.execute(select(tickets)).all() == []
    rows = store.view("slices").select(["deliveries", "attempts", "state"]).to_pylist()
    assert {tuple(row.values()) for row in rows} == {(0, 0, "loaded")}
    before = dump(store)
    assert store.admin.recover(dead_after=0) == 0
    assert dump(store) == before
    assert numbers_of(queue.fire("all").messages) == list(range(10))


def test_what_somebody_has_seen_is_not_given_back(store, query):
    queue = make_filled(store, 4)
    ticket = planned(store, queue, query, 2)
    seen(store, queue, ticket)

    assert store.admin.recover(dead_after=0) == 0
    assert numbers_of(queue.peek()) == [2, 3]


def test_what_a_living_query_has_fired_is_not_given_back(store, query):
    queue = make_filled(store, 4)
    queue.fire(1)
    # A plain consumer hands its messages out at once.
    assert store.admin.recover(dead_after=0) == 0
    planned(store, queue, query, 2)
    before = dump(store)

    assert store.admin.recover(dead_after=30) == 0
    assert dump(store) == before


def test_tickets_of_several_dead_queries_are_given_back_at_once(store):
    queue = make_filled(store, 10)
    for name in ("one", "two"):
        consumer = store.consumer(name, beats=True)
        planned(store, queue, consumer, 2)
        planned(store, queue, consumer, 2)

    assert store.admin.recover(dead_after=0) == 8
    assert numbers_of(queue.fire("all").messages) == list(range(10))


def test_what_was_swept_before_is_not_given_back(store, query):
    queue = make_filled(store, 4)
    planned(store, queue, query, 2)
    backdate(store, 1000)
    queue.sweep(10, dead_after=0)

    assert store.admin.recover(dead_after=0) == 0
    assert numbers_of(queue.browse(magazine="sideline")) == [0, 1]


def test_a_query_that_nobody_starts_again_gives_back_all_that_it_holds(store, query):
    """Seen or not, it counts as no delivery; others' messages stay where they are."""
    queue = make_filled(store, 10)
    ticket = planned(store, queue, query, 3)
    seen(store, queue, ticket)
    planned(store, queue, query, 3)
    planned(store, queue, store.consumer("other", beats=True), 2)

    assert give_back(store.catalog, "query") == 6
    assert give_back(store.catalog, "query") == 0
    rows = store.view("slices").select(["deliveries", "attempts", "lost", "state"]).to_pylist()
    waiting = [each for each in rows if each["state"] == "loaded"]
    assert {tuple(each.values())[:3] for each in waiting} == {(0, 0, 0)}
    assert numbers_of(queue.peek()) == [0, 1, 2, 3, 4, 5, 8, 9]
    with pytest.raises(ConsumerFenced):
        planned(store, queue, query, 1)
    # Its checkpoint can be used again, and has an empty batch.
    store.consumer("query", beats=True)
    assert len(seen(store, queue, ticket)) == 0
    assert store.admin.fsck().num_rows == 0


# --- firings whose end is not known ---------------------------------------------------------------


@pytest.fixture(params=["committed", "rolled back"])
def unsure(request, store, monkeypatch):
    """Fire, while the connection is lost within the commit."""
    write = store.catalog.write

    def cut(work, **how):
        lost = CatalogUnavailable("the connection is lost")
        lost.outcome_unknown = True

        def work_and_fail(connection):
            found = work(connection)
            if isinstance(found, Fired) and request.param == "rolled back":
                raise lost
            return found

        found = write(work_and_fail, **how)
        if isinstance(found, Fired):
            raise lost
        return found

    def fire(queue, count, consumer):
        with monkeypatch.context() as patched:
            patched.setattr(store.catalog, "write", cut)
            with pytest.raises(CatalogUnavailable):
                queue.fire(count, consumer=consumer)

    return fire


def test_what_a_firing_has_taken_whose_answer_was_lost_waits_again(store, query, unsure):
    """Its consumer lives, so that no sweep would take it."""
    queue = make_filled(store, 4)

    unsure(queue, 3, query)

    assert numbers_of(queue.fire(9, consumer=query).messages) == [0, 1, 2, 3]
    assert set(store.view("slices").column("deliveries").to_pylist()) == {1}


def test_a_later_firing_may_have_the_same_ticket(store, query, unsure):
    queue = make_filled(store, 4)

    unsure(queue, 1, query)
    time.sleep(0.01)
    held = planned(store, queue, query, 1)

    assert len(seen(store, queue, held)) == 1
    assert len(queue.fire(9, consumer=query)) == 3
    assert len(seen(store, queue, held)) == 1


@pytest.mark.parametrize("error", [KeyboardInterrupt, TimeoutError])
def test_what_a_firing_has_taken_that_a_signal_interrupts_waits_again(
    store, query, error, monkeypatch
):
    """As of a target in the main thread, which lives on."""
    queue = make_filled(store, 4)
    write = store.catalog.write

    def interrupted(work, **how):
        found = write(work, **how)
        if isinstance(found, Fired):
            raise error
        return found

    with monkeypatch.context() as patched:
        patched.setattr(store.catalog, "write", interrupted)
        with pytest.raises(error):
            queue.fire(3, consumer=query)

    assert numbers_of(queue.fire(9, consumer=query).messages) == [0, 1, 2, 3]
    assert set(store.view("slices").column("deliveries").to_pylist()) == {1}


# --- held -----------------------------------------------------------------------------------------


def test_a_ticket_gives_the_same_messages_as_often_as_it_is_asked(store, query):
    """A new life of the query reads them too."""
    queue = make_filled(store, 60, shards=3, key="customer")
    ticket = planned(store, queue, query, 40)
    reading = seen(store, queue, ticket)
    assert len(reading) == 40
    assert seen(store, queue, ticket) == reading

    reborn = store.consumer("query", beats=True)

    assert seen(store, queue, ticket) == reading
    pending = store.catalog.write(lambda c: ticket_behind(c, reborn, 0))
    assert pending == ticket.number


# --- acknowledge ----------------------------------------------------------------------------------


def test_acknowledging_deletes_what_the_tickets_hold(store, query):
    queue = make_filled(store, 10)
    first, second, third = (planned(store, queue, query, 3) for _ in range(3))

    assert acknowledge(store.catalog, query, second.number, delete=True) == 6
    assert numbers_of(queue.browse()) == [6, 7, 8, 9]
    assert first.number < second.number < third.number
    assert store.view("consumers").column("acknowledged").to_pylist() == [second.number]


def test_acknowledging_twice_or_late_changes_nothing(store, query):
    queue = make_filled(store, 10)
    first, second = planned(store, queue, query, 3), planned(store, queue, query, 3)
    acknowledge(store.catalog, query, second.number, delete=True)
    before = dump(store)

    assert acknowledge(store.catalog, query, second.number, delete=True) == 0
    assert acknowledge(store.catalog, query, first.number, delete=True) == 0
    assert dump(store) == before


def test_without_deleting_what_is_not_settled_stays_in_flight(store, query):
    queue = make_filled(store, 4)
    ticket = planned(store, queue, query, 4)
    queue.delete(store.view("slices").num_rows and queue.browse().column("_message_id")[:1])

    assert acknowledge(store.catalog, query, ticket.number, delete=False) == 0
    assert numbers_of(queue.browse()) == [1, 2, 3]
    assert store.admin.recover(dead_after=0) == 0


def test_what_another_consumer_holds_is_not_touched(store, query):
    queue = make_filled(store, 6)
    ticket = planned(store, queue, query, 3)
    other = queue.fire("all", consumer=store.consumer("other"))

    acknowledge(store.catalog, query, ticket.number, delete=True)

    assert queue.delete(other) == 3


def test_an_older_life_cannot_acknowledge(store, query):
    """Its ticket, of the sideline here, is acknowledged by the new life."""
    queue = with_sidelined(store, 4)
    ticket = planned(store, queue, query, 3, magazine=Magazine.SIDELINE)
    reborn = store.consumer("query", beats=True)
    before = dump(store)

    with pytest.raises(ConsumerFenced, match="'query'"):
        acknowledge(store.catalog, query, ticket.number, delete=True)
    assert dump(store) == before
    assert acknowledge(store.catalog, reborn, ticket.number, delete=True) == 3
    assert numbers_of(queue.browse(magazine="sideline")) == [3]
