"""When a stream brings messages: each of Spark's triggers, and what an idle query does."""

import json
import time
from itertools import chain

import pytest
from pyspark.sql import functions as F

from tests.factories import numbers_of, orders
from tests.spark.rig import counts, finish, numbers_in, wait_until

ONCE = {"once": True}
OFTEN = {"processingTime": "100 milliseconds"}


def test_available_now_ends_while_others_go_on_loading(rig):
    queue = rig.orders(6)
    seen = []

    def load_more(batch, number):
        seen.extend(row.number for row in batch.collect())
        queue.load(orders(6, first=100 * (number + 1)))

    finish(rig.each(rig.source(maxMessagesPerTrigger=2), load_more))
    assert seen == list(range(6))
    assert counts(queue, "waiting") == [18]


@pytest.mark.nightly
def test_available_now_ends_while_messages_are_reloaded(rig):
    queue = rig.orders(6, shards=2, key="number")
    stream = rig.source(ack="settle", consumer="undecided", maxMessagesPerTrigger=2)
    again = stream.select("_message_id", F.lit("reload").alias("outcome"))
    finish(rig.sink(again, mode="settle", consumer="undecided"))

    assert counts(queue, "fired", "reloaded", "waiting") == [6, 6, 6]
    assert sorted(numbers_of(queue.peek(6))) == list(range(6))


def test_a_trigger_that_fires_once_reads_all_there_is_whatever_the_limits(rig):
    rig.orders(6)
    stream = rig.source(maxMessagesPerTrigger=2, maxBytesPerTrigger=1)
    assert rig.numbers(stream, trigger=ONCE) == [[0, 1, 2, 3, 4, 5]]


def test_an_empty_queue_gives_an_empty_batch_and_an_end(rig):
    rig.orders(0)
    seen = []
    finish(rig.each(rig.source(), lambda batch, number: seen.append((number, batch.count()))))
    assert seen == [(0, 0)]


def test_a_query_at_intervals_brings_what_is_loaded_in_between(rig):
    queue = rig.orders(2)
    seen = []
    query = rig.each(rig.source(), lambda batch, _: seen.extend(batch.collect()), trigger=OFTEN)
    wait_until(lambda: len(seen) == 2, query)
    queue.load(orders(3, first=2))
    wait_until(lambda: len(seen) == 5, query)
    assert [row.number for row in seen] == [0, 1, 2, 3, 4]


def test_a_query_that_runs_on_is_idle_without_noting_anything(rig):
    queue = rig.orders(2)
    seen = []
    query = rig.each(rig.source(), lambda batch, _: seen.extend(batch.collect()), trigger={})
    wait_until(lambda: len(seen) == 2 and counts(queue, "deleted") == [2], query)
    offsets = rig.log("offsets")
    time.sleep(2.0)
    assert rig.log("offsets") == offsets
    queue.load(orders(1, first=2))
    wait_until(lambda: len(seen) == 3, query)
    assert len(rig.log("offsets")) == len(offsets) + 1


@pytest.mark.nightly
def test_progress_tells_how_many_messages_wait(rig):
    rig.orders(10)
    stream = rig.source(maxMessagesPerTrigger=4, consumer="teller")
    query = rig.each(stream, lambda batch, _: batch.collect())
    finish(query)
    told = [json.loads(progress.sources[0].latestOffset) for progress in query.recentProgress]
    assert told[0].pop("oldest_age") > 0
    assert told[0].pop("bytes") > 0
    assert told[0] == {
        "consumer": "teller", "ticket": 1, "waiting": 6, "in_flight": 4, "sidelined": 0
    }  # fmt: skip
    assert [progress.numInputRows for progress in query.recentProgress][:3] == [4, 4, 2]


def test_an_idle_queue_does_not_hold_up_the_other_sources_of_a_query(rig):
    queue = rig.orders(0)
    ticks = rig.spark.readStream.format("rate").option("rowsPerSecond", 20).load()
    both = rig.source().select("number").union(ticks.select(F.col("value").alias("number")))
    seen = []
    query = rig.each(both, lambda batch, _: seen.append(numbers_in(batch)), trigger={})
    wait_until(lambda: sum(map(bool, seen)) >= 2, query)
    queue.load(orders(2, first=1000))
    wait_until(lambda: {1000, 1001} <= set(chain.from_iterable(seen)), query)
    wait_until(lambda: counts(queue, "deleted") == [2], query)
    ticked = sorted(number for number in chain.from_iterable(seen) if number < 1000)
    assert ticked == list(range(len(ticked)))
