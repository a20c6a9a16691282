"""Merging: the order across shards."""

import numpy as np
import pyarrow as pa
import pytest

from queue_core.selection.merging import merge_rows, merged, taken


@pytest.mark.parametrize(
    ("times", "order"),
    [
        ([[]], []),
        ([[1, 2, 3]], [0, 1, 2]),
        ([[1, 4], [2, 3]], [0, 2, 3, 1]),
        ([[5, 5], [5]], [0, 1, 2]),
        # An older message does not overtake its predecessors, but comes right after them.
        ([[4, 1, 6], [3, 5]], [3, 0, 1, 4, 2]),
    ],
)
def test_shards_are_merged_by_time_and_keep_their_orders(times, order):
    every = np.array([time for of_shard in times for time in of_shard], np.int64)
    ids = np.arange(len(every))
    assert merged(every, ids, [len(of_shard) for of_shard in times]).tolist() == order


def test_loads_of_the_same_moment_come_in_the_order_of_their_ids():
    times = np.array([7, 7, 7, 7], np.int64)
    assert merged(times, np.array([2, 4, 1, 3]), [2, 2]).tolist() == [2, 0, 3, 1]
    assert merged(times, np.array([4, 2, 1, 3]), [2, 2]).tolist() == [2, 3, 0, 1]


def test_rows_are_merged_by_their_shards_and_times():
    times = pa.array([1, 4, 2, 3], pa.timestamp("us", "UTC"))
    shards = pa.array([0, 0, 7, 7], pa.int32())
    ids = [10, 11, 12, 13]
    rows = pa.table({"n": [0, 1, 2, 3], "_message_id": ids, "_shard": shards, "_loaded_at": times})
    assert merge_rows(rows)["n"].to_pylist() == [0, 2, 3, 1]
    assert merge_rows(rows.slice(0, 0)).num_rows == 0


class Narrow:
    """A table of which Arrow can take two rows at once."""

    def __init__(self, table):
        self.table = table
        self.num_rows = table.num_rows

    def take(self, places):
        if len(places) > 2:
            raise pa.ArrowInvalid("offset overflow while concatenating arrays")
        return self.table.take(places)

    def filter(self, mask):
        return Narrow(self.table.filter(mask))


def test_rows_are_put_in_order_where_one_chunk_cannot_hold_them():
    rows = pa.table({"n": list(range(9))})
    places = np.array([4, 0, 8, 7, 1, 2, 6, 3, 5])
    assert taken(Narrow(rows), places)["n"].to_pylist() == places.tolist()
    assert taken(rows, places[:4])["n"].to_pylist() == [4, 0, 8, 7]


@pytest.mark.slow
def test_more_than_two_gibibytes_are_put_in_order():
    """Needs about 5 GB."""
    size = 1_200_000_000
    memory = pa.py_buffer(np.zeros(size, np.uint8))
    offsets = pa.py_buffer(np.array([0, size // 2, size], np.int32))
    values = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, memory])
    rows = pa.table(
        {"n": pa.chunked_array([[0, 1], [2, 3]]), "large": pa.chunked_array([values] * 2)}
    )
    assert taken(rows, np.array([3, 0, 2, 1]))["n"].to_pylist() == [3, 0, 2, 1]
