"""Read the messages of a `ReadPlan` from segments, with their metadata. Needs no catalog.

Runs on executors as well as in plain processes, and reads one chunk at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache, partial, reduce
from operator import or_
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import DamagedSegment, StorageUnavailable
from queue_core.segments.format import decode
from queue_core.segments.lru_cache import LruCache
from queue_core.segments.pieces import Layout, Piece, joined, layout_of, repeated_in, without_kept
from queue_core.segments.storage import AT_ONCE, Storage
from queue_core.values.model import Chunk, ReadPlan, ScanTask, SegmentRef
from queue_core.values.plan import packed
from queue_core.values.schema import COMPACTED, deserialize, upgrade

#: Smaller batches are joined to batches of up to this many rows and bytes: a join copies, which
#: pays only for small ones.
GATHER_ROWS = 4096
GATHER_BYTES = 1 << 20
#: The most bytes that batches keep in memory until they are joined. Few rows of a chunk keep all of
#: it.
GATHER_MEMORY = 16 << 20
#: Batches that keep at most this many bytes are counted with all of them.
_SMALL_BYTES = 4 << 10
#: The most bytes of columns in the cache of a process.
CACHE_BYTES = 128 << 20
_log = logging.getLogger(__name__)

#: Checksum and length of a chunk, index and type of the column.
_Key: TypeAlias = "tuple[int, int, int, str]"


def read(
    plan: ReadPlan, columns: Sequence[str] | None = None, memory: ColumnCache | None = None
) -> Iterator[pa.RecordBatch]:
    """
    Yield the messages of a plan, in its order.

    *columns* selects and orders the columns of the queue and of `METADATA`; by default, all of
    them. *memory* keeps what is decoded. Reports damage in the storage, and raises
    `DamagedSegment`.
    """
    storage = Storage.open(plan.storage)
    _begin_trial(storage, plan)
    layout = layout_of(plan, columns)
    stored = {version: deserialize(data) for version, data in plan.schemas.items()}
    yield from _gathered(_read_tasks(storage, plan.tasks, layout, stored, memory), layout)


def read_table(
    plan: ReadPlan, columns: Sequence[str] | None = None, memory: ColumnCache | None = None
) -> pa.Table:
    """Return the messages of a plan as one table."""
    schema = layout_of(plan, columns).output
    return pa.Table.from_batches(read(plan, columns, memory), schema=schema)


def read_columns(plan: ReadPlan, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the messages of a plan, from the cache if they are there."""
    return read_table(plan, columns, _cache)


def _begin_trial(storage: Storage, plan: ReadPlan) -> None:
    """
    Note in the storage that suspects are about to reach a handler, if they can be read.

    A query that ends in the middle of a batch has perhaps called no handler, and executors have no
    catalog. The next life of the query counts a loss of suspects only if it finds this note
    (`queue_core.verbs.abandon`). Otherwise, a query that fails at each start for another reason
    would accuse innocent messages. The vacuum removes old notes.
    """
    # Not after the first messages were decoded: that can end the process, too.
    if plan.trial is None or not plan.tasks or not _is_there(storage, plan.tasks[0].segment):
        return
    try:
        storage.note_trial(plan.trial)
    except StorageUnavailable as error:
        # The messages can be handled all the same.
        _log.warning("the search for messages that kill cannot go on, because %s", error)


def _is_there(storage: Storage, segment: SegmentRef) -> bool:
    """Return whether a segment is there; raises `StorageUnavailable` if the storage is not."""
    if segment.data is not None:
        return True
    try:
        with storage.opened(segment.name):
            return True
    except DamagedSegment:
        # Whoever reads it reports that.
        return False


class _Size:
    """The bytes of some pieces. The exact size of one takes many times as long as its bound."""

    def __init__(self) -> None:
        self._bytes = 0
        #: The batches that are counted with their bounds so far.
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


def _gathered(pieces: Iterator[Piece], layout: Layout) -> Iterator[pa.RecordBatch]:
    """Join small pieces: messages that were loaded one by one need not be read one by one."""
    small: list[Piece] = []
    rows = memory = 0
    size = _Size()
    for piece in pieces:
        count, kept = len(piece.numbers), piece.own.get_total_buffer_size()
        rows, memory = rows + count, memory + kept
        size.add(piece.own, kept)
        if small and (rows > GATHER_ROWS or memory > GATHER_MEMORY or size.exceeds(GATHER_BYTES)):
            yield joined(small, layout)
            small, rows, memory, size = [], count, kept, _Size()
            size.add(piece.own, kept)
        small.append(piece)
        if rows > GATHER_ROWS or size.exceeds(GATHER_BYTES):
            yield joined(small, layout)
            small, rows, memory, size = [], 0, 0, _Size()
    if small:
        yield joined(small, layout)


def _read_tasks(
    storage: Storage,
    tasks: Sequence[ScanTask],
    layout: Layout,
    stored: dict[tuple[str, int], pa.Schema],
    memory: ColumnCache | None,
) -> Iterator[Piece]:
    def read_one(task: ScanTask) -> Iterator[Piece]:
        try:
            yield from _read_task(storage, task, layout, stored, memory)
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

    # Each task is a few round trips, so that some are read side by side.
    sizes = ((1, sum(chunk.length for _, chunk in task.segment.chunks)) for task in tasks)
    with ThreadPoolExecutor(min(AT_ONCE, len(tasks)), "ignis-reader") as pool:
        for some in packed(tasks, sizes, (4 * AT_ONCE, GATHER_MEMORY)):
            if len(some) == 1:
                yield from read_one(some[0])
            else:
                for pieces in pool.map(lambda task: [*read_one(task)], some):
                    yield from pieces


def _read_task(
    storage: Storage,
    task: ScanTask,
    layout: Layout,
    stored: dict[tuple[str, int], pa.Schema],
    memory: ColumnCache | None,
) -> Iterator[Piece]:
    rows = reduce(or_, (part.rows for part in task.parts))
    written = stored.get((task.queue, task.segment.schema_version), layout.queue)
    if task.segment.compacted:
        written = pa.schema([*written, *COMPACTED])
    chunks = task.segment.chunks
    most = min(len(rows), max((chunk.rows for _, chunk in chunks), default=0))
    repeated = cache(partial(repeated_in, task, layout, most))
    with chunk_reader(storage, task.segment.name, task.segment.data) as read_chunk:
        for first, chunk in chunks:
            wanted = rows.between(first, first + chunk.rows)
            if not wanted:
                continue
            fetch = partial(read_chunk, chunk)
            if memory is None:
                batch = decode(fetch(), chunk, written, task.segment.name)
            else:
                batch = memory.columns(task.segment, chunk, written, layout.names, fetch)
            numbers = wanted.numbers()
            if task.segment.compacted:
                batch = _at(batch, np.searchsorted(batch.columns[-1].to_numpy(), numbers))
            else:
                batch = _at(batch, numbers - np.uint32(first))
            kept: dict[str, pa.Array] = {}
            if task.segment.compacted:
                batch, kept = without_kept(batch)
            yield Piece(task, numbers, upgrade(batch, layout.own), kept, repeated)


@contextmanager
def chunk_reader(
    storage: Storage, name: str, data: bytes | None
) -> Iterator[Callable[[Chunk], pa.Buffer]]:
    """Provide a function that reads the bytes of a chunk of a segment, which may be in *data*."""
    if data is not None:
        whole = pa.py_buffer(data)
        # Not data.slice(), which raises if bytes are missing; decode() has a better message.
        yield lambda chunk: whole[chunk.offset : chunk.offset + chunk.length]
        return
    with ExitStack() as stack:
        # Opened on first use: chunks whose columns are cached need no file.
        handle = cache(lambda: stack.enter_context(storage.opened(name)))
        yield lambda chunk: storage.read(handle(), chunk.offset, chunk.length, name)


def _at(batch: pa.RecordBatch, indices: npt.NDArray[np.integer]) -> pa.RecordBatch:
    """Return the rows at ascending indices; copies only when there are gaps."""
    first, last = int(indices[0]), int(indices[-1])
    if last - first + 1 == len(indices):
        return batch.slice(first, len(indices))
    return batch.take(pa.array(indices))


class ColumnCache:
    """
    Decoded columns of chunks, which each firing scans; evicts the least recently used.

    Segments never change, so a column that was decoded and verified once stays valid, for the whole
    process. A chunk is known by its checksum and not by its name, so that no column is ever stale.
    Safe for threads.
    """

    def __init__(self, capacity: int = CACHE_BYTES) -> None:
        self._columns: LruCache[_Key, pa.Array] = LruCache(capacity, lambda column: column.nbytes)

    def __len__(self) -> int:
        return len(self._columns)

    def columns(
        self,
        segment: SegmentRef,
        chunk: Chunk,
        written: pa.Schema,
        names: Sequence[str],
        fetch: Callable[[], pa.Buffer],
    ) -> pa.RecordBatch:
        """
        Return the columns *names* of a chunk, and the `COMPACTED` columns after them.

        *written*: the schema with which it was written. *fetch* reads its bytes.
        """
        own = len(written) - (len(COMPACTED) if segment.compacted else 0)
        indices = [at for at in range(len(written)) if at >= own or written.field(at).name in names]
        if not indices:
            # The segment has none of these columns; only the number of rows counts.
            return pa.record_batch([pa.nulls(chunk.rows)], [""])
        keys = [(chunk.checksum, chunk.length, at, str(written.field(at).type)) for at in indices]
        columns = [self._columns.get(key) for key in keys]
        if any(column is None for column in columns):
            batch = decode(fetch(), chunk, written, segment.name)
            columns = [_copy(batch.column(at)) for at in indices]
            for key, column in zip(keys, columns, strict=True):
                self._columns.put(key, column)
        fields = [written.field(at) for at in indices]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


_cache = ColumnCache()


def _copy(column: pa.Array) -> pa.Array:
    """Copy the values: a decoded column shares the memory of its whole chunk."""
    data = pa.record_batch([column], ["column"]).serialize()
    schema = pa.schema([pa.field("column", column.type)])
    return pa.ipc.read_record_batch(data, schema).column(0)
