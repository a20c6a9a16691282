"""Read the messages of a `ReadPlan` from segments, with their metadata. Needs no catalog.

Runs on executors as well as in plain processes, and reads one chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial, reduce
from operator import or_
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import DamagedSegment, StorageUnavailable
from queue_core.segments import trials
from queue_core.segments.format import decode
from queue_core.segments.storage import AT_ONCE, Storage
from queue_core.values.model import Chunk, Part, ReadPlan, ScanTask, SegmentRef
from queue_core.values.rows import RowNumbers
from queue_core.values.schema import (
    COMPACTED,
    METADATA,
    TIMESTAMP,
    deserialize,
    output_schema,
    upgrade,
)

#: Smaller batches are joined to batches of up to this many rows and bytes: a join copies, which
#: pays only for small ones.
GATHER_ROWS = 4096
GATHER_BYTES = 1 << 20
#: The most bytes that batches keep in memory until they are joined. Few rows of a chunk keep all of
#: it.
GATHER_MEMORY = 16 << 20
#: Batches that keep at most this many bytes are counted with all of them.
_SMALL_BYTES = 4 << 10


class Decoder(Protocol):
    """Turns the bytes of a chunk into a record batch."""

    def __call__(
        self,
        segment: SegmentRef,
        chunk: Chunk,
        written: pa.Schema,
        names: Sequence[str],
        fetch: Callable[[], pa.Buffer],
    ) -> pa.RecordBatch:
        """
        Return the columns *names* of a chunk, and possibly others.

        *written* is the schema with which the chunk was written; *fetch* reads its bytes.
        """


def decode_all(
    segment: SegmentRef,
    chunk: Chunk,
    written: pa.Schema,
    names: Sequence[str],
    fetch: Callable[[], pa.Buffer],
) -> pa.RecordBatch:
    """Return all columns of a chunk."""
    return decode(fetch(), chunk, written, segment.name)


def read(
    plan: ReadPlan, columns: Sequence[str] | None = None, decoder: Decoder = decode_all
) -> Iterator[pa.RecordBatch]:
    """
    Yield the messages of a plan, in its order.

    *columns* selects and orders the columns of the queue and of `METADATA`; by default, all of
    them. Reports damage in the storage, and raises `DamagedSegment`.
    """
    storage = Storage.open(plan.storage)
    trials.begin(storage, plan)
    layout = _layout(plan, columns)
    stored = {version: deserialize(data) for version, data in plan.schemas.items()}
    yield from _gathered(_read_tasks(storage, plan.tasks, layout, stored, decoder), layout)


def read_table(
    plan: ReadPlan, columns: Sequence[str] | None = None, decoder: Decoder = decode_all
) -> pa.Table:
    """Return the messages of a plan as one table."""
    schema = _layout(plan, columns).output
    return pa.Table.from_batches(read(plan, columns, decoder), schema=schema)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The columns of the batches, worked out once: a plan can have many small chunks."""

    #: All columns of the queue, as they are now.
    queue: pa.Schema
    #: Those of them that are read.
    own: pa.Schema
    #: The columns that are returned.
    output: pa.Schema
    names: list[str]
    #: The names of the returned columns that are the same in all rows of a part.
    repeated: list[str]


def _layout(plan: ReadPlan, columns: Sequence[str] | None) -> _Layout:
    return _layout_of(plan.schema, None if columns is None else tuple(columns))


# A consumer reads many small plans, of the same columns.
@lru_cache(maxsize=64)
def _layout_of(schema: bytes, columns: tuple[str, ...] | None) -> _Layout:
    queue = deserialize(schema)
    output = output_schema(queue, columns)
    names: list[str] = output.names
    own = pa.schema([field for field in queue if field.name in names])
    return _Layout(queue, own, output, names, [n for n in names if n in _OF_TASKS])


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one chunk, and what their metadata are made of."""

    task: ScanTask
    numbers: RowNumbers
    #: The queue's columns that are read.
    own: pa.RecordBatch
    #: Metadata that a compacted segment has kept.
    kept: dict[str, pa.Array]
    #: Returns the metadata that all rows of the task share, for as many rows at least.
    repeated: Callable[[], dict[str, pa.Array]]


class _Size:
    """The bytes of some pieces. The exact size of one takes many times as long as its bound."""

    def __init__(self) -> None:
        self._bytes = 0
        #: Those of which only a bound is counted.
        self._unsure: list[tuple[pa.RecordBatch, int]] = []

    def add(self, batch: pa.RecordBatch, bound: int) -> None:
        """Add a batch, of which *bound* bytes are kept in memory."""
        self._bytes += bound
        if bound > _SMALL_BYTES:
            self._unsure.append((batch, bound))

    def exceeds(self, limit: int) -> bool:
        """Return whether all have more bytes than a limit."""
        if self._bytes > limit and self._unsure:
            self._bytes += sum(batch.nbytes - bound for batch, bound in self._unsure)
            self._unsure = []
        return self._bytes > limit


def _gathered(pieces: Iterator[_Piece], layout: _Layout) -> Iterator[pa.RecordBatch]:
    """Join small pieces: messages that were loaded one by one need not be read one by one."""
    small: list[_Piece] = []
    rows = memory = 0
    size = _Size()
    for piece in pieces:
        count, kept = len(piece.numbers), piece.own.get_total_buffer_size()
        rows, memory = rows + count, memory + kept
        size.add(piece.own, kept)
        if small and (rows > GATHER_ROWS or memory > GATHER_MEMORY or size.exceeds(GATHER_BYTES)):
            yield _joined(small, layout)
            small, rows, memory, size = [], count, kept, _Size()
            size.add(piece.own, kept)
        small.append(piece)
        if rows > GATHER_ROWS or size.exceeds(GATHER_BYTES):
            yield _joined(small, layout)
            small, rows, memory, size = [], 0, 0, _Size()
    if small:
        yield _joined(small, layout)


def _joined(pieces: list[_Piece], layout: _Layout) -> pa.RecordBatch:
    """Return the rows of some pieces with their metadata."""
    if len(pieces) == 1:
        return _assemble(pieces[0], layout)
    counts = [len(piece.numbers) for piece in pieces]
    own: dict[str, pa.Array] = {}
    if len(layout.own):
        joined = pa.concat_batches([piece.own for piece in pieces])
        own = dict(zip(layout.own.names, joined.columns, strict=True))
    columns = []
    for name in layout.names:
        if name in own:
            columns.append(own[name])
        elif name not in _OF_TASKS or not all(_is_shared(name, piece) for piece in pieces):
            columns.append(pa.concat_arrays([_metadata(name, piece) for piece in pieces]))
        else:
            # To make one array takes far less time than to make one for each piece.
            values = [_OF_TASKS[name](piece.task) for piece in pieces]
            columns.append(_repeat(values, counts, METADATA.field(name).type))
    return pa.RecordBatch.from_arrays(columns, schema=layout.output)


def _repeat(values: list[Any], counts: list[int], kind: pa.DataType) -> pa.Array:
    """Return each value as often as its count says."""
    first = values[0]
    if all(value == first for value in values):
        return pa.repeat(pa.scalar(first, kind), sum(counts))
    if pa.types.is_string(kind) or None in values:
        each = zip(values, counts, strict=True)
        return pa.concat_arrays([pa.repeat(pa.scalar(value, kind), n) for value, n in each])
    numbers = np.repeat(np.array(values, np.int64), counts)
    return pa.array(numbers).cast(kind)


def _read_tasks(
    storage: Storage,
    tasks: Sequence[ScanTask],
    layout: _Layout,
    stored: dict[tuple[str, int], pa.Schema],
    decoder: Decoder,
) -> Iterator[_Piece]:
    def read_one(task: ScanTask) -> Iterator[_Piece]:
        try:
            yield from _read_task(storage, task, layout, stored, decoder)
        except DamagedSegment as error:
            # The damage must be raised even if it cannot be reported.
            with suppress(StorageUnavailable):
                storage.report_damage(task.segment.name, str(error))
            raise

    if storage.folder is not None or len(tasks) < 2:
        for task in tasks:
            yield from read_one(task)
        return
    # Not at the top: only servers need it.
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(AT_ONCE, len(tasks)), "ignis-reader") as pool:
        for some in _side_by_side(tasks):
            if len(some) == 1:
                yield from read_one(some[0])
            else:
                for pieces in pool.map(lambda task: [*read_one(task)], some):
                    yield from pieces


def _side_by_side(tasks: Sequence[ScanTask]) -> Iterator[list[ScanTask]]:
    """Divide tasks into those that are read side by side: each is a few round trips."""
    some: list[ScanTask] = []
    memory = 0
    for task in tasks:
        size = sum(chunk.length for _, chunk in task.segment.chunks)
        if some and (len(some) == 4 * AT_ONCE or memory + size > GATHER_MEMORY):
            yield some
            some, memory = [], 0
        some.append(task)
        memory += size
    yield some


def _read_task(
    storage: Storage,
    task: ScanTask,
    layout: _Layout,
    stored: dict[tuple[str, int], pa.Schema],
    decoder: Decoder,
) -> Iterator[_Piece]:
    rows = reduce(or_, (part.rows for part in task.parts))
    written = stored.get((task.queue, task.segment.schema_version), layout.queue)
    if task.segment.compacted:
        written = pa.schema([*written, *COMPACTED])
    chunks = task.segment.chunks
    most = min(len(rows), max((chunk.rows for _, chunk in chunks), default=0))
    repeated = cache(partial(_repeated, task, layout, most))
    with _chunk_reader(storage, task.segment) as read_chunk:
        for first, chunk in chunks:
            wanted = rows.between(first, first + chunk.rows)
            if not wanted:
                continue
            batch = decoder(task.segment, chunk, written, layout.names, partial(read_chunk, chunk))
            numbers = wanted.numbers()
            if task.segment.compacted:
                batch = _at(batch, np.searchsorted(batch.columns[-1].to_numpy(), numbers))
            else:
                batch = _at(batch, numbers - np.uint32(first))
            kept: dict[str, pa.Array] = {}
            if task.segment.compacted:
                batch, kept = _without_kept(batch)
            yield _Piece(task, numbers, upgrade(batch, layout.own), kept, repeated)


@contextmanager
def _chunk_reader(storage: Storage, segment: SegmentRef) -> Iterator[Callable[[Chunk], pa.Buffer]]:
    """Provide a function that reads the bytes of a chunk of a segment."""
    if segment.data is not None:
        data = pa.py_buffer(segment.data)
        # Not data.slice(), which raises if bytes are missing; decode() has a better message.
        yield lambda chunk: data[chunk.offset : chunk.offset + chunk.length]
        return
    with ExitStack() as stack:
        # Opened on first use: chunks that a decoder has cached need no file.
        handle = cache(lambda: stack.enter_context(storage.opened(segment.name)))
        yield lambda chunk: storage.read(handle(), chunk.offset, chunk.length, segment.name)


def _at(batch: pa.RecordBatch, indices: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Return the rows at ascending indices; copies only when there are gaps."""
    first, last = int(indices[0]), int(indices[-1])
    if last - first + 1 == len(indices):
        return batch.slice(first, len(indices))
    return batch.take(pa.array(indices))


def _is_shared(name: str, piece: _Piece) -> bool:
    """Return whether all rows of a piece have the same value."""
    return name not in piece.kept and (len(piece.task.parts) == 1 or name not in _OF_PARTS)


def _repeated(task: ScanTask, layout: _Layout, count: int) -> dict[str, pa.Array]:
    """Return the metadata that all rows of a task share, *count* times."""
    return {
        name: pa.repeat(pa.scalar(_OF_TASKS[name](task), METADATA.field(name).type), count)
        for name in layout.repeated
        if len(task.parts) == 1 or name not in _OF_PARTS
    }


def _assemble(piece: _Piece, layout: _Layout) -> pa.RecordBatch:
    columns = [
        _metadata(name, piece) if name in _METADATA else piece.own.column(name)
        for name in layout.names
    ]
    return pa.RecordBatch.from_arrays(columns, schema=layout.output)


def _metadata(name: str, piece: _Piece) -> pa.Array:
    if name in piece.kept:
        return piece.kept[name]
    if name in _OF_TASKS and _is_shared(name, piece):
        return piece.repeated()[name].slice(0, len(piece.numbers))
    return _OF_ROWS[name](piece.task, piece.numbers)


def _without_kept(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[str, pa.Array]]:
    """Split a compacted segment's batch into the queue's columns and the kept `METADATA`."""
    own = batch.num_columns - len(COMPACTED)
    kept = dict(zip(COMPACTED.names, batch.columns[own:], strict=True))
    if not own:
        # All requested columns were added later; only the number of rows counts.
        return pa.record_batch([pa.nulls(batch.num_rows)], [""]), kept
    fields = [batch.schema.field(index) for index in range(own)]
    queues = pa.RecordBatch.from_arrays(batch.columns[:own], schema=pa.schema(fields))
    return queues, {name: kept[name] for name in kept if name in METADATA.names}


def _ids(task: ScanTask, numbers: RowNumbers) -> pa.Array:
    return pa.array(numbers.astype(np.int64) + task.segment.first_id)


def _attempts(task: ScanTask, numbers: RowNumbers) -> pa.Array:
    values = np.zeros(len(numbers), dtype=np.int32)
    for part, indices in _indices(task.parts, numbers):
        values[indices] = part.attempts
    return pa.array(values)


def _fired_at(task: ScanTask, numbers: RowNumbers) -> pa.Array:
    values = np.zeros(len(numbers), dtype=np.int64)
    unknown = np.ones(len(numbers), dtype=np.bool_)
    for part, indices in _indices(task.parts, numbers):
        if part.fired_at is not None:
            values[indices] = part.fired_at
            unknown[indices] = False
    return pa.array(values, mask=unknown).cast(TIMESTAMP)


def _indices(
    parts: tuple[Part, ...], numbers: RowNumbers
) -> Iterator[tuple[Part, np.ndarray[tuple[int], np.dtype[np.intp]]]]:
    """Yield each part with the indices of its rows among *numbers*."""
    for part in parts:
        rows = part.rows.between(int(numbers[0]), int(numbers[-1]) + 1)
        yield part, np.searchsorted(numbers, rows.numbers())


#: Metadata that differs between the parts of a task.
_OF_PARTS = {"_attempt": _attempts, "_fired_at": _fired_at}
#: Metadata that may differ between the rows of a task.
_OF_ROWS = {"_message_id": _ids, **_OF_PARTS}
#: Metadata that is one value for all rows of a task, or of a part.
_OF_TASKS: dict[str, Callable[[ScanTask], Any]] = {
    "_queue": lambda task: task.queue,
    "_shard": lambda task: task.shard,
    "_attempt": lambda task: task.parts[0].attempts,
    "_loaded_at": lambda task: task.segment.loaded_at,
    "_fired_at": lambda task: task.parts[0].fired_at,
}
_METADATA = frozenset(METADATA.names)
