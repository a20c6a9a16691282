"""How a reading is spread over partitions."""

import pickle

import pyarrow as pa

from ignis_source.partition import split
from queue_core.values.model import Part, ReadPlan, ScanTask
from queue_core.values.rows import Rows
from queue_core.values.schema import serialize
from tests.factories import make_segment


def piece(shard, size, queue="orders"):
    part = Part(rows=Rows(0, size), attempts=0, fired_at=None)
    return ScanTask(queue=queue, shard=shard, segment=make_segment(), parts=(part,), bytes=size)


def reading(*pieces):
    schema = serialize(pa.schema([("number", pa.int64())]))
    return ReadPlan(storage="/shop", schema=schema, tasks=pieces)


def shards(partitions):
    return [[(p.queue, p.shard) for p in each.plan.tasks] for each in partitions]


def test_an_empty_reading_has_no_partition():
    assert list(split(reading(), 4)) == []


def test_the_pieces_of_a_shard_stay_together_and_in_order():
    pieces = [piece(shard, size) for size in (1, 2, 3) for shard in (0, 1)]
    partitions = split(reading(*pieces), 2)
    assert sorted(shards(partitions)) == [[("orders", 0)] * 3, [("orders", 1)] * 3]
    assert [[p.bytes for p in each.plan.tasks] for each in partitions] == [[1, 2, 3]] * 2


def test_partitions_are_of_even_sizes():
    sizes = [8, 1, 1, 1, 1, 1, 1, 1, 1]
    partitions = split(reading(*(piece(shard, size) for shard, size in enumerate(sizes))), 2)
    assert [sum(p.bytes for p in each.plan.tasks) for each in partitions] == [8, 8]


def test_shards_of_different_queues_are_different_shards():
    partitions = split(reading(piece(0, 1, "red"), piece(0, 1, "blue")), 8)
    assert sorted(shards(partitions)) == [[("blue", 0)], [("red", 0)]]


def test_a_partition_is_sent_as_it_is():
    (partition,) = split(reading(piece(0, 3)), 1)
    assert pickle.loads(pickle.dumps(partition)) == partition
