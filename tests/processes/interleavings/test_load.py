"""Loads, and batches that are published twice."""

from __future__ import annotations

import pyarrow as pa
import pytest

from queue_core.errors import QueueFull, StaleCheckpoint
from queue_core.segments.shard_hash import shards_of
from tests.books import audit, leftover_files
from tests.factories import main, make_batch, make_filled, make_queue, numbers_of, publish_once
from tests.processes.interleavings.steps import (
    BOTH,
    MANY,
    fired_ids,
    fires,
    loads,
    on_sqlite,
    settles,
    stage,
)

# load and load


def test_loads_into_one_shard_get_their_places_in_the_order_of_their_commits(store, one, two):
    queue = make_queue(store)

    one.start(loads(10), "load.before_commit")
    two.start(loads(10, 10))
    assert two.waits()
    assert queue.browse().num_rows == 0

    assert (one.finish(), two.finish()) == (10, 10)
    assert numbers_of(queue.fire("all").messages) == list(range(20))
    audit(store)


def test_a_load_that_fails_leaves_no_gap(store, race):
    queue = make_queue(store)

    assert race(loads(10), "load.before_commit", loads(10, 10), fails=True) == (None, 10)
    assert numbers_of(queue.fire("all").messages) == list(range(10, 20))
    assert queue.metadata().column("load_pointer").to_pylist() == [10, 0]
    audit(store)


def test_two_loads_never_take_the_same_room(store, one, two):
    queue = make_queue(store, shards=2, key="number", max_size=15, overflow="fail")

    one.start(loads(10), "load.before_commit")
    two.start(loads(10, 10))
    assert two.waits()

    assert one.finish() == 10
    with pytest.raises(QueueFull):
        two.finish()
    assert queue.browse().num_rows == 10
    audit(store)


def test_a_value_that_two_load_into_different_shards_keeps_its_order_in_each(store, race):
    """On PostgreSQL, the second does not see how many messages of it the first has loaded."""
    queue = make_queue(store, shards=2, key="number", fair_by="customer")
    shards = shards_of(pa.array(range(60), pa.int64()), 2).tolist()
    here, there = ([n for n in range(60) if shards[n] == shard] for shard in (0, 1))

    def of_one(numbers):
        rows = [{"number": number, "customer": "one"} for number in numbers]
        return lambda store: len(store.queue("orders").load(rows))

    assert race(of_one(here[:10]), "load.before_commit", of_one(there[:1])) == (10, 1)
    assert of_one(here[10:11])(store) == 1

    fired = [number for _ in range(12) for number in numbers_of(queue.fire(1).messages)]
    assert [number for number in fired if number in here] == here[:11]
    audit(store)


def test_a_load_does_not_wait_for_a_firing_or_a_settlement(store, one, two):
    make_filled(store, 10)
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


def publishes(staged, batch):
    def verb(store):
        info = store.queue("orders").info
        return publish_once(store.catalog, store.storage, info, staged, make_batch(staged, batch))

    return verb


@BOTH
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
    assert main(queue) == list(range(MANY))
    assert len(leftover_files(store)) == 1
    assert len(store.admin.vacuum(grace=0)) == 1
    audit(store)


def test_batches_of_one_query_that_cross_are_all_or_nothing(store, one, two):
    """An older batch that comes later has a number that was passed, and rows that were not."""
    queue = make_queue(store)
    one.start(publishes(stage(store, 0), 8), "load.before_commit")
    two.start(publishes(stage(store, MANY), 7))
    assert two.waits()

    assert one.finish() is True
    with pytest.raises(StaleCheckpoint):
        two.finish()
    assert main(queue) == list(range(MANY))
