"""The name ``{queue}_SIDELINE`` in queries that handle and settle messages. Source: IgnisMQ."""

import pytest
from pyspark.sql import functions as F

from pyspark_ignis import consume
from queue_core import Breaker
from tests.factories import numbers_of
from tests.spark.rig import AVAILABLE_NOW, finish

pytestmark = pytest.mark.nightly


@pytest.fixture
def queues(rig):
    """Two queues, each with messages 0 and 1 in the sideline, and 2 and 3 in main."""
    made = [rig.orders(4, name, retry=None) for name in ("orders", "refunds")]
    for queue in made:
        queue.sideline(queue.fire(2))
    return made


def approve(message):
    return message["number"] == 0


def left_in(queue):
    """The numbers in main, and those in the sideline."""
    magazines = (queue.browse(magazine=name) for name in ("main", "sideline"))
    return [sorted(numbers_of(messages)) for messages in magazines]


@pytest.mark.parametrize(
    "how",
    [
        lambda: {"handler": approve},
        lambda: {"handler": F.col("number") == 0},
        lambda: {"handler": approve, "breaker": Breaker(of=5)},
    ],
    ids=["function", "column", "breaker"],
)
def test_a_sideline_is_consumed_by_its_name(rig, queues, checkpoint, how):
    how = how() | {"path": rig.path, "checkpoint": checkpoint, "trigger": AVAILABLE_NOW}

    finish(consume(rig.spark, "orders_SIDELINE", **how))

    assert [left_in(queue) for queue in queues] == [[[2, 3], [1]], [[2, 3], [0, 1]]]
    assert rig.store.view("queues").column("in_flight").to_pylist() == [0, 0]
    assert rig.store.queue("orders").failures().num_rows == 3


def test_source_and_sink_take_the_name_alike(rig, queues):
    rows = rig.source("orders_SIDELINE", ack="settle", consumer="mender")
    outcomes = rows.select("_message_id", F.lit("delete").alias("outcome"))

    finish(rig.sink(outcomes, "orders_SIDELINE", mode="settle", consumer="mender"))

    assert left_in(queues[0]) == [[2, 3], []]
    table = rig.read("refunds_SIDELINE").select("_message_id", F.lit("delete").alias("outcome"))
    fired = rig.store.queue("refunds_SIDELINE").fire("all")
    rig.write(table, "refunds_SIDELINE", mode="settle")
    assert len(fired) == 2
    assert left_in(queues[1]) == [[2, 3], []]
