"""Streams over more than one queue, over the sideline, and over one queue twice."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException

from tests.factories import make_queue, orders
from tests.spark.rig import assert_rows, counts, finish


def test_one_query_reads_several_queues(rig):
    red, blue = rig.orders(3, "red"), rig.orders(0, "blue", shards=2)
    blue.load(orders(3, first=10))
    stream = rig.source(None, queues="red, blue", consumer="both", maxMessagesPerTrigger=4)
    batches = rig.batches(stream)

    assert [len(batch) for batch in batches] == [4, 2]
    assert {row._queue for row in batches[0]} == {"red", "blue"}
    found = sorted((row._queue, row.number) for batch in batches for row in batch)
    assert found == [*(("blue", n) for n in (10, 11, 12)), *(("red", n) for n in (0, 1, 2))]
    assert counts(red, "deleted") == counts(blue, "deleted") == [3]


def test_a_queue_that_is_left_out_before_its_batch_is_committed_loses_nothing(rig):
    red, blue = rig.orders(3, "red"), rig.orders(0, "blue")
    blue.load(orders(3, first=10))
    both = rig.source(None, queues="red,blue", consumer="both").select("number")
    finish(rig.sink(both, "copy", trigger={"once": True}))
    rig.forget_commit()
    for sink, message in (
        ((rig.source("red").select("number"), "copy"), "consumer 'both'.* of queue 'blue'"),
        ((both, "another"), "batch 0 .* published to queue 'copy'"),
    ):
        with pytest.raises(StreamingQueryException, match=f"BadOption.*{message}"):
            finish(rig.sink(*sink))

    finish(rig.sink(both, "copy"))
    blue.load(orders(2, first=20))
    finish(rig.sink(rig.source("red").select("number"), "another"))
    assert rig.arrived() == [0, 1, 2, 10, 11, 12]
    assert counts(red, "deleted") == counts(blue, "deleted") == [3]
    assert counts(blue, "waiting") == [2]


def test_a_batch_reads_several_queues(rig):
    rig.orders(2, "red")
    rig.orders(1, "blue")
    table = rig.read(None, queues="red,blue").groupBy("_queue").count()
    assert_rows(table, ("blue", 1), ("red", 2))


def test_queues_of_different_columns_are_refused(rig):
    rig.orders(1, "red")
    make_queue(rig.store, "blue", pa.schema([("colour", pa.string())]))
    message = "queues=red,blue: 'blue' and 'red' have different columns"
    with pytest.raises(PySparkException, match=message):
        rig.read(None, queues="red,blue").collect()
    with pytest.raises(PySparkException, match=message):
        rig.numbers(rig.source(None, queues="red,blue"))


def test_the_sideline_is_read_like_main(rig):
    queue = rig.orders(3)
    failed = queue.fire(2)
    queue.sideline(failed, reason="declined")
    assert_rows(rig.read(magazine="sideline").select("number"), 0, 1)

    ((first, second),) = rig.batches(rig.source(magazine="sideline"))
    assert [first.number, second.number] == [0, 1]
    assert [first._message_id, second._message_id] == failed.ids.to_pylist()
    assert {first._attempt, second._attempt} == {1}
    assert queue.browse(magazine="sideline").num_rows == 0
    assert counts(queue, "waiting") == [1]


def test_a_stream_joined_to_itself_reads_twice_and_is_acknowledged_once(rig):
    queue = rig.orders(4)
    stream = rig.source(maxMessagesPerTrigger=3).select("number")
    batches = rig.numbers(stream.union(stream))
    assert [sorted(batch) for batch in batches] == [[0, 0, 1, 1, 2, 2], [3, 3]]
    assert counts(queue, "fired", "deleted") == [4, 4]


@pytest.mark.nightly
@pytest.mark.parametrize("repair", ["another name", "another checkpoint"])
def test_two_sources_of_a_query_with_one_consumer_are_refused_and_lose_nothing(rig, repair):
    """Both would give the batch that one of them has fired."""
    rig.orders(40, shards=2, key="number")

    def run(*names, checkpoint="checkpoint"):
        one, other = (
            rig.source(consumer=name, maxMessagesPerTrigger=10).select("number") for name in names
        )
        finish(rig.sink(one.union(other), "copy", checkpoint=checkpoint))

    for _ in range(3):
        with pytest.raises(StreamingQueryException, match=r"ConsumerFenced.*consumer 'twin'"):
            run("twin", "twin")
        assert [rig.store.queue(name).browse().num_rows for name in rig.store.queues()] == [40]

    if repair == "another checkpoint":
        run("twin", "sister", checkpoint="another")
    else:
        run("twin", "sister")
    assert rig.arrived() == list(range(40))
