"""The log of a queue, read as Kafka's source reads a topic: offsets are in Spark's checkpoint."""

import json
import time

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.dump import log_earlier
from tests.factories import make_queue, orders
from tests.spark.rig import Disaster, Rig, assert_rows, assert_same, finish, wait_until

EARLIEST = {"read": "log", "startingOffsets": "earliest"}


@pytest.fixture
def rig(spark, tmp_path, catalog_url):
    """A store on each catalog."""
    made = Rig(spark, tmp_path, None if catalog_url.startswith("sqlite") else catalog_url)
    yield made
    for query in spark.streams.active:
        query.stop()
    made.store.close()


def offsets(rig, batch, queue="orders"):
    """Where a batch begins and ends in each shard, by its note in the checkpoint."""
    said = json.loads(rig.log("offsets")[batch].read_text().splitlines()[-1])[queue]
    return {int(shard): (each["begin"], each["end"]) for shard, each in said.items()}


def fail_once(rig, stream, said="Disaster"):
    """Run a query that dies when its batch is done and not committed."""

    def work(batch, number):
        batch.collect()
        raise Disaster

    with pytest.raises(StreamingQueryException, match=said):
        finish(rig.each(stream, work))


def trim(rig, queue):
    """Let the log begin after what it has now, and remove the files."""
    log_earlier(rig.store, 10 * 86_400)
    assert queue.admin.trim()
    rig.store.admin.vacuum(grace=0)


def test_a_batch_read_has_the_log_and_not_the_queue(rig):
    queue = rig.orders(6, log="7 days", shards=2, key="number")
    before = rig.read().select("number", "_message_id", "_shard", "_loaded_at").cache()
    assert before.count() == 6
    queue.delete(queue.fire("all"))
    log = rig.read(read="log", minPartitions=4)

    assert log.columns == [
        *("number", "customer", "amount"),
        *("_message_id", "_queue", "_shard", "_offset", "_loaded_at"),
    ]
    assert_same(log.select(before.columns), before)
    assert log.rdd.getNumPartitions() >= 4
    places = log.groupBy("_shard").agg(F.sort_array(F.collect_list("_offset")).alias("at"))
    assert all(row["at"] == [*range(len(row["at"]))] for row in places.collect())
    assert_rows(rig.read(read="log", selector="number > 3").select("number"), 4, 5)
    assert_rows(
        rig.read(schema="_offset BIGINT, number BIGINT", read="log").select("number"), *range(6)
    )


def test_a_log_is_read_once_and_by_what_it_has(rig):
    queue = rig.orders(6, log="7 days")
    rig.store.subscribe("billing", to="orders")
    log = {"queue": None, "read": "log"}
    for wanted, text in (
        ({**log, "queues": "orders,orders"}, "queues names 'orders' more than once"),
        ({**log, "queues": "orders,billing"}, "have the same messages"),
        ({"read": "log", "selector": "_attempt > 0 OR number = 1"}, "a log has no _attempt"),
    ):
        with pytest.raises(Exception, match=text):
            rig.read(**wanted).collect()
    assert_rows(rig.read(read="log", selector="_message_id > 0 AND number = 1").select("number"), 1)

    assert rig.store.queue(queue.name).admin.trim() == 0


def test_a_query_goes_on_where_it_was_and_makes_a_batch_again_as_it_was(rig):
    queue = rig.orders(4, log="7 days")
    stream = rig.source(maxOffsetsPerTrigger=3, **EARLIEST)
    fail_once(rig, stream)
    # Spark has not logged where the first batch begins. Meanwhile, more came and all is deleted.
    queue.delete(queue.fire("all"))
    queue.load(orders(1, 4))
    assert rig.numbers(stream) == [[0, 1, 2], [3, 4]]
    assert rig.numbers(stream) == []
    rig.forget_commit()
    queue.load(orders(2, 5))
    assert rig.numbers(stream) == [[3, 4], [5, 6]]
    assert [offsets(rig, batch) for batch in (0, 1, 2)] == [{0: (0, 3)}, {0: (3, 5)}, {0: (5, 7)}]


def test_a_stream_begins_at_the_end_and_sees_what_comes(rig):
    queue = rig.orders(2, log="7 days")
    make_queue(rig.store, "others", log="7 days")
    seen = []
    stream = rig.source(None, queues="orders,others", read="log", idleWait="50 ms")
    query = rig.each(
        stream,
        lambda batch, _: seen.extend(batch.collect()),
        trigger={"processingTime": "50 milliseconds"},
    )
    wait_until(lambda: query.lastProgress is not None, query)
    queue.load(orders(1, 2))
    rig.store.queue("others").load(orders(1, 10))
    wait_until(lambda: len(seen) == 2, query)
    assert sorted((row["_queue"], row.number) for row in seen) == [("orders", 2), ("others", 10)]
    query.stop()
    # The new query's first batch is uncommitted if it was empty, or has what came.
    assert all(begin <= end for begin, end in offsets(rig, 0).values())


@pytest.mark.nightly
def test_trimmed_messages(rig):
    queue = rig.orders(3, log="7 days")
    stream = rig.source(**EARLIEST)
    fail_once(rig, stream)
    trim(rig, queue)
    queue.load(orders(2, 3))
    for each in (stream, rig.source(failOnDataLoss="false", **EARLIEST)):
        fail_once(rig, each, said="offsets 0 to 2 of shard 0 were trimmed")

    assert rig.numbers(rig.source(**EARLIEST), checkpoint="new") == [[3, 4]]
    queue.load(orders(2, 5))
    trim(rig, queue)
    queue.load(orders(1, 7))
    with pytest.raises(StreamingQueryException, match="set failOnDataLoss=false"):
        rig.numbers(stream, checkpoint="new")
    tolerant = rig.source(failOnDataLoss="false", **EARLIEST)
    assert rig.numbers(tolerant, checkpoint="new") == [[7]]


@pytest.mark.nightly
def test_times(rig):
    queue = rig.orders(3, log="7 days")
    log_earlier(rig.store, 7_200)
    queue.load(orders(2, 3))
    hour = int((time.time() - 3_600) * 1e3)
    assert_rows(rig.read(read="log", endingTimestamp=hour).select("number"), 0, 1, 2)
    assert rig.numbers(rig.source(read="log", startingTimestamp=hour)) == [[3, 4]]


def test_another_catalog_is_noticed(rig, spark, tmp_path):
    rig.orders(3, log="7 days")
    stream = rig.source(**EARLIEST)
    assert rig.numbers(stream) == [[0, 1, 2]]
    other = Rig(spark, tmp_path / "other")
    other.orders(5, log="7 days")
    other.folder = rig.folder
    with pytest.raises(StreamingQueryException, match=r"another message .*startingTimestamp=\d+"):
        other.numbers(other.source(**EARLIEST))
    other.store.close()
