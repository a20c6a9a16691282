"""Reading takes the same memory for segments of any size, and fetches only needed chunks.

The column cache keeps decoded columns of chunks, within a bound.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from queue_core.segments.format import inline
from queue_core.segments.reader import GATHER_MEMORY, ColumnCache, read
from queue_core.segments.stager import CHUNK_BYTES
from queue_core.values.model import Chunk, Part, SegmentRef
from queue_core.values.rows import Rows
from tests.factories import chunked, make_rows, make_segment
from tests.unit.segments.large_segments import peak_memory, plan_of, stage


def test_reading_takes_no_more_for_a_larger_segment(tmp_path: Path) -> None:
    peaks = []
    for rows in (500_000, 1_000_000):
        (staged,) = stage(tmp_path, rows, "key")
        reading = plan_of(tmp_path, staged, Rows(0, rows))
        with peak_memory() as measured:
            assert sum(batch.num_rows for batch in read(reading)) == rows
        peaks += measured
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 4 * CHUNK_BYTES


def test_a_reading_task_fetches_only_the_chunks_of_its_rows(tmp_path: Path) -> None:
    (staged,) = stage(tmp_path, 1_000_000, "key")
    first = staged.chunks[0]
    reading = plan_of(tmp_path, staged, Rows(0, first.rows))
    # The rest of the file is not even there.
    path = tmp_path / str(staged.location)
    with path.open("r+b") as file:
        file.truncate(first.offset + first.length)
    assert sum(batch.num_rows for batch in read(reading)) == first.rows


def test_large_messages_are_read_chunk_by_chunk(tmp_path: Path) -> None:
    """Without a bound of bytes, all of them would be joined: 4,096 messages of any size."""
    (staged,) = stage(tmp_path, 64, None, 1 << 20)
    reading = plan_of(tmp_path, staged, Rows(0, 64))
    assert max(batch.nbytes for batch in read(reading)) <= CHUNK_BYTES


def test_few_rows_of_many_chunks_are_joined_and_release_the_chunks(tmp_path: Path) -> None:
    (staged,) = stage(tmp_path, 400_000, None)
    firsts = np.cumsum([0, *(chunk.rows for chunk in staged.chunks[:-1])]).tolist()
    whole = sum(chunk.length for chunk in staged.chunks)
    batches = list(read(plan_of(tmp_path, staged, make_rows(*firsts))))
    assert sum(batch.num_rows for batch in batches) == len(firsts)
    # A row keeps its chunk in memory until it is joined.
    assert whole / GATHER_MEMORY < len(batches) < len(firsts) / 4


def test_metadata_of_all_rows_is_made_once_for_all_chunks(tmp_path: Path) -> None:
    (staged,) = stage(tmp_path, 400_000, None)
    queues = {
        batch.column("_queue").buffers()[2].address
        for batch in read(plan_of(tmp_path, staged, Rows(0, 400_000)))
    }
    assert len(staged.chunks) > 5
    assert len(queues) == 1


def test_rows_that_are_joined_have_the_metadata_of_their_own_task(tmp_path: Path) -> None:
    (staged,) = stage(tmp_path, 1_000, None)
    (task,) = plan_of(tmp_path, staged, Rows(0, 1_000)).tasks
    parts = [
        (Part(rows=Rows(0, 3), attempts=0, fired_at=None),),
        (Part(rows=Rows(7, 9), attempts=2, fired_at=1_000_000),),
        (Part(rows=make_rows(20, 22), attempts=1, fired_at=2_000_000),),
        (
            Part(rows=make_rows(31, 33), attempts=5, fired_at=None),
            Part(rows=make_rows(32), attempts=6, fired_at=3_000_000),
        ),
    ]
    tasks = [
        replace(
            task, queue=f"queue {at % 2}", shard=at, parts=some, segment=_since(task.segment, at)
        )
        for at, some in enumerate(parts)
    ]
    plan = plan_of(tmp_path, staged, Rows(0, 1_000))

    (joined,) = read(replace(plan, tasks=tuple(tasks)))

    alone = [batch for one in tasks for batch in read(replace(plan, tasks=(one,)))]
    assert joined.to_pylist() == [row for batch in alone for row in batch.to_pylist()]
    assert joined.column("_attempt").to_pylist() == [0, 0, 0, 2, 2, 1, 1, 5, 6, 5]
    assert joined.column("_fired_at").null_count == 5
    assert joined.schema == alone[0].schema


def _since(segment: SegmentRef, seconds: int) -> SegmentRef:
    return replace(segment, loaded_at=seconds * 1_000_000)


def _memory_of(rows, most):
    """A memory, and how to ask it for columns of one chunk; how often the bytes were got."""
    data, chunks = inline(rows.to_batches())
    source = make_segment(data=data, chunks=chunked(chunks[:1]))
    memory, got = ColumnCache(most), []

    def ask(*names, chunk: Chunk = chunks[0]):
        def fetch():
            got.append(names)
            return pa.py_buffer(data)

        return memory.columns(source, chunk, rows.schema, names, fetch)

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
