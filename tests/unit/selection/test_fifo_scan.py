"""FIFO scans: the heads of groups."""

import pyarrow as pa
import pytest

from queue_core.selection.fifo_scan import heads


@pytest.mark.parametrize(
    ("groups", "in_flight", "found", "then"),
    [
        (["a", "b", "a", "c"], [], [0, 1, 3], ["a", "b", "c"]),
        (["a", "b", "a", "c"], ["a"], [1, 3], ["a", "b", "c"]),
        (["a", "a"], ["a", "b"], [], ["a", "b"]),
        ([], ["a"], [], ["a"]),
    ],
)
def test_a_head_is_the_first_message_of_a_group_without_one_in_flight(
    groups, in_flight, found, then
):
    column = pa.chunked_array([pa.array(groups, pa.string())])
    firsts, known = heads(column, pa.array(in_flight, pa.string()))
    assert firsts.to_pylist() == found
    assert known.to_pylist() == then
