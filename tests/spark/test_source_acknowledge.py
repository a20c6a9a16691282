"""When a message is done with, by `ack`: with its batch, by a settlement, or never."""

from itertools import chain

from pyspark.sql import functions as F

from tests.factories import aside, main, orders
from tests.spark.rig import assert_rows, counts, finish, wait_until

ONCE = {"once": True}


def test_messages_are_deleted_once_their_batch_is_committed_and_not_before(rig):
    queue = rig.orders(4)
    told = []

    def look(batch, _):
        told.append((batch.count(), counts(queue, "deleted", "in_flight")))

    finish(rig.each(rig.source(maxMessagesPerTrigger=2), look))
    assert told == [(2, [0, 2]), (2, [2, 2])]
    assert counts(queue, "deleted", "in_flight", "waiting") == [4, 0, 0]
    assert queue.browse().num_rows == 0


def test_the_last_batch_of_a_query_that_is_gone_is_acknowledged_when_it_is_started_again(rig):
    queue = rig.orders(2)
    assert rig.numbers(rig.source(), trigger=ONCE) == [[0, 1]]
    assert counts(queue, "deleted", "in_flight") == [0, 2]

    queue.load(orders(1, first=2))
    assert rig.numbers(rig.source(), trigger=ONCE) == [[2]]
    assert counts(queue, "deleted", "in_flight") == [2, 1]


def test_a_settling_query_leaves_undecided_messages_in_flight(rig):
    queue = rig.orders(6, shards=2, key="number")
    stream = rig.source(ack="settle", consumer="picky", maxMessagesPerTrigger=4)
    decided = stream.where("number % 3 < 2").select(
        "_message_id",
        F.when(F.col("number") % 3 == 0, "delete").otherwise("sideline").alias("outcome"),
    )
    finish(rig.sink(decided, mode="settle", consumer="picky"))

    assert counts(queue, "deleted", "sidelined", "in_flight") == [2, 2, 2]
    assert main(queue) == [2, 5]
    assert aside(queue) == [1, 4]


def test_a_browsing_query_sees_each_message_once_and_takes_none_also_when_started_again(rig):
    queue = rig.orders(5, shards=2, key="number")
    stream = rig.source(ack="browse", maxMessagesPerTrigger=3)
    first = rig.numbers(stream)
    assert [len(batch) for batch in first] == [3, 2]
    assert sorted(chain.from_iterable(first)) == [0, 1, 2, 3, 4]
    assert counts(queue, "fired", "waiting") == [0, 5]

    rig.store.admin.recover(dead_after=0.0)
    queue.load(orders(2, first=5))
    second = rig.numbers(stream)
    assert [sorted(batch) for batch in second] == [[5, 6]]
    assert counts(queue, "fired", "waiting") == [0, 7]


def test_a_browsing_query_that_runs_on_sees_what_is_loaded_and_what_others_have_fired(rig):
    queue = rig.orders(2)
    queue.fire(1)
    seen = []
    query = rig.each(
        rig.source(ack="browse"), lambda batch, _: seen.extend(batch.collect()), trigger={}
    )
    wait_until(lambda: len(seen) == 2, query)
    queue.load(orders(1, first=2))
    wait_until(lambda: len(seen) == 3, query)
    assert [row.number for row in seen] == [0, 1, 2]
    assert [row._fired_at is None for row in seen] == [False, True, True]


def test_a_batch_read_takes_none(rig):
    queue = rig.orders(3)
    queue.fire(1)
    assert_rows(rig.read().select("number"), 0, 1, 2)
    assert counts(queue, "in_flight", "waiting") == [1, 2]
