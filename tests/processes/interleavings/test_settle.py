"""Settlements beside sweeps and other settlements."""

from __future__ import annotations

import pytest
from sqlalchemy import select

from queue_core import Retry
from queue_core.catalog.tables import segments, slices
from queue_core.values.model import Magazine, State
from tests.books import audit, leftover_files
from tests.factories import make_filled, make_queue, orders
from tests.processes.interleavings.steps import (
    BOTH,
    MANY,
    fired_ids,
    on_sqlite,
    settles,
    sweeps,
    two_customers,
)
from tests.processes.interleavings.test_logs import drops, sets

# settle and sweep


@BOTH
def test_what_is_swept_is_not_settled_any_more(store, race, fails):
    """If the sweep fails, the settlement counts."""
    make_queue(store).load(orders(10))
    ids = fired_ids(store)

    results = race(sweeps, "sweep.before_commit", settles("delete", ids), fails=fails)
    assert results == ((None, 10) if fails else (10, 0))
    left = set() if fails else set(ids)
    assert audit(store).ids() == audit(store).ids(Magazine.SIDELINE, State.LOADED) == left


@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_a_sweep_never_takes_what_is_being_settled(store, race, outcome):
    make_queue(store).load(orders(10))
    ids = fired_ids(store)

    settling = settles(outcome, ids[2:5])
    settled, swept = race(settling, "settle.before_commit", sweeps, waits=on_sqlite(store))
    assert settled == 3
    # PostgreSQL passes over the slice; the next sweep finds it.
    assert swept + sweeps(store) == 7
    books = audit(store)
    assert books.deleted == (3 if outcome == "delete" else 0)
    assert len(books.ids(Magazine.SIDELINE)) == (10 if outcome == "sideline" else 7)
    assert len(books.ids(Magazine.MAIN, State.LOADED)) == (3 if outcome == "reload" else 0)


# settle and settle


@pytest.mark.parametrize("first", ["delete", "sideline", "reload"])
@pytest.mark.parametrize("second", ["delete", "sideline", "reload"])
def test_two_settle_parts_of_one_slice(store, race, first, second):
    make_queue(store).load(orders(10))
    ids = fired_ids(store)

    both = settles(first, ids[::2]), "settle.before_commit", settles(second, ids[1::2])
    assert race(*both) == (5, 5)
    books = audit(store)
    assert books.ids(state=State.FIRED) == set()
    places = {"delete": None, "sideline": Magazine.SIDELINE, "reload": Magazine.MAIN}
    for outcome, part in ((first, ids[::2]), (second, ids[1::2])):
        there = [books.messages.get(i, (None,))[0] for i in part]
        assert there == [places[outcome]] * 5


@pytest.mark.parametrize("first", ["delete", "sideline", "reload"])
@pytest.mark.parametrize("second", ["delete", "sideline", "reload"])
def test_the_first_of_two_settlements_of_the_same_messages_counts(store, race, first, second):
    make_queue(store).load(orders(10))
    ids = fired_ids(store)

    assert race(settles(first, ids[:6]), "settle.before_commit", settles(second, ids[4:])) == (6, 4)
    assert audit(store).ids(state=State.FIRED) == set()


def test_a_segment_of_which_two_delete_the_last_parts_is_let_go(store, one, two):
    """On PostgreSQL each sees the other's part and leaves the segment to it; then vacuum helps."""
    queue = make_filled(store, MANY)
    firings = [queue.fire(MANY // 2, consumer=store.consumer(name)) for name in ("one", "two")]

    one.start(lambda store: store.queue("orders").delete(firings[0]), "settle.before_commit")
    two.start(lambda store: store.queue("orders").delete(firings[1]))
    # Both count in the same shard.
    assert two.waits()

    assert (one.finish(), two.finish()) == (MANY // 2, MANY // 2)
    assert segments_of(store) == (0 if on_sqlite(store) else 1)
    assert len(store.admin.vacuum(grace=0)) == 1
    assert segments_of(store) == 0
    assert audit(store).ids() == set()
    assert leftover_files(store) == set()


def segments_of(store):
    with store.catalog.read() as connection:
        return len(connection.execute(segments.select()).all())


def test_neither_waits_to_sideline_into_different_shards(store, race):
    queue = make_queue(store, shards=2, key="customer")
    ids = []
    for name in two_customers(queue):
        queue.load([{"number": 1, "customer": name}])
        ids.append(fired_ids(store))

    first, second = (settles("sideline", each) for each in ids)
    assert race(first, "settle.before_commit", second, waits=on_sqlite(store)) == (1, 1)
    assert len(audit(store).ids(Magazine.SIDELINE)) == 2


# settle and drop


@BOTH
@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_a_drop_takes_what_a_settlement_has_just_moved(store, race, outcome, fails):
    """Of a slice of which a part moves, that part becomes a slice of its own."""
    make_queue(store).load(orders(MANY))
    ids = fired_ids(store, 10)

    settling = settles(outcome, ids[2:5])
    settled, _ = race(settling, "settle.before_commit", drops("orders"), fails=fails)
    assert settled == (None if fails else 3)
    assert store.admin.fsck().num_rows == segments_of(store) == 0
    store.admin.vacuum(grace=0)
    assert leftover_files(store) == audit(store).ids() == set()


# settle and a change of settings


@BOTH
def test_what_comes_back_while_a_queue_becomes_fair_has_a_rank(store, race, fails):
    """Without one, it would wait for as long as others come."""
    make_queue(store).load(orders(10))
    ids = fired_ids(store)

    race(settles("reload", ids[2:5]), "settle.before_commit", sets(fair_by="customer"), fails=fails)
    with store.catalog.read() as connection:
        ranks = connection.scalars(slices.select().with_only_columns(slices.c.rank)).all()
    assert len(ranks) == (1 if fails else 2)
    assert None not in ranks


@BOTH
def test_what_fails_while_a_queue_gets_its_first_policy_has_a_time(store, race, fails):
    """Without one, no task would bring it back any more."""
    make_queue(store, retry=None).load(orders(10))
    ids = fired_ids(store)

    failing = settles("sideline", ids[2:5])
    race(failing, "settle.before_commit", sets(retry=Retry(attempts=3)), fails=fails)
    with store.catalog.read() as connection:
        query = select(slices.c.due_at).where(slices.c.magazine == int(Magazine.SIDELINE))
        times = connection.scalars(query).all()
    assert len(times) == (0 if fails else 1)
    assert None not in times
