"""Races of two, each written as a permutation of steps, on each catalog.

The first one stands before its commit, holding what it holds; then the second one comes. On SQLite
it waits for the whole database, on PostgreSQL only for what it needs. What comes of both must be
right whether the first one commits or rolls back.
"""

from __future__ import annotations

import pyarrow as pa
import pytest

from queue_core import faults
from queue_core.catalog import dialect
from queue_core.catalog.tables import segments
from queue_core.errors import ConsumerFenced, PublicationRefused
from queue_core.model import Magazine, State
from queue_core.outcomes import Settlement
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.choose import Wanted
from queue_core.verbs.fire import fire
from queue_core.verbs.held import held
from queue_core.verbs.load import publish, publish_once
from queue_core.verbs.quarantine import quarantine
from tests.books import audit, leftover_files
from tests.factories import make_queue, make_stager, numbers_of, orders
from tests.processes import actors
from tests.processes.actors import Actor

#: Messages that become a file.
MANY = 4_000


@pytest.fixture(autouse=True)
def _steps(monkeypatch):
    """Actors stop at fault points; none of them is ever told to try again, as by a deadlock."""
    refused = []
    can_retry = dialect.can_retry
    monkeypatch.setattr(faults, "point", actors.point)
    monkeypatch.setattr(dialect, "can_retry", lambda e: refused.append(e) or can_retry(e))
    yield
    assert refused == []


@pytest.fixture
def one(address, store):
    actor = Actor("one", address)
    yield actor
    actor.close()


@pytest.fixture
def two(address, store):
    actor = Actor("two", address)
    yield actor
    actor.close()


def on_sqlite(store):
    return store.catalog.file is not None


def fires(count=None, name=None):
    """A firing of *count*; returns the numbers of its orders."""

    def verb(store):
        consumer = store.consumer(name or f"reader-{id(store)}")
        return numbers_of(store.queue("orders").fire(count, consumer=consumer).messages)

    return verb


def settles(outcome, ids):
    def verb(store):
        rows = pa.table({"_message_id": ids, "outcome": [outcome] * len(ids)})
        return store.queue("orders").settle(Settlement.of(rows))

    return verb


def fired_ids(store, count=None):
    return store.queue("orders").fire(count).ids.to_pylist()


def loads(count, first=0):
    return lambda store: len(store.queue("orders").load(orders(count, first)))


# fire and fire


@pytest.mark.parametrize("pieces", [1, 10], ids=["one slice", "many slices"])
def test_the_second_firing_of_a_shard_goes_on_behind_the_first(store, one, two, pieces):
    queue = make_queue(store)
    for part in range(pieces):
        queue.load(orders(20 // pieces, part * 20 // pieces))

    one.start(fires(5), stop_at="fire.before_commit")
    two.start(fires(5))
    assert two.waits()

    assert one.finish() == [0, 1, 2, 3, 4]
    assert two.finish() == [5, 6, 7, 8, 9]
    audit(store)


@pytest.mark.parametrize("pieces", [1, 10], ids=["one slice", "many slices"])
def test_a_firing_that_fails_leaves_its_place_to_the_second(store, one, two, pieces):
    queue = make_queue(store)
    for part in range(pieces):
        queue.load(orders(20 // pieces, part * 20 // pieces))

    one.start(fires(5), stop_at="fire.before_commit")
    two.start(fires(5))
    assert two.waits()
    one.roll_back()

    assert two.finish() == [0, 1, 2, 3, 4]
    audit(store)


def test_firings_from_different_shards_do_not_wait_for_each_other(store, one, two):
    queue = make_queue(store, shards=2, key="customer")
    first, second = (
        [{"number": n, "customer": name} for n in range(3)] for name in two_customers(queue)
    )
    queue.load(first)
    one.start(fires(), stop_at="fire.before_commit")
    two.start(lambda store: store.queue("orders").load(second).to_pylist())
    if on_sqlite(store):
        assert two.waits()
    else:
        two.finish()
        two.start(fires())
        assert two.passes()
        assert two.finish() == [0, 1, 2]
    assert one.finish() == [0, 1, 2]


def two_customers(queue):
    """Two customers whose messages go to different shards."""
    from queue_core.keys import shards_of

    names = [f"customer-{number}" for number in range(20)]
    shards = shards_of(pa.array(names), queue.info.shards).tolist()
    return names[shards.index(0)], names[shards.index(1)]


def test_a_firing_sees_nothing_only_when_nothing_is_left(store, one, two):
    """Else a query that ends when there is nothing would end too early."""
    make_queue(store).load(orders(10))

    one.start(fires(9), stop_at="fire.before_commit")
    two.start(fires())
    assert two.waits()

    assert one.finish() == list(range(9))
    assert two.finish() == [9]


def test_one_consumer_fires_one_ticket_after_the_other(store, one, two):
    make_queue(store).load(orders(10))
    reader = store.consumer("reader")

    def verb(store):
        return store.queue("orders").fire(5, consumer=reader).ticket.number

    one.start(verb, stop_at="fire.before_commit")
    two.start(verb)
    assert two.waits()

    assert (one.finish(), two.finish()) == (1, 2)


def test_a_consumer_that_is_started_again_fences_the_first_one_off(store, one, two):
    make_queue(store).load(orders(10))
    reader = store.consumer("reader")

    def verb(store):
        return len(store.queue("orders").fire(2, consumer=reader))

    one.start(verb, stop_at="fire.before_commit")
    two.start(lambda store: store.consumer("reader").epoch)
    assert two.waits()

    assert one.finish() == 2
    assert two.finish() == 2
    one.start(verb)
    with pytest.raises(ConsumerFenced, match="reader"):
        one.finish()
    assert len(audit(store).ids(state=State.FIRED)) == 2


# fire and shovel, in the sideline


def test_a_shovel_takes_turns_with_a_firing_of_the_sideline(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    queue.sideline(queue.fire(), reason="not today")

    def fires_sidelined(store):
        return numbers_of(store.queue("orders").fire(5, magazine="sideline").messages)

    one.start(fires_sidelined, stop_at="fire.before_commit")
    two.start(lambda store: store.queue("orders").shovel())
    assert two.waits()

    assert one.finish() == [0, 1, 2, 3, 4]
    assert two.finish() == 5
    assert numbers_of(queue.fire().messages) == [5, 6, 7, 8, 9]
    audit(store)


# settle and sweep


def test_what_is_swept_is_not_settled_any_more(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = fired_ids(store)

    one.start(lambda store: store.queue("orders").sweep(0, dead_after=0), "sweep.before_commit")
    two.start(settles("delete", ids))
    assert two.waits()

    assert one.finish() == 10
    assert two.finish() == 0
    assert audit(store).ids() == audit(store).ids(Magazine.SIDELINE, State.LOADED) == set(ids)


def test_a_sweep_that_fails_leaves_the_settlement_to_the_consumer(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = fired_ids(store)

    one.start(lambda store: store.queue("orders").sweep(0, dead_after=0), "sweep.before_commit")
    two.start(settles("delete", ids))
    assert two.waits()
    one.roll_back()

    assert two.finish() == 10
    assert audit(store).ids() == set()


@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_a_sweep_never_takes_what_is_being_settled(store, one, two, outcome):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = fired_ids(store)

    one.start(settles(outcome, ids[2:5]), "settle.before_commit")
    two.start(lambda store: store.queue("orders").sweep(0, dead_after=0))
    assert two.waits() == on_sqlite(store)

    assert one.finish() == 3
    # PostgreSQL passes over the slice; the next sweep finds it.
    swept = two.finish() + queue.sweep(0, dead_after=0)
    assert swept == 7
    books = audit(store)
    assert books.deleted == (3 if outcome == "delete" else 0)
    assert len(books.ids(Magazine.SIDELINE)) == (10 if outcome == "sideline" else 7)
    assert len(books.ids(Magazine.MAIN, State.LOADED)) == (3 if outcome == "reload" else 0)


# settle and settle


@pytest.mark.parametrize("first", ["delete", "sideline", "reload"])
@pytest.mark.parametrize("second", ["delete", "sideline", "reload"])
def test_two_settle_parts_of_one_slice(store, one, two, first, second):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = fired_ids(store)

    one.start(settles(first, ids[::2]), "settle.before_commit")
    two.start(settles(second, ids[1::2]))
    assert two.waits()

    assert (one.finish(), two.finish()) == (5, 5)
    books = audit(store)
    assert books.ids(state=State.FIRED) == set()
    places = {"delete": None, "sideline": Magazine.SIDELINE, "reload": Magazine.MAIN}
    for outcome, part in ((first, ids[::2]), (second, ids[1::2])):
        there = [books.messages.get(i, (None,))[0] for i in part]
        assert there == [places[outcome]] * 5


@pytest.mark.parametrize("first", ["delete", "sideline", "reload"])
@pytest.mark.parametrize("second", ["delete", "sideline", "reload"])
def test_the_first_of_two_settlements_of_the_same_messages_counts(store, one, two, first, second):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = fired_ids(store)

    one.start(settles(first, ids[:6]), "settle.before_commit")
    two.start(settles(second, ids[4:]))
    assert two.waits()

    assert (one.finish(), two.finish()) == (6, 4)
    assert audit(store).ids(state=State.FIRED) == set()


def test_a_segment_of_which_two_delete_the_last_parts_is_let_go(store, one, two):
    """On PostgreSQL each sees the other's part and leaves the segment to it; then vacuum helps."""
    queue = make_queue(store)
    queue.load(orders(MANY))
    firings = [queue.fire(MANY // 2, consumer=store.consumer(name)) for name in ("one", "two")]

    one.start(lambda store: store.queue("orders").delete(firings[0]), "settle.before_commit")
    two.start(lambda store: store.queue("orders").delete(firings[1]))
    # Both count in the same shard.
    assert two.waits()

    assert (one.finish(), two.finish()) == (MANY // 2, MANY // 2)
    assert segments_of(store) == (0 if on_sqlite(store) else 1)
    assert len(store.vacuum(grace=0)) == 1
    assert segments_of(store) == 0
    assert audit(store).ids() == set()
    assert leftover_files(store) == set()


def segments_of(store):
    with store.catalog.read() as connection:
        return len(connection.execute(segments.select()).all())


def test_neither_waits_to_sideline_into_different_shards(store, one, two):
    queue = make_queue(store, shards=2, key="customer")
    ids = []
    for name in two_customers(queue):
        queue.load([{"number": 1, "customer": name}])
        ids.append(fired_ids(store))

    one.start(settles("sideline", ids[0]), "settle.before_commit")
    two.start(settles("sideline", ids[1]))
    assert two.waits() == on_sqlite(store)

    assert (one.finish(), two.finish()) == (1, 1)
    assert len(audit(store).ids(Magazine.SIDELINE)) == 2


# load and load


def test_loads_into_one_shard_get_their_places_in_the_order_of_their_commits(store, one, two):
    queue = make_queue(store)

    one.start(loads(10), "load.before_commit")
    two.start(loads(10, 10))
    assert two.waits()
    assert queue.browse().num_rows == 0

    assert (one.finish(), two.finish()) == (10, 10)
    assert numbers_of(queue.fire().messages) == list(range(20))
    audit(store)


def test_a_load_that_fails_leaves_no_gap(store, one, two):
    queue = make_queue(store)

    one.start(loads(10), "load.before_commit")
    two.start(loads(10, 10))
    assert two.waits()
    one.roll_back()

    assert two.finish() == 10
    assert numbers_of(queue.fire().messages) == list(range(10, 20))
    assert queue.metadata().column("load_pointer").to_pylist() == [10, 0]
    audit(store)


def test_a_load_does_not_wait_for_a_firing_or_a_settlement(store, one, two):
    queue = make_queue(store)
    queue.load(orders(10))
    ids = fired_ids(store, 5)

    for verb, point in (
        (fires(), "fire.before_commit"),
        (settles("delete", ids), "settle.before_commit"),
    ):
        one.start(verb, point)
        two.start(loads(10))
        assert two.waits() == on_sqlite(store)
        one.finish()
        assert two.finish() == 10
    audit(store)


# publishing a batch twice


def stage(store, first=0):
    stager = make_stager(store.queue("orders"))
    for batch in orders(MANY, first).to_batches():
        stager.add(batch)
    return [segment.in_shard(0) for segment in stager.finish()]


def publishes(staged, batch):
    def verb(store):
        info = store.queue("orders").info
        return publish_once(store.catalog, store.storage, info, staged, "query", batch)

    return verb


@pytest.mark.parametrize("fails", [False, True], ids=["commits", "rolls back"])
def test_a_batch_that_two_drivers_publish_is_there_once(store, one, two, fails):
    queue = make_queue(store)
    one.start(publishes(stage(store), 7), "load.before_commit")
    two.start(publishes(stage(store), 7))
    assert two.waits()

    if fails:
        one.roll_back()
    else:
        assert one.finish() is True
    assert two.finish() is fails
    assert sorted(numbers_of(queue.browse())) == list(range(MANY))
    assert len(leftover_files(store)) == 1
    assert len(store.vacuum(grace=0)) == 1
    audit(store)


def test_batches_of_one_query_that_cross_are_all_or_nothing(store, one, two):
    """An older batch that comes later is there already, by its number."""
    queue = make_queue(store)
    one.start(publishes(stage(store, 0), 8), "load.before_commit")
    two.start(publishes(stage(store, MANY), 7))
    assert two.waits()

    assert one.finish() is True
    assert two.finish() is False
    assert sorted(numbers_of(queue.browse())) == list(range(MANY))


# publish and vacuum


def vacuums(store):
    return store.vacuum(grace=0)


def loads_staged(staged):
    def verb(store):
        return len(publish(store.catalog, store.storage, store.queue("orders").info, staged))

    return verb


def test_a_file_that_is_being_published_is_not_removed(store, one, two):
    queue = make_queue(store)
    one.start(loads_staged(stage(store)), "load.before_commit")
    two.start(vacuums)
    assert two.waits()

    assert one.finish() == 1
    assert two.finish() == []
    assert queue.browse().num_rows == MANY
    audit(store)


def test_a_file_whose_publication_fails_is_removed(store, one, two):
    make_queue(store)
    one.start(loads_staged(stage(store)), "load.before_commit")
    two.start(vacuums)
    assert two.waits()
    one.roll_back()

    assert len(two.finish()) == 1
    assert leftover_files(store) == set()


@pytest.mark.parametrize("point", ["vacuum.before_commit", "vacuum.condemned", "vacuum.removed"])
def test_a_file_that_is_being_removed_is_not_published(store, one, two, point):
    queue = make_queue(store)
    staged = stage(store)
    one.start(vacuums, point)
    two.start(loads_staged(staged))
    assert two.waits() if point == "vacuum.before_commit" else two.passes()

    assert len(one.finish()) == 1
    with pytest.raises(PublicationRefused, match=staged[0].location):
        two.finish()
    assert queue.browse().num_rows == 0
    assert leftover_files(store) == set()
    audit(store)


def test_a_file_that_was_removed_long_ago_is_not_published(store):
    make_queue(store)
    staged = stage(store)
    assert len(vacuums(store)) == 1

    with pytest.raises(PublicationRefused, match=staged[0].location):
        loads_staged(staged)(store)
    audit(store)


def test_a_publication_and_a_vacuum_of_the_same_files_do_not_deadlock(store, one, two):
    make_queue(store)
    staged = sorted(
        (segment for part in range(4) for segment in stage(store, part * MANY)),
        key=lambda segment: segment.location,
        reverse=True,
    )
    one.start(loads_staged(staged), "INSERT INTO files", passage=2)
    two.start(vacuums)
    assert two.waits()

    assert one.finish() == 4
    assert two.finish() == []
    audit(store)


def test_two_vacuums_remove_each_file_once(store, one, two):
    make_queue(store)
    for part in range(3):
        stage(store, part)
    one.start(vacuums, "vacuum.condemned")
    two.start(vacuums)
    assert two.passes()

    assert len(two.finish()) == 3
    one.finish()
    assert leftover_files(store) == set()
    audit(store)


# quarantine and settle


def spoil(store):
    """Fire all, of which the segment is then found to be damaged."""
    ids = fired_ids(store)
    (location,) = store.storage.list()
    store.storage.report_damage(location, "by the test")
    return ids


def sets_apart(store):
    return quarantine(store.catalog, store.storage)


def test_what_is_set_apart_is_not_settled_any_more(store, one, two):
    make_queue(store).load(orders(MANY))
    ids = spoil(store)

    one.start(sets_apart, "quarantine.before_commit")
    two.start(settles("delete", ids))
    assert two.waits()

    assert one.finish() == MANY
    assert two.finish() == 0
    assert audit(store).ids(state=State.DAMAGED) == set(ids)


@pytest.mark.parametrize("outcome", ["delete", "sideline", "reload"])
def test_what_is_settled_is_not_set_apart_in_its_old_place(store, one, two, outcome):
    make_queue(store).load(orders(MANY))
    ids = spoil(store)

    one.start(settles(outcome, ids[: MANY // 4]), "settle.before_commit")
    two.start(sets_apart)
    assert two.waits()

    assert one.finish() == MANY // 4
    apart = two.finish()
    books = audit(store)
    assert books.ids(state=State.DAMAGED) >= set(ids[MANY // 4 :])
    assert apart == len(books.ids(state=State.DAMAGED))
    assert books.deleted == (MANY // 4 if outcome == "delete" else 0)


# acknowledge, recover and hold, as a streaming query does


def fires_unseen(store, query):
    queue = store.queue("orders")
    wanted = Wanted(queue_ids=(queue.info.id,))
    return fire(store.catalog, query, wanted, seen=False)


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
    two.start(lambda store: store.recover(dead_after=0))
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

    one.start(lambda store: store.recover(dead_after=0), "recover.before_commit")
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
        return len(held(store.catalog, store.storage.uri, [info], query.id, 0, 1))

    one.start(lambda store: store.recover(dead_after=0), "recover.before_commit")
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
    two.start(lambda store: store.recover(dead_after=0))
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
        return len(held(store.catalog, store.storage.uri, [info], query.id, 0, 1))

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
        return numbers_of(store.queue("orders").fire(selector="number >= 4").messages)

    one.start(fires_some, stop_at="SELECT segments")
    two.start(fires(7))
    assert two.passes()
    assert two.finish() == [0, 1, 2, 3, 4, 5, 6]
    queue.delete(sorted(audit(store).ids(state=State.FIRED))[:7])

    assert one.finish() == [7, 8, 9]
    audit(store)
