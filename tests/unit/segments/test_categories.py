"""Categories: rows are told apart by the values of a few columns."""

import pyarrow as pa

from queue_core.segments.categories import MOST, kinds


def test_rows_are_told_apart_by_every_combination_of_values():
    rows = pa.table({"a": ["x", "y", "x", None, "y"], "b": [1, 1, 2, 1, 1]})
    assert [found.tolist() for found in kinds(rows, ["a", "b"])] == [[0], [1, 4], [2], [3]]
    assert [found.tolist() for found in kinds(rows, ["b"])] == [[0, 1, 3, 4], [2]]


def test_more_kinds_than_are_told_apart_are_left_together():
    rows = pa.table({"a": range(MOST + 1), "b": [n % 9 for n in range(MOST + 1)]})
    assert [len(found) for found in kinds(rows, ["a"])] == [MOST + 1]
    rows = rows.slice(0, MOST)
    assert len(kinds(rows, ["a"])) == MOST
    assert len(kinds(rows.take([*range(MOST), 0]), ["a"])[0]) == 2
