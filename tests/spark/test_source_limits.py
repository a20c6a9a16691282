"""How much a micro-batch takes, and how it is spread over partitions."""

from itertools import chain

import pytest
from pyspark.sql import functions as F

from tests.factories import make_queue, orders

pytestmark = pytest.mark.nightly


@pytest.mark.parametrize(
    ("settings", "options", "partitions"),
    [
        ({}, {}, 4),
        ({"concurrency": 3}, {}, 3),
        ({"concurrency": 3}, {"numPartitions": 1}, 1),
        ({}, {"numPartitions": 100}, 4),
    ],
    ids=["one a shard", "the queue's concurrency", "the option", "no more than shards"],
)
def test_messages_are_spread_over_partitions(rig, settings, options, partitions):
    rig.orders(40, shards=4, key="number", **settings)
    table = rig.read(**options)
    assert table.rdd.getNumPartitions() == partitions
    assert table.count() == 40


def test_each_partition_of_a_micro_batch_has_its_shards_in_the_order_of_loading(rig):
    queue = make_queue(rig.store, shards=6, key="customer")
    for first in range(0, 600, 100):
        queue.load(orders(100, first, customers=25))
    stream = rig.source(numPartitions=2, maxMessagesPerTrigger=250)
    (*batches,) = rig.batches(stream.withColumn("partition", F.spark_partition_id()))

    assert [len(batch) for batch in batches] == [250, 250, 100]
    for batch in batches:
        partitions = {row._shard: row.partition for row in batch}
        assert set(partitions.values()) == {0, 1}
        assert all(partitions[row._shard] == row.partition for row in batch)
    by_shard = [[r.number for b in batches for r in b if r._shard == s] for s in range(6)]
    assert all(numbers == sorted(numbers) for numbers in by_shard)
    assert sorted(chain.from_iterable(by_shard)) == list(range(600))
