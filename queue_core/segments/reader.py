"""Messages from segments: which rows, in which order, with their metadata. Needs no catalog.

Runs on executors as well as in plain processes; reads one chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import DamagedSegment, StorageUnavailable
from queue_core.model import Chunk, Part, ReadPlan, ScanTask, SegmentRef
from queue_core.rows import RowNumbers, Rows
from queue_core.schema import COMPACTED, METADATA, TIMESTAMP, deserialize, upgrade
from queue_core.segments.format import decode
from queue_core.segments.storage import Storage

#: Batches of fewer rows are put together.
GATHER_ROWS = 4096

#: Gives the columns that have some names, at least, of a chunk of a source that was written with a
#: schema; the bytes are got when they are asked for.
Decode: TypeAlias = Callable[
    [SegmentRef, Chunk, pa.Schema, Sequence[str], Callable[[], pa.Buffer]], pa.RecordBatch
]


def whole(
    source: SegmentRef,
    chunk: Chunk,
    written: pa.Schema,
    names: Sequence[str],
    fetch: Callable[[], pa.Buffer],
) -> pa.RecordBatch:
    """All columns of a chunk."""
    return decode(fetch(), chunk, written, source.name)


def read(
    reading: ReadPlan, columns: Sequence[str] | None = None, decoded: Decode = whole
) -> Iterator[pa.RecordBatch]:
    """
    The messages of a reading, in its order.

    *columns* picks and orders the columns, of the queue's own and of `METADATA`; without it they
    are all there. Raises `DamagedSegment` after having left word of it in the storage.
    """
    storage = Storage.open(reading.storage)
    schema = deserialize(reading.schema)
    stored = {version: deserialize(data) for version, data in reading.schemas.items()}
    names = list(columns) if columns is not None else [*schema.names, *METADATA.names]
    yield from _gathered(_read_pieces(storage, reading.tasks, schema, stored, names, decoded))


def read_table(
    reading: ReadPlan, columns: Sequence[str] | None = None, decoded: Decode = whole
) -> pa.Table:
    """The messages of a reading as one table."""
    schema = output_schema(deserialize(reading.schema), columns)
    return pa.Table.from_batches(read(reading, columns, decoded), schema=schema)


def output_schema(schema: pa.Schema, columns: Sequence[str] | None = None) -> pa.Schema:
    """The schema of what `read` gives for a queue's schema."""
    whole = pa.schema([*schema, *METADATA])
    return whole if columns is None else pa.schema([whole.field(name) for name in columns])


def _gathered(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Put small batches together: what is loaded message by message is not read so."""
    small: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        if small and rows + batch.num_rows > GATHER_ROWS:
            yield _joined(small)
            small, rows = [], 0
        if batch.num_rows > GATHER_ROWS:
            yield batch
        else:
            small.append(batch)
            rows += batch.num_rows
    if small:
        yield _joined(small)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _read_pieces(
    storage: Storage,
    pieces: Sequence[ScanTask],
    schema: pa.Schema,
    stored: dict[tuple[str, int], pa.Schema],
    names: list[str],
    decoded: Decode,
) -> Iterator[pa.RecordBatch]:
    for piece in pieces:
        try:
            yield from _read_piece(storage, piece, schema, stored, names, decoded)
        except DamagedSegment as error:
            # What is wrong must be told, also where no word of it can be left.
            with suppress(StorageUnavailable):
                storage.report_damage(piece.segment.name, str(error))
            raise


def _read_piece(
    storage: Storage,
    piece: ScanTask,
    schema: pa.Schema,
    stored: dict[tuple[str, int], pa.Schema],
    names: list[str],
    decoded: Decode,
) -> Iterator[pa.RecordBatch]:
    rows = _union(piece.parts)
    written = stored.get((piece.queue, piece.segment.schema_version), schema)
    if piece.segment.compacted:
        written = pa.schema([*written, *COMPACTED])
    with _chunk_reader(storage, piece.segment) as read_chunk:
        for first, chunk in piece.segment.chunks:
            wanted = rows.between(first, first + chunk.rows)
            if not wanted:
                continue
            batch = decoded(piece.segment, chunk, written, names, partial(read_chunk, chunk))
            numbers = wanted.numbers()
            if piece.segment.compacted:
                batch = _at(batch, np.searchsorted(batch.columns[-1].to_numpy(), numbers))
            else:
                batch = _at(batch, numbers - np.uint32(first))
            yield _assemble(batch, schema, piece, numbers, names)


@contextmanager
def _chunk_reader(storage: Storage, source: SegmentRef) -> Iterator[Callable[[Chunk], pa.Buffer]]:
    """How to get at the bytes of a segment's chunks."""
    if source.data is not None:
        data = pa.py_buffer(source.data)
        # Not data.slice(), which raises where bytes are missing; decode() says so better.
        yield lambda chunk: data[chunk.offset : chunk.offset + chunk.length]
        return
    with ExitStack() as stack:
        # Not before it is needed: what is known by heart is not opened.
        handle = cache(lambda: stack.enter_context(storage.opened(source.name)))
        yield lambda chunk: storage.read(handle(), chunk.offset, chunk.length, source.name)


def _at(batch: pa.RecordBatch, places: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """The rows at some places, in ascending order; copied only when there are gaps."""
    first, last = int(places[0]), int(places[-1])
    if last - first + 1 == len(places):
        return batch.slice(first, len(places))
    return batch.take(pa.array(places))


def _assemble(
    batch: pa.RecordBatch, schema: pa.Schema, piece: ScanTask, numbers: RowNumbers, names: list[str]
) -> pa.RecordBatch:
    kept: dict[str, pa.Array] = {}
    if piece.segment.compacted:
        batch, kept = _without_kept(batch)
    batch = upgrade(batch, pa.schema([field for field in schema if field.name in names]))
    columns = []
    for name in names:
        if name in kept:
            columns.append(kept[name])
        elif name in METADATA.names:
            columns.append(_METADATA_COLUMNS[name](piece, numbers))
        else:
            columns.append(batch.column(name))
    fields = [METADATA.field(n) if n in METADATA.names else batch.schema.field(n) for n in names]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _without_kept(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """The queue's own columns of a compacted segment, and which messages its rows are."""
    own = batch.num_columns - len(COMPACTED)
    kept = dict(zip(COMPACTED.names, batch.columns[own:], strict=True))
    if not own:
        # All that is asked for came later; only the rows have to be there.
        return pa.record_batch([pa.nulls(batch.num_rows)], [""]), kept
    fields = [batch.schema.field(index) for index in range(own)]
    queues = pa.RecordBatch.from_arrays(batch.columns[:own], schema=pa.schema(fields))
    return queues, {name: kept[name] for name in kept if name in METADATA.names}


def _ids(piece: ScanTask, numbers: RowNumbers) -> pa.Array:
    return pa.array(numbers.astype(np.int64) + piece.segment.first_id)


def _repeat(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _attempts(piece: ScanTask, numbers: RowNumbers) -> pa.Array:
    if len(piece.parts) == 1:
        return _repeat(piece.parts[0].attempts, pa.int32(), len(numbers))
    values = np.zeros(len(numbers), dtype=np.int32)
    for part, places in _places(piece.parts, numbers):
        values[places] = part.attempts
    return pa.array(values)


def _fired_at(piece: ScanTask, numbers: RowNumbers) -> pa.Array:
    if len(piece.parts) == 1:
        return _repeat(piece.parts[0].fired_at, TIMESTAMP, len(numbers))
    values = np.zeros(len(numbers), dtype=np.int64)
    unknown = np.ones(len(numbers), dtype=np.bool_)
    for part, places in _places(piece.parts, numbers):
        if part.fired_at is not None:
            values[places] = part.fired_at
            unknown[places] = False
    return pa.array(values, mask=unknown).cast(TIMESTAMP)


def _places(
    parts: tuple[Part, ...], numbers: RowNumbers
) -> Iterator[tuple[Part, np.ndarray[tuple[int], np.dtype[np.intp]]]]:
    """For each part, where its rows stand among *numbers*."""
    for part in parts:
        rows = part.rows.between(int(numbers[0]), int(numbers[-1]) + 1)
        yield part, np.searchsorted(numbers, rows.numbers())


def _union(parts: tuple[Part, ...]) -> Rows:
    rows = parts[0].rows
    for part in parts[1:]:
        rows = rows | part.rows
    return rows


_METADATA_COLUMNS = {
    "_message_id": _ids,
    "_queue": lambda piece, numbers: _repeat(piece.queue, pa.string(), len(numbers)),
    "_shard": lambda piece, numbers: _repeat(piece.shard, pa.int32(), len(numbers)),
    "_attempt": _attempts,
    "_loaded_at": lambda piece, numbers: _repeat(piece.segment.loaded_at, TIMESTAMP, len(numbers)),
    "_fired_at": _fired_at,
}
