"""Reading and writing take the same memory, however large the segment is."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from queue_core.ids import first_id
from queue_core.model import Part, ReadPlan, ScanTask, SegmentRef, Staged
from queue_core.rows import Rows
from queue_core.schema import serialize
from queue_core.segments.reader import read
from queue_core.segments.stager import CHUNK_BYTES, RUN_BYTES, Stager
from queue_core.segments.staging_spec import StagingSpec
from queue_core.segments.storage import Storage

SCHEMA = pa.schema([pa.field("key", pa.int64()), pa.field("payload", pa.binary())])


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, rows, 10_000):
        numbers = np.arange(start, start + 10_000)
        payload = pa.repeat(pa.scalar(b"x" * 100), len(numbers))
        yield pa.RecordBatch.from_arrays([pa.array(numbers), payload], schema=SCHEMA)


@contextmanager
def _peak() -> Iterator[list[int]]:
    """The most memory that Arrow holds at once within the block."""
    outer = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(outer)
    pa.set_memory_pool(pool)
    measured: list[int] = []
    try:
        yield measured
    finally:
        pa.set_memory_pool(outer)
        measured.append(pool.max_memory())


def _stage(folder: Path, rows: int, key: str | None) -> tuple[Staged, ...]:
    storage = Storage.open(str(folder))
    spec = StagingSpec(queue="q", schema=SCHEMA, schema_version=1, shards=8, key=key)
    stager = Stager(storage, spec)
    for batch in _batches(rows):
        stager.add(batch)
    return stager.finish()


def _reading(folder: Path, staged: Staged, rows: Rows) -> ReadPlan:
    firsts = np.cumsum([0, *(chunk.rows for chunk in staged.chunks)])[:-1].tolist()
    source = SegmentRef(
        segment_id=1,
        first_id=first_id(1),
        location=staged.location,
        data=staged.data,
        schema_version=1,
        chunks=tuple(zip(firsts, staged.chunks, strict=True)),
        loaded_at=0,
    )
    piece = ScanTask(
        queue="q",
        shard=0,
        segment=source,
        parts=(Part(rows=rows, attempts=0, fired_at=None),),
    )
    return ReadPlan(storage=str(folder), schema=serialize(SCHEMA), tasks=(piece,))


@pytest.mark.parametrize("key", [None, "key"])
def test_writing_takes_no_more_for_a_larger_segment(tmp_path: Path, key: str | None) -> None:
    peaks = []
    for rows in (400_000, 1_000_000):
        with _peak() as measured:
            staged = _stage(tmp_path, rows, key)
        assert sum(segment.rows for segment in staged) == rows
        peaks += measured
    assert peaks[1] < 1.2 * peaks[0]
    # What waits, its copy in one piece, and the same rows sorted.
    assert peaks[1] < 4 * RUN_BYTES


def test_reading_takes_no_more_for_a_larger_segment(tmp_path: Path) -> None:
    peaks = []
    for rows in (500_000, 1_000_000):
        (staged,) = _stage(tmp_path, rows, "key")
        reading = _reading(tmp_path, staged, Rows.span(0, rows))
        with _peak() as measured:
            assert sum(batch.num_rows for batch in read(reading)) == rows
        peaks += measured
    assert peaks[1] < 1.2 * peaks[0]
    assert peaks[1] < 4 * CHUNK_BYTES


def test_a_reading_task_fetches_only_the_chunks_of_its_rows(tmp_path: Path) -> None:
    (staged,) = _stage(tmp_path, 1_000_000, "key")
    first = staged.chunks[0]
    reading = _reading(tmp_path, staged, Rows.span(0, first.rows))
    # The rest of the file is not even there.
    path = tmp_path / str(staged.location)
    with path.open("r+b") as file:
        file.truncate(first.offset + first.length)
    assert sum(batch.num_rows for batch in read(reading)) == first.rows
