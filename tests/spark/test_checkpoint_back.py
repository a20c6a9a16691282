"""A checkpoint that went back: reset by hand, or an older copy; and batches that only run again."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from tests.factories import orders
from tests.spark.rig import counts, finish

ONCE = {"once": True}
STALE = "StaleCheckpoint.*went back to an earlier state"


def reset(rig):
    """Reset a query as people do: its id, in the metadata, stays."""
    for folder in ("offsets", "commits"):
        shutil.rmtree(rig.folder / "checkpoint" / folder)


@pytest.mark.parametrize(
    ("batches", "named"),
    [pytest.param(1, {}, marks=pytest.mark.nightly), (3, {"consumer": "copier"})],
)
def test_new_messages_after_a_reset_are_refused_and_not_lost(rig, batches, named):
    queue = rig.orders(30)
    finish(rig.sink(rig.source(maxMessagesPerTrigger=30 // batches, **named), "copy"))
    reset(rig)
    queue.load(orders(100, 1000))

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=STALE):
            finish(rig.sink(rig.source(**named), "copy"))
    assert counts(queue, "deleted", "in_flight") == [30, 100]
    assert rig.arrived() == list(range(30))

    shutil.rmtree(rig.folder / "checkpoint")
    for consumer in rig.store.view("consumers").column("consumer").to_pylist():
        queue.sweep(dead_after=0.0, consumer=consumer)
    queue.shovel()
    finish(rig.sink(rig.source(**named), "copy"))
    assert rig.arrived() == [*range(30), *range(1000, 1100)]


def test_a_named_consumer_goes_on_after_a_reset_where_that_is_sound(rig):
    """Its first batch is that of its ticket again, and is recognised by it."""
    queue = rig.orders(30)
    finish(rig.sink(rig.source(consumer="copier"), "copy", trigger=ONCE))
    reset(rig)
    queue.load(orders(100, 1000))

    finish(rig.sink(rig.source(consumer="copier"), "copy"))
    assert rig.arrived() == [*range(30), *range(1000, 1100)]


@pytest.mark.nightly
def test_an_older_copy_of_the_checkpoint_goes_on_with_one_source(rig):
    queue = rig.orders(20)
    stream = rig.source(maxMessagesPerTrigger=10)
    finish(rig.sink(stream, "copy"))
    shutil.copytree(rig.folder / "checkpoint", rig.folder / "older")
    queue.load(orders(30, 20))
    finish(rig.sink(stream, "copy"))

    shutil.rmtree(rig.folder / "checkpoint")
    shutil.copytree(rig.folder / "older", rig.folder / "checkpoint")
    queue.load(orders(10, 1000))
    finish(rig.sink(stream, "copy"))

    assert rig.arrived() == [*range(50), *range(1000, 1010)]


def test_an_older_copy_of_the_checkpoint_with_two_sources_loses_nothing(rig):
    """Batches and tickets do not go in step, so that a used number can have new rows."""
    red, blue = rig.orders(10, "red"), rig.orders(10, "blue")
    union = rig.source("red").select("number").union(rig.source("blue").select("number"))
    finish(rig.sink(union, "copy"))
    shutil.copytree(rig.folder / "checkpoint", rig.folder / "older")
    for first in (10, 20):
        red.load(orders(10, first))
        finish(rig.sink(union, "copy"))

    shutil.rmtree(rig.folder / "checkpoint")
    shutil.copytree(rig.folder / "older", rig.folder / "checkpoint")
    blue.load(orders(100, 1000))
    with pytest.raises(StreamingQueryException, match=STALE):
        finish(rig.sink(union, "copy"))
    assert counts(blue, "deleted", "in_flight") == [10, 100]


def test_outcomes_after_a_reset_are_refused(rig):
    queue = rig.orders(5)
    settled = rig.source(ack="settle").select("_message_id", F.lit("delete").alias("outcome"))
    finish(rig.sink(settled, mode="settle"))
    reset(rig)
    queue.load(orders(5))

    with pytest.raises(StreamingQueryException, match=STALE):
        finish(rig.sink(settled, mode="settle"))
    assert counts(queue, "deleted", "in_flight") == [5, 5]


@pytest.mark.nightly
def test_a_policy_does_not_hide_a_reset(rig):
    queue = rig.orders(10)
    how = {"policy": "latest", "key": "customer"}
    finish(rig.sink(rig.source(), "copy", **how))
    reset(rig)
    queue.load(orders(10, 1000))

    with pytest.raises(StreamingQueryException, match=STALE):
        finish(rig.sink(rig.source(), "copy", **how))
    assert counts(queue, "deleted", "in_flight") == [10, 10]


def test_a_batch_with_random_values_runs_again_after_a_crash(rig):
    queue = rig.orders(40, shards=4, key="number")
    stream = rig.source().select("number", F.expr("uuid()").alias("random"))
    finish(rig.sink(stream, "copy", trigger=ONCE))
    rig.forget_commit()
    queue.load(orders(10, 40))
    finish(rig.sink(stream, "copy"))
    assert rig.arrived() == list(range(50))


def test_a_batch_runs_again_in_other_partitions_where_its_entry_cannot_be_read(rig):
    """Without the option, Spark does not say where the checkpoint is; its rows are compared."""
    queue = rig.orders(40, shards=4, key="number")
    setting = "spark.sql.streaming.checkpointLocation"
    before = rig.spark.conf.get(setting)

    def run(partitions):
        rig.spark.conf.set(setting, str(rig.folder))
        try:
            writer = rig.source().repartition(partitions).writeStream.format("ignis")
            writer = writer.option("queue", "copy").queryName("checkpoint")
            finish(writer.trigger(once=True).start(rig.path))
        finally:
            rig.spark.conf.set(setting, before)

    run(1)
    rig.forget_commit()
    queue.load(orders(10, 40))
    run(3)
    run(2)
    assert rig.arrived() == list(range(50))
