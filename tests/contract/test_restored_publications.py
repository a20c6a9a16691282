"""A restore of a store that is source and target of a query: it has lost published messages."""

import json
import logging

import pytest
from sqlalchemy import delete, select, update

from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.session import Session
from queue_core import Store
from queue_core.catalog.holder_tables import consumers
from queue_core.catalog.identity.identity import Identity
from queue_core.catalog.record_tables import publications
from queue_core.catalog.records.publications import (
    forget_tickets,
    is_new_batch,
    newest_ticket,
)
from queue_core.catalog.tables import shard_locks, slices
from queue_core.errors import Conflict
from queue_core.segments.reader import read_table
from queue_core.values.model import Consumer, State
from queue_core.values.names import of_query
from tests.books import audit
from tests.clocks import jump
from tests.factories import make_batch, make_queue, make_staged, numbers_of, orders, publish_once
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import Caller

NAME = of_query()


def at(ticket, name=NAME):
    return Offset(name, ticket)


@pytest.fixture
def query(store):
    """A streaming reader of the queue ``a``, which holds six orders."""
    make_queue(store, "a").load(orders(6))
    make_queue(store, "b")
    session = session_of(store)
    yield session
    session.close()


def session_of(store):
    given = {"catalog": store.address.catalog, "storage": store.address.storage}
    given |= {"queue": "a", "tasks": "none", "idleWait": "0.05"}
    return Session(SourceOptions.of(given))


def read(query, start, name=NAME):
    """Run the source's part of a batch of two messages; return its orders."""
    query.acknowledge(at(start, name))
    end = query.next(at(start, name), 2, None)
    return numbers_of(read_table(query.plan(at(start, name), end)))


def publish(store, number, rows, name=NAME, ticket=None):
    """Publish a batch as the sink does that can read Spark's log."""
    queue = store.queue("b")
    staged = make_staged(queue, orders(len(rows), rows[0]))
    tickets = json.dumps(at(ticket or number + 1, name).to_json())
    batch = make_batch(staged, number, tickets=tickets, digest=number, entry=str(number))
    return publish_once(store.catalog, store.storage, queue.info, staged, batch)


def publication_lost(store, number):
    """Put the record of the target back to a batch, as a restore does."""
    content = json.dumps(
        {"rows": 2, "digest": "0", "entry": "0", "tickets": json.dumps(at(number + 1).to_json())}
    )
    put_back = update(publications).values(batch_id=number, content=content)
    store.catalog.write(lambda c: c.execute(put_back).close())


@pytest.fixture
def history(store, query):
    """Two batches that Spark has committed; the second is not acknowledged yet."""
    for number in range(2):
        assert publish(store, number, read(query, number))
    return query


def test_messages_whose_publication_was_lost_come_again(store, history, caplog):
    publication_lost(store, 0)

    with caplog.at_level(logging.WARNING):
        assert read(history, 2) == [2, 3]

    (line,) = [r.getMessage() for r in caplog.records if "restored" in r.message]
    assert "ticket 2" in line
    (report,) = store.view("reports").to_pylist()
    assert (report["task"], report["queue"], report["moved"]) == ("restore", "a", 2)
    assert publish(store, 2, [2, 3])
    assert read(history, 3) == [4, 5]
    audit(store)


def test_they_come_again_once_more_if_the_next_publication_is_lost_too(store, history):
    publication_lost(store, 0)
    assert read(history, 2) == [2, 3]

    # What was published since is lost by a restore to this moment; it ends with an adoption.
    Store(store.address, create=False, adopt=True).close()
    assert read(history, 3) == [2, 3]
    assert read(history, 4) == [4, 5]
    audit(store)


def test_they_come_again_after_a_second_restore_that_dies_at_its_end(
    store, history, tmp_path, monkeypatch
):
    publication_lost(store, 0)
    assert read(history, 2) == [2, 3]
    store.admin.backup(tmp_path / "backup")
    assert publish(store, 2, [2, 3])

    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    with monkeypatch.context() as patch:
        patch.setattr(Identity, "adopt", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            Store.restore(tmp_path / "backup", **where, over=True)

    again = session_of(store)
    assert read(again, 3) == [2, 3]
    again.close()


def test_the_tickets_of_another_source_of_the_batch_are_not_forgotten(store, history):
    other = of_query()
    both = "\n".join(json.dumps(at(2, name).to_json()) for name in (NAME, other))
    content = json.dumps({"rows": 2, "digest": "0", "entry": "0", "tickets": both})
    one, two = (Consumer(id=1, name=name, epoch=1) for name in (NAME, other))

    def forget(connection):
        connection.execute(update(publications).values(content=content)).close()
        forget_tickets(connection, one)
        return newest_ticket(connection, one.name), newest_ticket(connection, two.name)

    assert store.catalog.write(forget) == (None, 2)


@ONLY_POSTGRESQL  # SQLite lets one write at a time
def test_a_batch_that_is_published_while_tickets_are_forgotten_stays_the_recorded_one(
    store, history
):
    queue = store.queue("b")
    assert read(history, 2) == [4, 5]
    batch = make_batch(
        make_staged(queue, orders(2, 4)),
        2,
        tickets=json.dumps(at(3).to_json()),
        digest=2,
        entry="2",
    )
    consumer = Consumer(id=1, name=NAME, epoch=1)

    def publishes(connection):
        assert is_new_batch(connection, queue.info, batch)
        forgets = Caller(lambda: store.catalog.write(lambda c: forget_tickets(c, consumer)))
        forgets.join(0.5)
        return forgets

    store.catalog.write(publishes).done()

    assert not publish(store, 2, [4, 5])


def test_a_query_that_has_another_sink_now_gets_a_batch_twice_at_most(store, history, caplog):
    assert read(history, 2) == [4, 5]
    # The publication of the others is known.
    assert store.queue("a").metadata().column("deleted").to_pylist()[0] == 4
    assert read(history, 3) == [4, 5]
    assert "or the query has another sink now; their 2 messages come again" in caplog.text
    assert read(history, 4) == []
    assert store.queue("a").metadata().column("deleted").to_pylist()[0] == 6


@pytest.mark.parametrize("name", ["reader", of_query()], ids=["named", "unnamed"])
def test_the_records_of_other_queries_do_not_count(store, query, name):
    """A batch of another store may name a consumer that is also called reader."""
    publish(store, 0, [100], name="reader", ticket=1)
    for number in range(3):
        assert read(query, number, name) == [2 * number, 2 * number + 1]
    assert read(query, 3, name) == []


def test_a_batch_that_was_read_before_a_restore_is_refused(store, history):
    rows = read(history, 2)
    forgotten = update(consumers).where(consumers.c.name == NAME).values(last_ticket=2)
    store.catalog.write(lambda c: c.execute(forgotten).close())

    with pytest.raises(Conflict, match=r"queue 'b': batch 2 was read from ticket 3.*restored"):
        publish(store, 2, rows)

    assert numbers_of(store.queue("b").browse()) == [0, 1, 2, 3]


def test_a_batch_of_another_store_is_not_refused(store, history):
    forgotten = delete(consumers).where(consumers.c.name == NAME)
    store.catalog.write(lambda c: c.execute(forgotten).close())

    assert publish(store, 2, [4, 5])


@pytest.mark.parametrize("planned", [False, True])
def test_a_query_that_runs_on_acknowledges_again_before_it_goes_on(store, history, planned):
    """The restored catalog knows the ticket, but neither its publication nor its end."""
    history.acknowledge(at(2))
    store.queue("a").load(orders(2, 2))
    publication_lost(store, 0)
    mine = select(consumers.c.id).where(consumers.c.name == NAME).scalar_subquery()
    held = update(slices).where(slices.c.segment_id == 4)
    held = held.values(state=int(State.FIRED), consumer_id=mine, ticket=2, fired_at=0)
    counted = update(shard_locks).where(shard_locks.c.queue_id == 1, shard_locks.c.magazine == 0)
    counted = counted.values(fired=shard_locks.c.fired + 2)
    for statement in (held, counted, update(consumers).values(acknowledged=1)):
        store.catalog.write(lambda c, statement=statement: c.execute(statement).close())
    begin = 2
    if planned:
        # The batch is logged; after it Spark goes on behind the ticket.
        assert len(history.plan(at(2), at(3))) == 0
        begin = 3

    rows = []
    for number in range(begin, begin + 4):
        rows += read(history, number)

    assert sorted(rows) == [2, 3, 4, 5]


# What no record can show.


def adopt(store):
    """Take over the storage, as an operator does who has restored the catalog by other means."""
    Store(store.address, create=False, adopt=True).close()


def test_a_first_batch_that_a_restore_may_have_lost_comes_again(store, query, caplog):
    assert read(query, 0) == [0, 1]
    adopt(store)

    with caplog.at_level(logging.WARNING):
        assert read(query, 1) == [0, 1]
    assert "their 2 messages come again" in caplog.text
    assert publish(store, 1, [0, 1])
    assert read(query, 2) == [2, 3]
    again, unknown = store.view("reports").to_pylist()
    assert (again["task"], again["queue"], again["moved"]) == ("restore", "a", 2)
    # The record of batch 0 of the target is lost as well.
    assert (unknown["task"], unknown["queue"]) == ("restore", "b")
    audit(store)


def test_a_first_batch_comes_again_too_if_a_clock_that_was_ahead_has_fired_it(store, query):
    assert read(query, 0) == [0, 1]
    jump(store, -1)
    adopt(store)

    assert read(query, 1) == [0, 1]


def test_a_batch_of_a_named_consumer_that_a_restore_may_have_lost_comes_again(store, query):
    for number, rows in enumerate([[0, 1], [2, 3]]):
        assert read(query, number, "reader") == rows
        assert publish(store, number, rows, "reader")
    adopt(store)

    assert read(query, 2, "reader") == [2, 3]
    assert publish(store, 2, [2, 3], "reader")
    assert read(query, 3, "reader") == [4, 5]
    query.acknowledge(at(4, "reader"))
    assert store.view("queues", "a").column("waiting").to_pylist() == [0]
    audit(store)


def test_a_later_batch_of_a_query_that_writes_elsewhere_comes_once(store, query):
    read(query, 0)
    assert read(query, 1) == [2, 3]
    adopt(store)

    assert read(query, 2) == [4, 5]


def test_batches_that_an_adopted_catalog_does_not_know_are_reported(store, query, caplog):
    assert publish(store, 0, [0], "elsewhere")
    adopt(store)

    with caplog.at_level(logging.WARNING):
        assert publish(store, 5, [5], "elsewhere")
        assert publish(store, 6, [6], "elsewhere")
    assert caplog.text.count("does not know batches 1 to 4") == 1
