"""A segment seems to be damaged while messages of it are in flight, and is whole again later."""

import json
from pathlib import Path

import pytest

from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.session import Session
from queue_core.segments.reader import read_table
from queue_core.values.model import INLINE
from queue_core.values.names import of_query
from queue_core.verbs.quarantine import quarantine
from tests.books import audit
from tests.factories import (
    make_batch,
    make_filled,
    make_queue,
    make_staged,
    numbers_of,
    orders,
    planned,
    publish_once,
)


def set_apart(store, name="orders"):
    """Let a reader report all segments of a queue as missing, and quarantine them."""
    for row in store.view("slices", name).to_pylist():
        location = row["location"] or f"{INLINE}{row['segment_id']}"
        store.storage.report_damage(location, "an untrue 404")
    moved = quarantine(store.catalog, store.storage)
    assert moved
    audit(store)
    return moved


def counts(queue, magazine="main"):
    (row,) = (r for r in queue.metadata().to_pylist() if r["magazine"] == magazine)
    return {name: row[name] for name in ("waiting", "in_flight", "damaged")}


@pytest.fixture
def queue(store):
    return make_filled(store, 6)


@pytest.mark.parametrize("repaired", [False, True], ids=["before the repair", "after it"])
@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_the_consumer_settles_what_it_had_read(store, queue, outcome, repaired):
    held = queue.fire(4, consumer=store.consumer("other"))
    set_apart(store)
    if repaired:
        assert queue.admin.repair().messages == 6

    assert getattr(queue, outcome)(held) == 4

    audit(store)
    assert {*store.admin.fsck()["invariant"].to_pylist()} == (set() if repaired else {"I31"})
    queue.admin.repair()
    again = numbers_of(queue.fire("all").messages)
    assert again == ([0, 1, 2, 3, 4, 5] if outcome == "reload" else [4, 5])
    assert len(queue.fire("all", magazine="sideline")) == (4 if outcome == "sideline" else 0)
    audit(store)


@pytest.mark.each_catalog
def test_a_repair_by_fsck_takes_no_message_from_its_consumer_either(store, in_files):
    queue = make_filled(store, 6)
    held = queue.fire(4, consumer=store.consumer("other"))
    file = Path(store.storage.uri) / min(store.storage.list())
    aside = file.rename(file.with_suffix(".aside"))

    (lost, _) = store.admin.fsck(repair=True).to_pylist()
    assert (lost["invariant"], lost["repaired"]) == ("I14", True)
    assert counts(queue) == {"waiting": 0, "in_flight": 0, "damaged": 6}
    assert queue.delete(held) == 4

    aside.rename(file)
    assert queue.admin.repair().messages == 2
    assert numbers_of(queue.fire("all").messages) == [4, 5]
    audit(store)


def test_some_of_a_slice_are_settled_and_the_rest_stays_damaged(store, queue):
    held = queue.fire(4)
    set_apart(store)

    assert queue.delete(held.ids.take([1, 3])) == 2

    assert counts(queue) == {"waiting": 0, "in_flight": 0, "damaged": 4}
    assert queue.admin.repair().messages == 4
    assert counts(queue) == {"waiting": 2, "in_flight": 2, "damaged": 0}
    assert queue.delete(held) == 2
    audit(store)


def test_after_a_repair_the_messages_are_in_flight_again_and_can_be_swept(store, queue):
    queue.fire(4)
    set_apart(store)
    assert queue.sweep(0) == 0

    queue.admin.repair()

    assert counts(queue) == {"waiting": 2, "in_flight": 4, "damaged": 0}
    assert queue.sweep(0) == 4
    audit(store)


def test_a_dead_querys_unseen_messages_leave_its_ticket(store, queue):
    planned(store, queue, store.consumer("query", beats=True), 4)
    set_apart(store)

    assert store.admin.recover(dead_after=0) == 0
    queue.admin.repair()

    assert numbers_of(queue.fire("all").messages) == [0, 1, 2, 3, 4, 5]
    audit(store)


NAME = of_query()


@pytest.fixture
def query(store, queue):
    """A process of a streaming query; the earlier one ends."""
    made = []

    def start():
        given = {"catalog": store.address.catalog, "storage": store.address.storage}
        given |= {"queue": "orders", "tasks": "none", "idleWait": "0.05"}
        for session in made:
            session.close()
        made.append(Session(SourceOptions.of(given)))
        return made[-1]

    make_queue(store, "copies")
    yield start
    for session in made:
        session.close()


def at(ticket):
    return Offset(NAME, ticket)


def plan(session, start, limit=4):
    """Run the source's part of a batch; return its orders."""
    session.acknowledge(at(start))
    end = session.next(at(start), limit, None)
    return numbers_of(read_table(session.plan(at(start), end)))


def publish(store, number, rows):
    """Publish a batch as the sink does; return whether it was new."""
    queue = store.queue("copies")
    staged = make_staged(queue, orders(len(rows), rows[0]))
    tickets = json.dumps(at(number + 1).to_json())
    batch = make_batch(staged, number, tickets=tickets, digest=number, entry=str(number))
    return publish_once(store.catalog, store.storage, queue.info, staged, batch)


def copies(store):
    return numbers_of(store.queue("copies").browse())


def test_a_batch_that_was_read_is_published_once(store, queue, query):
    """The quarantine comes between the reading and the commit of the batch."""
    session = query()
    rows = plan(session, 0)
    set_apart(store)
    assert publish(store, 0, rows)
    session.acknowledge(at(1))

    queue.admin.repair()

    assert plan(session, 1) == [4, 5]
    assert publish(store, 1, [4, 5])
    session.acknowledge(at(2))
    assert copies(store) == [0, 1, 2, 3, 4, 5]
    assert counts(queue) == {"waiting": 0, "in_flight": 0, "damaged": 0}
    audit(store)


def test_a_restarted_query_plans_without_them_and_gets_them_after_the_repair(store, queue, query):
    plan(query(), 0)
    set_apart(store)
    session = query()

    assert plan(session, 0) == []
    session.acknowledge(at(1))
    queue.admin.repair()

    assert plan(session, 1, limit=9) == [0, 1, 2, 3, 4, 5]
    audit(store)


def test_a_published_batch_that_is_planned_again_is_not_published_twice(store, queue, query):
    """Spark plans the last batch again, since it was published and not committed."""
    rows = plan(query(), 0)
    assert publish(store, 0, rows)
    set_apart(store)
    session = query()

    assert plan(session, 0) == []
    session.acknowledge(at(1))
    queue.admin.repair()

    assert plan(session, 1, limit=9) == [4, 5]
    assert copies(store) == [0, 1, 2, 3]
    audit(store)
