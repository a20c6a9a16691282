"""What a look at waiting messages is made of: categories, heads of groups, what is remembered."""

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import BitMap

from queue_core.model import Chunk, SegmentRef
from queue_core.segments.categories import MOST, kinds
from queue_core.segments.column_cache import ColumnCache
from queue_core.segments.format import inline
from queue_core.selection.fifo_scan import heads
from queue_core.selection.match_cache import MatchCache


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


@pytest.mark.parametrize(
    ("groups", "busy", "found", "then"),
    [
        (["a", "b", "a", "c"], [], [0, 1, 3], ["a", "b", "c"]),
        (["a", "b", "a", "c"], ["a"], [1, 3], ["a", "b", "c"]),
        (["a", "a"], ["a", "b"], [], ["a", "b"]),
        ([], ["a"], [], ["a"]),
    ],
)
def test_the_head_of_a_group_is_the_first_one_of_one_that_is_not_busy(groups, busy, found, then):
    column = pa.chunked_array([pa.array(groups, pa.string())])
    firsts, known = heads(column, pa.array(busy, pa.string()))
    assert firsts.to_pylist() == found
    assert known.to_pylist() == then


def test_findings_add_up_and_what_was_not_asked_for_longest_is_forgotten():
    findings = MatchCache(most=10)
    findings.add("one", BitMap(range(4)), BitMap([1]))
    findings.add("two", BitMap(range(4)), BitMap())
    grown = findings.add("one", BitMap([7]), BitMap([7]))
    assert (set(grown.seen), set(grown.met)) == ({0, 1, 2, 3, 7}, {1, 7})
    findings.add("three", BitMap(range(5)), BitMap())
    assert not findings.of("two").seen
    assert findings.of("one") == grown


def _memory_of(rows, most):
    """A memory, and how to ask it for columns of one chunk; how often the bytes were got."""
    data, chunks = inline(rows.to_batches())
    source = SegmentRef(
        segment_id=1,
        first_id=0,
        location=None,
        data=data,
        schema_version=1,
        chunks=((0, chunks[0]),),
        loaded_at=0,
    )
    memory, got = ColumnCache(most), []

    def ask(*names, chunk: Chunk = chunks[0]):
        def fetch():
            got.append(names)
            return pa.py_buffer(data)

        return memory(source, chunk, rows.schema, names, fetch)

    return memory, ask, got


def test_a_column_is_read_once_and_holds_no_more_than_its_values():
    rows = pa.table({"n": range(1000), "text": ["x" * 50] * 1000})
    memory, ask, got = _memory_of(rows, 1 << 20)
    first = ask("n")
    assert first.column("n").equals(ask("n").column("n"))
    assert len(got) == 1
    assert first.column("n").buffers()[1].size < 10_000
    assert ask("n", "text").column("text")[999].as_py() == "x" * 50
    assert len(got) == 2
    assert len(memory) == 2


def test_a_memory_is_bounded():
    rows = pa.table({name: np.arange(1000) for name in "abcd"})
    memory, ask, got = _memory_of(rows, 20_000)
    for name in "abcd":
        ask(name)
    assert len(memory) == 2
    ask("d")
    assert len(got) == 4
    ask("a")
    assert len(got) == 5
