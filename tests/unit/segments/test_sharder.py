"""Rows are sorted by shard and keep the order of arrival within each."""

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import SchemaMismatch
from queue_core.segments import sharder as sharder_module
from queue_core.segments.shard_hash import shards_of
from queue_core.segments.sharder import Sharder

SCHEMA = pa.schema([("key", pa.int64()), ("number", pa.int64())])


def batches(*counts):
    """Batches of that many rows, numbered in the order of arrival."""
    rng = np.random.default_rng(7)
    first = 0
    for count in counts:
        keys, numbers = rng.integers(0, 50, count), np.arange(first, first + count)
        yield pa.RecordBatch.from_arrays([pa.array(keys), pa.array(numbers)], schema=SCHEMA)
        first += count


def filled(key, shards, *counts):
    sharder, added = Sharder("orders", SCHEMA, key, shards), list(batches(*counts))
    for batch in added:
        sharder.add(batch)
    return sharder, pa.Table.from_batches(added)


# The second case is sorted in several steps, in between the batches.
@pytest.mark.parametrize("counts", [(1, 0, 20), (5000, 4000, 9000, 3)])
@pytest.mark.parametrize("shards", [1, 2, 8])
def test_each_shard_has_the_rows_of_its_keys_in_the_order_of_arrival(shards, counts):
    sharder, rows = filled("key", shards, *counts)

    taken = sharder.take()

    expected = shards_of(rows.column("key").combine_chunks(), shards)
    assert [shard for shard, _ in taken] == sorted(set(expected.tolist()))
    for shard, table in taken:
        assert table.equals(rows.filter(pa.array(expected == shard)))


def test_a_large_batch_is_joined_with_none_that_waits(monkeypatch):
    """Arrow joins no more than 2 GiB of strings."""
    monkeypatch.setattr(sharder_module, "_APART_BYTES", 16_000)
    real = pa.concat_batches

    def limited(batches):
        if sum(batch.nbytes for batch in batches) > 17_000:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return real(batches)

    monkeypatch.setattr(pa, "concat_batches", limited)
    sharder, rows = filled("key", 4, 900, 1050)

    taken = sharder.take()

    expected = shards_of(rows.column("key").combine_chunks(), 4)
    for shard, table in taken:
        assert table.equals(rows.filter(pa.array(expected == shard)))


@pytest.mark.parametrize("key", ["key", None])
def test_rows_that_wait_do_not_keep_the_memory_of_their_batch(key):
    sharder, _ = filled("key", 4, 9000)
    rows = pa.concat_tables([table for _, table in sharder.take()]).combine_chunks()
    (batch,) = rows.to_batches()
    begin = batch.column("number").buffers()[1].address

    again = Sharder("orders", SCHEMA, key, 4)
    again.add(batch)
    taken = again.take()

    assert pa.concat_tables([table for _, table in taken]).equals(rows)
    assert [shard for shard, _ in taken] == ([0, 1, 2, 3] if key else [None])
    for _, table in taken:
        for chunk in table.column("number").chunks:
            assert not begin <= chunk.buffers()[1].address < begin + 8 * len(batch)


@pytest.mark.parametrize("key", ["key", None])
def test_a_rank_is_the_index_of_a_row_in_what_is_taken(key):
    sharder, rows = filled(key, 4, 5000, 4000, 9000)

    ranks = sharder.ranks()
    taken = pa.concat_tables([table for _, table in sharder.take()])

    assert sorted(ranks.tolist()) == list(range(rows.num_rows))
    assert taken.column("number").to_numpy()[ranks].tolist() == list(range(rows.num_rows))


def test_rows_count_until_they_are_taken():
    sharder, rows = filled("key", 4, 10, 5)
    assert (sharder.rows, sharder.bytes) == (15, rows.nbytes)

    sharder.take()
    assert (sharder.rows, sharder.bytes) == (0, 0)

    more = next(batches(2))
    sharder.add(more)
    assert sum(table.num_rows for _, table in sharder.take()) == 2


def test_a_null_key_is_refused_with_its_queue_and_column():
    rows = pa.record_batch({"key": pa.array([1, None])})
    sharder = Sharder("orders", rows.schema, "key", 4)
    sharder.add(rows)

    with pytest.raises(SchemaMismatch, match="'orders': key column 'key' is null in 1 rows"):
        sharder.take()
