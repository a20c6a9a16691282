"""Reading takes the same memory for segments of any size, and fetches only needed chunks."""

from pathlib import Path

import numpy as np

from queue_core.rows import Rows
from queue_core.segments.reader import GATHER_MEMORY, read
from queue_core.segments.stager import CHUNK_BYTES
from tests.factories import make_rows
from tests.unit.segments.large_segments import peak_memory, plan_of, stage


def test_reading_takes_no_more_for_a_larger_segment(tmp_path: Path) -> None:
    peaks = []
    for rows in (500_000, 1_000_000):
        (staged,) = stage(tmp_path, rows, "key")
        reading = plan_of(tmp_path, staged, Rows.span(0, rows))
        with peak_memory() as measured:
            assert sum(batch.num_rows for batch in read(reading)) == rows
        peaks += measured
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 4 * CHUNK_BYTES


def test_a_reading_task_fetches_only_the_chunks_of_its_rows(tmp_path: Path) -> None:
    (staged,) = stage(tmp_path, 1_000_000, "key")
    first = staged.chunks[0]
    reading = plan_of(tmp_path, staged, Rows.span(0, first.rows))
    # The rest of the file is not even there.
    path = tmp_path / str(staged.location)
    with path.open("r+b") as file:
        file.truncate(first.offset + first.length)
    assert sum(batch.num_rows for batch in read(reading)) == first.rows


def test_large_messages_are_read_chunk_by_chunk(tmp_path: Path) -> None:
    """Without a bound of bytes, all of them would be joined: 4,096 messages of any size."""
    (staged,) = stage(tmp_path, 64, None, 1 << 20)
    reading = plan_of(tmp_path, staged, Rows.span(0, 64))
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
        for batch in read(plan_of(tmp_path, staged, Rows.span(0, 400_000)))
    }
    assert len(staged.chunks) > 5
    assert len(queues) == 1
