"""The column cache: decoded columns of chunks, within a bound."""

import numpy as np
import pyarrow as pa

from queue_core.segments.column_cache import ColumnCache
from queue_core.segments.format import inline
from queue_core.values.model import Chunk
from tests.factories import chunked, make_segment


def _memory_of(rows, most):
    """A memory, and how to ask it for columns of one chunk; how often the bytes were got."""
    data, chunks = inline(rows.to_batches())
    source = make_segment(data=data, chunks=chunked(chunks[:1]))
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
