"""Write and read large segments, and measure the memory of it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from queue_core.segments.stager import Stager
from queue_core.segments.storage import Storage
from queue_core.values.model import Part, ReadPlan, ScanTask, Staged
from queue_core.values.rows import Rows
from queue_core.values.schema import serialize
from tests.factories import chunked, make_info, make_segment

SCHEMA = pa.schema([pa.field("key", pa.int64()), pa.field("payload", pa.binary())])


def batches(rows: int, payload_bytes: int = 100) -> Iterator[pa.RecordBatch]:
    at_once = min(1_000_000 // payload_bytes, rows) or 1
    for start in range(0, rows, at_once):
        numbers = np.arange(start, start + at_once)
        payload = pa.repeat(pa.scalar(b"x" * payload_bytes), len(numbers))
        yield pa.RecordBatch.from_arrays([pa.array(numbers), payload], schema=SCHEMA)


@contextmanager
def peak_memory() -> Iterator[list[int]]:
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


def stage(folder: Path, rows: int, key: str | None, payload_bytes: int = 100) -> tuple[Staged, ...]:
    storage = Storage.open(str(folder))
    stager = Stager(storage, make_info(SCHEMA, key, shards=8))
    for batch in batches(rows, payload_bytes):
        stager.add(batch)
    return stager.finish()


def plan_of(folder: Path, staged: Staged, rows: Rows) -> ReadPlan:
    chunks = chunked(staged.chunks)
    source = make_segment(location=staged.location, data=staged.data, chunks=chunks)
    piece = ScanTask(
        queue="q",
        shard=0,
        segment=source,
        parts=(Part(rows=rows, attempts=0, fired_at=None),),
    )
    return ReadPlan(storage=str(folder), schema=serialize(SCHEMA), tasks=(piece,))
