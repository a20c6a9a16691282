"""Bunches of slices, without a catalog."""

import numpy as np
import pytest
from pyroaring import BitMap

from queue_core.catalog.slices.slice_batches import NULL, SliceBatch
from queue_core.values.ids import first_id


def batch(*of):
    """Slices, each a tuple of shard, position, first row, one past the last row, and a bitmap."""
    columns = {name: np.array([one[at] for one in of], np.int64) for at, name in _AT.items()}
    count = len(of)
    bitmaps = np.empty(count, np.object_)
    bitmaps[:] = [BitMap(one[4]).serialize() if len(one) > 4 else None for one in of]
    whole = np.empty(count, np.object_)
    same = ("queue_id", "magazine", "state")
    rest = ("count", "attempts", "deliveries", "consumer_id", "ticket", "moved_at", "due_at")
    return SliceBatch(
        id=np.arange(count),
        segment_id=np.arange(1, count + 1),
        bitmap=bitmaps,
        part=whole,
        **columns,
        **dict.fromkeys(same, np.zeros(count, np.int64)),
        **{name: np.full(count, NULL) for name in rest},
    )


_AT = {0: "shard", 1: "position", 2: "row_start", 3: "row_stop"}


def test_the_ids_of_rows_with_gaps_and_without():
    ids, of = batch((0, 0, 2, 5), (0, 9, 1, 6, [1, 3, 5]), (0, 20, 0, 1)).message_ids()
    first, second, third = (first_id(segment) for segment in (1, 2, 3))
    rows = [(first, 2), (first, 3), (first, 4), (second, 1), (second, 3), (second, 5), (third, 0)]
    assert ids.tolist() == [begin + row for begin, row in rows]
    assert of.tolist() == [0, 0, 0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("positions", "limit", "whole"),
    [
        ([(0, 0, 2), (0, 2, 4), (0, 4, 6)], 3, 3),
        ([(0, 0, 2), (0, 2, 4), (0, 4, 6)], 2, 2),
        # The third one begins before the second one ends.
        ([(0, 0, 2), (0, 2, 5), (0, 4, 6)], 2, 1),
        ([(0, 0, 9), (0, 2, 5), (0, 4, 6)], 2, 0),
        # Another shard begins.
        ([(0, 0, 9), (0, 2, 5), (1, 4, 6)], 2, 2),
        ([(0, 0, 9), (1, 2, 5), (1, 4, 6)], 2, 1),
    ],
)
def test_a_limit_does_not_part_slices_that_interleave(positions, limit, whole):
    of = [(shard, begin, 0, end - begin) for shard, begin, end in positions]
    assert batch(*of).whole(limit) == whole


def test_an_empty_bunch():
    none = batch((0, 0, 0, 1))[:0]
    assert (len(none), none.messages, none.by_shard(), none.whole(5)) == (0, 0, [], 0)
    assert [part.tolist() for part in none.message_ids()] == [[], []]
