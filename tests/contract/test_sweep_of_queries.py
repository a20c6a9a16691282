"""Messages of dead queries: those that their checkpoint asks for again wait for the restart."""

import json

import pytest

from queue_core import Settlement
from queue_core.catalog.holders import consumers
from queue_core.catalog.records.publications import is_new_batch
from queue_core.errors import BadOption, StaleCheckpoint
from queue_core.values.ids import IdSet
from queue_core.values.model import Batch
from queue_core.values.names import of_query
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.settle import settle
from tests.books import audit
from tests.clocks import jump
from tests.dump import backdate, dump
from tests.factories import make_filled, make_queue, numbers_of, orders, planned, seen

HOURS = 7200.0


def query(store, name="copier", ack="onCommit", *, sweepable=False):
    """A life of a streaming query, as its source begins it."""
    return store.catalog.write(
        lambda c: consumers.enlist(c, name, beats=True, ack=ack, sweepable=sweepable)
    )


@pytest.fixture
def queue(store):
    return make_filled(store, 6)


def hold(store, queue, consumer, count=3):
    """Fire and plan *count* messages, long ago."""
    ticket = planned(store, queue, consumer, count)
    seen(store, queue, ticket)
    backdate(store, HOURS)
    return ticket


def shown(store, name="copier"):
    rows = store.view("consumers").to_pylist()
    return next(
        (row["ack"], row["in_flight"], row["for_restart"])
        for row in rows
        if row["consumer"] == name
    )


def test_no_sweep_takes_what_a_checkpoint_asks_for_again_and_its_restart_finishes_it(store, queue):
    ticket = hold(store, queue, query(store))
    before = dump(store)
    assert queue.sweep(dead_after=0.0) == queue.sweep(0.0, dead_after=0.0) == 0
    assert dump(store) == before
    assert shown(store) == ("onCommit", 3, 3)
    assert acknowledge(store.catalog, query(store), ticket.number, delete=True) == 3
    assert numbers_of(queue.browse()) == [3, 4, 5]


@pytest.mark.parametrize("whose", [{"ack": "settle", "sweepable": True}, {"sweepable": True}])
@pytest.mark.parametrize("was", [None, {}])
def test_what_a_query_leaves_to_sweeps_is_swept(store, queue, whose, was):
    """Even if only its present life does so."""
    hold(store, queue, query(store, **(whose if was is None else was)))
    query(store, **whose)
    assert queue.sweep(dead_after=0.0) == 3
    assert shown(store) == (whose.get("ack", "onCommit"), 0, 0)


def test_what_nobody_has_seen_is_recovered_all_the_same(store, queue):
    planned(store, queue, query(store), 3)
    assert queue.sweep(0.0, dead_after=0.0) == 0
    assert store.admin.recover(dead_after=0.0) == 3


def test_what_it_has_acknowledged_and_left_is_swept(store, queue):
    consumer = query(store)
    ticket = hold(store, queue, consumer)
    acknowledge(store.catalog, consumer, ticket.number, delete=False)
    assert queue.sweep(dead_after=0.0) == 3


@pytest.mark.parametrize("is_alive", [True, False])
def test_what_a_keeper_has_acknowledged_and_keeps_is_swept_by_its_name_alone(
    store, queue, is_alive
):
    keeper = query(store, "keeper:line", "keep")
    ticket = hold(store, queue, keeper)
    acknowledge(store.catalog, keeper, ticket.number, delete=False)
    dead_after = 0.0
    if is_alive:
        store.catalog.write(lambda c: consumers.heartbeat(c, keeper))
        dead_after = HOURS

    assert queue.sweep(dead_after=dead_after) == queue.sweep(0.0, dead_after=dead_after) == 0
    if not is_alive:
        assert shown(store, keeper.name) == ("keep", 3, 3)
        assert queue.sweep(dead_after=0.0, consumer=keeper.name) == 3


def test_a_person_who_names_it_releases_what_it_holds_of_an_age(store, queue):
    hold(store, queue, query(store))
    hold(store, queue, query(store, "other"), 2)

    assert queue.sweep(4 * HOURS, dead_after=0.0, consumer="copier") == 0
    assert queue.sweep(dead_after=0.0, consumer="copier") == 3
    assert numbers_of(queue.browse(magazine="sideline")) == [0, 1, 2]
    assert shown(store, "other") == ("onCommit", 2, 2)
    assert queue.sweep(dead_after=0.0, consumer="copier") == 0
    assert queue.sweep(HOURS / 2, dead_after=0.0, consumer="other") == 2


@pytest.mark.parametrize(
    ("name", "said"), [("copier", "'copier' is alive: stop its query"), ("copy", "mean 'copier'")]
)
def test_only_a_dead_consumer_of_the_store_can_be_named(store, queue, name, said):
    hold(store, queue, query(store))
    before = dump(store)
    with pytest.raises(BadOption, match=said):
        queue.sweep(consumer=name)
    assert dump(store) == before


@pytest.mark.parametrize("ack", ["onCommit", "settle"])
def test_a_settle_sink_under_a_source_that_deletes_on_commit_is_refused(store, queue, ack):
    ticket = hold(store, queue, query(store, ack=ack))
    ids = IdSet.of(queue.browse().column("_message_id").slice(0, ticket.messages))
    batch = Batch("query-1", 0, len(ids))
    before = dump(store)
    work = lambda: settle(store.catalog, [queue.info], Settlement(deleted=ids), batch=batch)  # noqa: E731

    if ack == "settle":
        assert work() == 3
        return
    with pytest.raises(BadOption, match=r"'copier', whose source has ack=onCommit.*ack=settle"):
        work()
    assert dump(store) == before


def test_a_settle_sink_does_not_mind_what_other_queries_hold_of_the_same_segment(store, queue):
    hold(store, queue, query(store, "other"))
    hold(store, queue, query(store, ack="settle", sweepable=True))
    ids = IdSet.of(queue.browse().column("_message_id").slice(3))
    settlement = Settlement(deleted=ids)
    assert settle(store.catalog, [queue.info], settlement, batch=Batch("query-1", 0, 3)) == 3


def publish(store, name, upto):
    """Record a batch with the tickets of a consumer, as a sink of the same store does."""
    target = store.queue("orders")
    tickets = json.dumps({"consumer": name, "ticket": upto})
    batch = Batch("query", upto - 1, 3, tickets=tickets, digest=upto, entry=str(upto))
    store.catalog.write(lambda c: is_new_batch(c, target.info, batch))
    return batch


@pytest.mark.parametrize("ack", ["onCommit", "settle"])
def test_a_sweep_by_name_finishes_what_the_query_has_published(store, queue, ack):
    """Only a query that deletes a whole batch is done with it once it is published."""
    name = of_query()
    consumer = query(store, name, ack)
    for _ in range(2):
        hold(store, queue, consumer, 2)
    publish(store, name, 1)

    assert queue.sweep(dead_after=0.0, consumer=name) == 4

    queue.shovel()
    left = [4, 5, 2, 3] if ack == "onCommit" else [4, 5, 0, 1, 2, 3]
    assert numbers_of(queue.browse()) == left
    audit(store)


def test_the_command_says_that_it_deletes_what_the_query_has_published(store, queue, ignis):
    name = of_query()
    hold(store, queue, query(store, name), 2)
    publish(store, name, 1)
    jump(store, 61 / (24 * 3600))
    store.admin.accept_clock()

    done = ignis("sweep", "orders", "--consumer", name)

    deleted = "or deleted if the query had published them"
    assert done.stdout == f"2 stuck messages of orders sidelined, {deleted}\n"
    assert numbers_of(queue.browse()) == [2, 3, 4, 5]
    assert queue.browse(magazine="sideline").num_rows == 0


def test_a_refused_batch_names_all_consumers_of_its_query_and_their_queues(store, queue):
    """A checkpoint without entries begins as another consumer; the first one holds messages too."""
    first, second = of_query(), of_query()
    make_queue(store, "red").load(orders(4))
    for _ in range(2):
        hold(store, queue, query(store, first), 1)
    hold(store, store.queue("red"), query(store, second), 4)
    publish(store, first, 1)
    tickets = json.dumps({"consumer": second, "ticket": 1})

    batch = Batch("query", 0, 4, tickets=tickets, digest=9, entry="9")
    with pytest.raises(StaleCheckpoint) as refused:
        store.catalog.write(lambda c: is_new_batch(c, queue.info, batch))

    assert f"`ignis sweep orders --consumer {first}`" in str(refused.value)
    assert f"`ignis sweep red --consumer {second}`" in str(refused.value)
