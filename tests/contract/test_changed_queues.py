"""A query whose list of queues changes while its last batch is not committed, or committed."""

import pytest
from sqlalchemy import select

from ignis_source.offset import Offset
from queue_core.catalog.holder_tables import tickets
from queue_core.catalog.tables import slices
from queue_core.errors import BadOption
from queue_core.segments.reader import read_table
from tests.books import audit
from tests.factories import aside, drop, make_queue, numbers_of, orders

START = Offset("reader", 0)


@pytest.fixture
def life(session):
    """One life of a streaming reader, as a process of its own."""
    return lambda queues, **options: session(queues=queues, **options)


@pytest.fixture
def filled(store):
    """Two queues: *red* holds the orders 0 to 2, *blue* 10 to 12."""
    for name, first in (("red", 0), ("blue", 10)):
        make_queue(store, name).load(orders(3, first))
    return store


def rows(query, start, end):
    return sorted(numbers_of(read_table(query.plan(start, end))))


def state(store):
    """The slices and tickets of the catalog."""
    with store.catalog.read() as connection:
        return [
            connection.execute(select(table).order_by(*table.primary_key)).all()
            for table in (slices, tickets)
        ]


@pytest.mark.parametrize("until", ["fired", "planned"])
@pytest.mark.parametrize(
    ("before", "after", "gone", "all_rows"),
    [("red,blue", "red", "'blue'", [0, 1, 2, 10, 11, 12]), ("blue", "red", "'blue'", [10, 11, 12])],
    ids=["one queue less", "another queue"],
)
def test_a_batch_with_messages_of_a_queue_that_is_no_longer_read_is_refused(
    filled, life, until, before, after, gone, all_rows
):
    first = life(before)
    end = first.next(START, None, None)
    if until == "planned":
        assert rows(first, START, end) == all_rows
    was = state(filled)

    changed = life(after)
    if until == "fired":
        assert changed.next(START, None, None) == end
    for _ in range(2):
        with pytest.raises(BadOption, match=f"consumer 'reader'.* queue {gone}.* former queues"):
            changed.plan(START, end)
    assert state(filled) == was

    again = life(before)
    assert rows(again, START, end) == all_rows
    again.acknowledge(end)
    assert filled.view("slices").num_rows == (1 if before == "blue" else 0)
    audit(filled)


def test_a_committed_batch_is_acknowledged_whatever_the_queues_are_now(filled, life):
    first = life("red,blue")
    end = first.next(START, None, None)
    assert len(rows(first, START, end)) == 6
    filled.queue("red").load(orders(2, 100))

    changed = life("red")
    changed.acknowledge(end)
    following = changed.next(end, None, None)

    assert rows(changed, end, following) == [100, 101]
    assert filled.queue("blue").metadata().column("deleted").to_pylist()[0] == 3
    audit(filled)


@pytest.mark.parametrize("ack", ["settle", "browse"])
def test_a_committed_batch_is_deleted_as_its_query_said_then(filled, life, ack):
    """Otherwise, a sweep would sideline its messages, and they would come again."""
    first = life("red")
    end = first.next(START, None, None)
    assert rows(first, START, end) == [0, 1, 2]
    filled.queue("red").load(orders(2, 100))

    changed = life("red", ack=ack)
    changed.acknowledge(end)
    following = changed.next(end, None, None)

    assert rows(changed, end, following) == [100, 101]
    assert filled.queue("red").metadata().column("deleted").to_pylist()[0] == 3
    audit(filled)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_what_a_sink_left_without_an_outcome_is_not_deleted_with_later_batches(
    filled, life, acknowledged
):
    """A sweep would have sidelined it."""
    first = life("red", ack="settle")
    end = first.next(START, None, None)
    assert rows(first, START, end) == [0, 1, 2]
    if acknowledged:
        first.acknowledge(end)
    red = filled.queue("red")
    red.load(orders(2, 100))

    changed = life("red")
    changed.acknowledge(end)
    following = changed.next(end, None, None)
    assert rows(changed, end, following) == [100, 101]
    changed.acknowledge(following)

    assert aside(red) == [0, 1, 2]
    assert red.metadata().column("deleted").to_pylist()[0] == 2
    audit(filled)


@pytest.mark.parametrize(
    ("name", "former", "now"),
    [
        ("keeper:line", "keep", "onCommit"),
        ("keeper:line", "keep", "settle"),
        ("reader", "onCommit", "keep"),
    ],
)
def test_a_query_neither_begins_nor_ends_to_keep_its_messages(filled, life, name, former, now):
    """By the name of its consumer, sweeps know whether it keeps them."""
    start = Offset(name, 0)
    first = life("red", ack=former)
    end = first.next(start, None, None)
    assert rows(first, start, end) == [0, 1, 2]
    was = state(filled)

    changed = life("red", ack=now)
    with pytest.raises(BadOption, match=f"ack={now}, but .* consumer {name!r}"):
        changed.acknowledge(end)

    assert state(filled) == was
    assert len(rows(life("red", ack=former), start, end)) == 3


def test_a_queue_that_is_read_for_the_first_time_changes_no_batch(filled, life):
    first = life("red")
    end = first.next(START, None, None)
    more = life("blue,red")
    assert rows(more, START, end) == [0, 1, 2]
    more.acknowledge(end)
    assert rows(more, end, more.next(end, None, None)) == [10, 11, 12]


def test_messages_that_a_sweep_has_released_do_not_hold_a_query_up(filled, life):
    """The way out if the queue cannot be read any more."""
    first = life("red,blue")
    end = first.next(START, None, None)
    rows(first, START, end)
    first.close()
    assert filled.queue("blue").sweep(consumer="reader", dead_after=0.0) == 3
    assert rows(life("red"), START, end) == [0, 1, 2]


@pytest.mark.parametrize(
    ("changed", "named"),
    [({"queues": "red"}, "queue 'blue'"), ({"magazine": "sideline"}, "queue 'blue', queue 'red'")],
    ids=["one queue less", "another magazine"],
)
def test_a_browser_shows_the_whole_batch_too(filled, life, changed, named):
    given = {"queues": "red,blue", "ack": "browse"}
    end = life(**given).next(START, None, None)
    with pytest.raises(BadOption, match=f"consumer 'reader'.* {named}.* former"):
        life(**given | changed).plan(START, end)
    assert len(rows(life(**given), START, end)) == 6


def test_a_browser_goes_on_where_it_was_in_a_queue_that_it_did_not_read_meanwhile(filled, life):
    at = START
    for reads, shown in [
        ("red,blue", [0, 1, 2, 10, 11, 12]),
        ("red", [20]),
        ("red,blue", [21, 30, 31]),
        ("blue", [32]),
    ]:
        query = life(reads, ack="browse")
        query.acknowledge(at)
        end = query.next(at, None, None)
        assert rows(query, at, end) == shown
        red, blue = (filled.queue(name) for name in ("red", "blue"))
        red.load(orders(1, 20 + end.ticket - 1))
        blue.load(orders(1, 30 + end.ticket - 1))
        at = end


def test_a_browser_does_not_ask_for_a_queue_that_was_empty_or_is_gone(filled, life):
    make_queue(filled, "green")
    end = life("red,blue,green", ack="browse").next(START, None, None)
    blue = filled.queue("blue")
    drop(blue)
    assert rows(life("red", ack="browse"), START, end) == [0, 1, 2]


def test_a_browser_does_not_pass_over_messages_that_its_query_has_taken(filled, life):
    """They would not be in the batch, and be deleted if the query takes messages again."""
    first = life("red,blue")
    end = first.next(START, None, None)
    rows(first, START, end)
    with pytest.raises(BadOption, match=r"consumer 'reader'.*ack=browse"):
        life("red,blue", ack="browse").plan(START, end)
    assert len(rows(life("red,blue"), START, end)) == 6
