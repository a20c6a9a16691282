"""A catalog that is older than the checkpoint of a query: restored, failed over, or made again."""

import logging
from dataclasses import replace

import pytest
from sqlalchemy import update

from ignis_source.offset import Offset
from queue_core import Store
from queue_core.catalog.holder_tables import consumers as consumer_rows
from queue_core.catalog.holders import consumers
from queue_core.errors import ConsumerFenced
from queue_core.segments.reader import read_table
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.waiting import look_at_once


def at(ticket):
    return Offset("reader", ticket)


@pytest.fixture
def history(store, session):
    """A queue that a query has read up to a ticket; the last one is not acknowledged."""

    def make(tickets, **options):
        queue = make_filled(store, tickets)
        query = session(**options)
        for ticket in range(tickets):
            read(query, ticket, limit=1)
        query.close()
        return queue

    return make


def read(query, start, limit=None):
    """Run a batch as Spark does; return its orders, and where it ends."""
    query.acknowledge(at(start))
    end = query.next(at(start), limit, None)
    return numbers_of(read_table(query.plan(at(start), end))), end.ticket


def set_back(store, tickets):
    """Let the catalog forget the newest tickets of the consumer, as an older standby has."""
    row = update(consumer_rows).where(consumer_rows.c.name == "reader")
    store.catalog.write(lambda c: c.execute(row.values(last_ticket=tickets, acknowledged=tickets)))


@pytest.mark.parametrize("known", [0, 3], ids="{} tickets known".format)
@pytest.mark.parametrize("distance", [1, 2, 50], ids="{} forgotten".format)
@pytest.mark.parametrize("ack", ["onCommit", "settle"])
def test_a_new_ticket_is_never_one_that_spark_has_committed(history, session, known, distance, ack):
    queue = history(known, ack=ack)
    queue.load(orders(10, 100))
    query = session(ack=ack)
    committed = known + distance

    seen, end = [], committed
    for _ in range(5):
        numbers, end = read(query, end, limit=2)
        seen += numbers

    assert seen == list(range(100, 110))
    assert end == committed + 5
    query.acknowledge(at(end))
    held = 0 if ack == "onCommit" else 10 + known
    assert queue.metadata().column("in_flight").to_pylist()[0] == held


def test_a_query_that_is_idle_while_the_catalog_goes_back_loses_nothing(store, history, session):
    queue = history(2)
    query = session()
    assert read(query, 2) == ([], 2)
    set_back(store, 1)
    queue.load(orders(10, 100))

    look_at_once(query)
    assert read(query, 2) == (list(range(100, 110)), 3)


def test_a_batch_whose_ticket_is_unknown_is_empty_and_its_messages_come_in_the_next(
    history, session
):
    """Spark has logged the batch and not committed it, so it plans it before all else."""
    queue = history(2)
    queue.load(orders(10, 100))
    query = session()

    assert len(query.plan(at(2), at(4))) == 0
    assert read(query, 4) == (list(range(100, 110)), 5)


def test_a_browser_goes_on_where_the_catalog_last_saw_it(history, session):
    queue = history(3, ack="browse")
    queue.load(orders(4, 100))
    query = session(ack="browse")

    assert read(query, 7, limit=2) == ([100, 101], 8)
    assert read(query, 8) == ([102, 103], 9)
    assert read(query, 9) == ([], 9)


def test_a_browser_begins_again_in_a_store_that_is_new(history, session):
    history(0).load(orders(4))
    query = session(ack="browse")

    assert read(query, 7) == ([0, 1, 2, 3], 8)


def test_what_a_restore_left_in_flight_is_settled_again(store, session, caplog):
    """Spark has committed batches that were settled after the backup."""
    queue = make_filled(store, 6)
    query = session(ack="settle")
    # A filter has left a message of the first batch without outcome, before the backup.
    assert read(query, 0, limit=2) == ([0, 1], 1)
    queue.delete(queue.browse().column("_message_id").slice(0, 1))
    assert read(query, 1, limit=2) == ([2, 3], 2)
    Store(store.address, create=False, adopt=True).close()

    query = session(ack="settle")
    with caplog.at_level(logging.WARNING):
        assert read(query, 5, limit=4) == ([2, 3, 4, 5], 6)
        queue.delete(queue.browse().column("_message_id").slice(1))
        query.acknowledge(at(6))

    assert "their 2 messages come again" in caplog.text
    assert "none of the" not in caplog.text
    again, unknown = store.view("reports").to_pylist()
    assert (again["task"], again["moved"], again["to"]) == ("restore", 2, "main")
    assert unknown["from"] == "tickets 3 to 5 of consumer 'reader'"
    # It was without outcome at the backup too, and is not for a sink to settle.
    assert store.view("queues").column("in_flight").to_pylist() == [1]


def test_what_is_fired_after_a_restore_and_left_stays_in_flight(store, session):
    Store(store.address, create=False, adopt=True).close()
    make_queue(store).load(orders(2))
    query = session(ack="settle")

    assert read(query, 0, limit=1) == ([0], 1)
    assert read(query, 1) == ([1], 2)
    assert read(query, 2) == ([], 2)


def test_it_is_said_once_in_the_log_and_in_a_view(store, history, session, caplog):
    queue = history(3)
    queue.load(orders(4, 100))
    query = session()

    with caplog.at_level(logging.WARNING):
        _, end = read(query, 8)
        read(query, end)

    (line,) = [record.getMessage() for record in caplog.records if "restored" in record.message]
    assert "queue 'orders'" in line
    assert "consumer 'reader'" in line
    assert "tickets 4 to 8" in line
    (report,) = store.view("reports").to_pylist()
    assert report.pop("when") is not None
    assert report == {
        "task": "restore",
        "queue": "orders",
        "shard": None,
        "moved": 5,
        "from": "tickets 4 to 8 of consumer 'reader'",
        "to": None,
    }


def test_a_batch_that_is_planned_again_says_it_too(history, session, caplog):
    history(0)

    session().plan(at(2), at(3))

    assert "tickets 1 to 3" in caplog.text


def test_nothing_is_said_where_nothing_is_forgotten(store, history, session, caplog):
    history(3).load(orders(4))
    query = session()
    read(query, 3)

    assert "restored" not in caplog.text
    assert store.view("reports").num_rows == 0


def test_a_consumer_whose_number_another_one_has_got_is_ended(store):
    """The restored catalog had not yet seen it, and gave its number to the next that came."""
    other = store.consumer("other")
    gone = replace(other, name="reader")

    for act in (consumers.check, consumers.heartbeat):
        with pytest.raises(ConsumerFenced, match="'reader'"):
            store.catalog.write(lambda connection, act=act: act(connection, gone))
