"""Named sources: between restarts, sources of a query change their order, come and go."""

import pytest

from tests.factories import orders
from tests.spark.rig import finish

pytestmark = pytest.mark.nightly

EVOLUTION = {
    "spark.sql.streaming.queryEvolution.enableSourceEvolution": "true",
    "spark.sql.streaming.offsetLog.formatVersion": "2",
}


@pytest.fixture(autouse=True)
def _evolution(spark):
    if not hasattr(type(spark.readStream), "name"):
        pytest.skip("sources have names since Spark 4.2")
    for name, value in EVOLUTION.items():
        spark.conf.set(name, value)
    yield
    for name in EVOLUTION:
        spark.conf.unset(name)


def named(rig, name):
    """A queue as a stream, whose source has the queue's name."""
    reader = rig.spark.readStream.format("ignis").option("queue", name).name(name)
    return reader.load(rig.path).select("number", "customer", "amount")


def union(rig, *names):
    """The streams of queues in this order."""
    first, *others = (named(rig, name) for name in names)
    for other in others:
        first = first.union(other)
    return first


def test_named_sources_change_their_order_come_and_go_and_each_message_arrives_once(rig):
    first, second = rig.orders(10, "first"), rig.orders(0, "second")
    second.load(orders(10, 10))
    finish(rig.sink(union(rig, "first", "second"), "copy"))

    first.load(orders(5, 20))
    second.load(orders(5, 25))
    finish(rig.sink(union(rig, "second", "first"), "copy"))

    third = rig.orders(0, "third")
    third.load(orders(5, 30))
    first.load(orders(5, 35))
    finish(rig.sink(union(rig, "third", "second", "first"), "copy"))

    second.load(orders(5, 40))
    finish(rig.sink(union(rig, "second", "third"), "copy"))

    assert rig.arrived() == list(range(45))


def test_a_repeated_batch_of_sources_in_another_order_is_loaded_once(rig):
    first, second = rig.orders(10, "first"), rig.orders(0, "second")
    second.load(orders(10, 10))
    finish(rig.sink(union(rig, "first", "second"), "copy", trigger={"once": True}))
    rig.forget_commit()

    first.load(orders(5, 20))
    finish(rig.sink(union(rig, "second", "first"), "copy"))

    assert rig.arrived() == list(range(25))
