"""A checkpoint that has lost its newest notes asks for batches again that are done with."""

import pytest

from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.session import Session
from tests.factories import make_queue, orders

pytestmark = pytest.mark.crash


@pytest.fixture
def begin(store):
    """Begins a life of the source."""
    make_queue(store, "in").load(orders(10))
    given = {"catalog": store.address.catalog, "storage": store.address.storage}
    given |= {"queue": "in", "tasks": "none"}
    begun = []

    def life():
        begun.append(Session(SourceOptions.of(given)))
        return begun[-1]

    yield life
    for session in begun:
        session.close()


def fire(session, *tickets):
    """Fire tickets of one message each; all but the last one are then finished."""
    for ticket in tickets:
        start = Offset("copier", ticket - 1)
        session.acknowledge(start)
        assert session.next(start, 1, None) == Offset("copier", ticket)


def follow(session, *starts):
    """Which tickets come after these, and how many messages each batch has: Spark plans each."""
    tickets = []
    for start in starts:
        ticket = session.next(Offset("copier", start), 1, None).ticket
        tickets.append((ticket, messages(session, start, ticket)))
    return tickets


def messages(session, after, upto):
    return len(session.plan(Offset("copier", after), Offset("copier", upto)))


def test_a_batch_that_is_done_with_keeps_its_number_and_is_empty(begin):
    """Its number is published, so a sink would drop rows with this number."""
    fire(begin(), 1, 2, 3, 4)
    session = begin()

    assert follow(session, 1, 2, 3, 4) == [(2, 0), (3, 0), (4, 1), (5, 1)]


def test_a_new_checkpoint_is_led_past_all_that_is_done_with_at_once(begin):
    fire(begin(), 1, 2, 3, 4)
    session = begin()

    assert follow(session, 0, 3, 4) == [(3, 0), (4, 1), (5, 1)]


def test_a_batch_that_runs_again_leaves_the_ticket_behind_it_a_batch_of_its_own(begin):
    """Fired and never noted, it would otherwise share a batch with the next: twice the limit."""
    fire(begin(), 1, 2)
    session = begin()

    assert messages(session, 0, 1) == 0
    session.acknowledge(Offset("copier", 1))
    assert follow(session, 1) == [(2, 1)]
