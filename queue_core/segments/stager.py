"""Stage rows as segments: sorted by shard, cut into chunks, written or inlined. No catalog.

Runs on executors as well as in plain processes. Memory is bounded: the stager collects rows up to
`RUN_BYTES`, sorts them by shard, and writes them as a run; a large segment has several runs. Rows
of one shard need no sorting: if many come at once, they are written at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace

import numpy as np
import pyarrow as pa

from queue_core.errors import IgnisError, PublicationRefused, StaleCheckpoint, StorageUnavailable
from queue_core.segments.format import SegmentWriter, inline
from queue_core.segments.sharder import SEVERAL, Parts, Sharder
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.column_roles import described
from queue_core.values.column_stats import stats_of
from queue_core.values.model import MAX_SEGMENT_ROWS, QueueInfo, Run, Staged
from queue_core.values.ranks import Ranking
from queue_core.values.rows import Numbers, Rows

#: Bytes of rows that are sorted and written at a time: the memory that a writing task needs.
RUN_BYTES = 32 << 20
#: Segments smaller than this are inlined into the catalog.
INLINE_BYTES = 64 << 10
#: The most bytes and rows of one chunk: the memory that a reading task needs.
CHUNK_BYTES = 4 << 20
CHUNK_ROWS = 1 << 16
#: Rows of one shard that come with this many bytes are written as they are.
THROUGH_BYTES = 512 << 10
#: If rows come in this many times more batches than chunks, they are joined before the cut.
MANY_BATCHES = 16


class Stager:
    """
    Takes record batches of the queue's schema; `finish` returns the staged segments.

    With *as_is*, the rows stay as they come: there is no key, and there are no statistics,
    categories and turns.
    """

    def __init__(
        self, storage: Storage, queue: QueueInfo, *, keep_order: bool = False, as_is: bool = False
    ) -> None:
        self._storage = storage
        self._queue = queue
        self._keep_order = keep_order
        settings = queue.settings
        #: Columns whose statistics each slice keeps.
        self._attributes = () if as_is else described(settings, queue.schema)
        #: Columns whose values get their own slices.
        self._categories = () if as_is else settings.categories
        #: The column whose values take turns.
        self._fair_by = None if as_is else settings.fair_by
        key = None if as_is else queue.key
        self._waiting = Sharder(queue.name, queue.schema, key, queue.shards)
        self._staged: list[Staged] = []
        self._open: _OpenSegment | None = None
        #: With *keep_order*: for each added row, its number over all segments.
        self.order: list[Numbers] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch of exactly the queue's schema; raises `SchemaMismatch` for its key."""
        for start in range(0, batch.num_rows, CHUNK_ROWS):
            rows = batch.slice(start, CHUNK_ROWS)
            if self._write_through(rows):
                continue
            self._waiting.add(rows)
            if self._waiting.bytes >= RUN_BYTES or self._waiting.rows >= MAX_SEGMENT_ROWS // 2:
                self.flush()

    @property
    def waiting(self) -> int:
        """How many bytes of rows wait to be written."""
        return self._waiting.bytes

    def flush(self) -> None:
        """Write the waiting rows now, as a run of their own."""
        if not self._waiting.rows:
            return
        segment = self._segment_for(self._waiting.rows)
        sorted_run, rankings = self._sort_waiting(segment.rows)
        segment.rankings += rankings
        for run in self._runs(sorted_run, segment.rows):
            segment.add_run(run)
        for _, shard_rows in sorted_run:
            for chunk in _cut(shard_rows):
                segment.write(chunk)

    def finish(self) -> tuple[Staged, ...]:
        """Write the waiting rows; return all segments, which are durable."""
        if self._open is None and self._waiting.rows > 0 and self._waiting.bytes < INLINE_BYTES:
            self._staged.append(self._inlined())
        else:
            self.flush()
            self._close_segment()
        return tuple(self._staged)

    def write(self, rows: pa.Table) -> tuple[Staged, ...]:
        """Add a whole table and `finish`; on failure, remove everything that was written."""
        try:
            for batch in rows.to_batches():
                self.add(batch)
            return self.finish()
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        """Remove the staged segments if possible."""
        if self._open is not None:
            with suppress(IgnisError):
                self._open.abandon()
            self._open = None
        remove_staged(self._storage, self._staged)
        self._staged.clear()

    def _inlined(self) -> Staged:
        memory = self._waiting.bytes
        sorted_run, rankings = self._sort_waiting(0)
        # The table is too small to be cut.
        data, chunks = inline(
            chunk for _, rows in sorted_run for chunk in rows.combine_chunks().to_batches()
        )
        return Staged(
            location=None,
            data=data,
            rows=sum(chunk.rows for chunk in chunks),
            bytes=max(len(data), memory),
            chunks=chunks,
            runs=self._runs(sorted_run, 0),
            schema_version=self._queue.schema_version,
            rankings=rankings,
        )

    def _write_through(self, rows: pa.RecordBatch) -> bool:
        """Write many rows of one shard at once, without a copy, if none wait; return whether."""
        # Values of other columns than the key decide how rows are staged.
        looks = self._attributes or self._categories or self._fair_by is not None
        if self._waiting.rows or looks or rows.nbytes < THROUGH_BYTES:
            return False
        shard = self._waiting.only_shard(rows)
        if shard == SEVERAL:
            return False
        segment = self._segment_for(rows.num_rows)
        segment.add_run(Run(shard=shard, start=segment.rows, stop=segment.rows + rows.num_rows))
        if self._keep_order:
            self.order.append(np.arange(rows.num_rows, dtype=np.int64) + self._rows)
        self._rows += rows.num_rows
        for chunk in _cut(pa.Table.from_batches([rows])):
            segment.write(chunk)
        return True

    def _segment_for(self, rows: int) -> _OpenSegment:
        """Return a segment that has room for some more rows."""
        if self._open is not None and self._open.rows + rows > MAX_SEGMENT_ROWS:
            self._close_segment()
        if self._open is None:
            faults.point("load.before_segment")
            self._open = _OpenSegment(self._storage, self._queue)
        return self._open

    def _close_segment(self) -> None:
        if self._open is not None:
            self._staged.append(self._open.close(self._queue.schema_version))
            self._open = None

    def _sort_waiting(self, first_row: int) -> tuple[Parts, tuple[Ranking, ...]]:
        """
        Take the waiting rows of each shard, in order of shards, to write them at *first_row*.

        In a fair queue, they are in the order of turns, and ranks describe it.
        """
        order = self._waiting.ranks() if self._keep_order else None
        rows = self._waiting.rows
        rankings: tuple[Ranking, ...] = ()
        taken = self._waiting.take()
        if self._fair_by is not None and rows:
            # Not at the top: most queues are not fair.
            from queue_core.segments.fair_order import arrange

            weights = self._queue.settings.fair_weights
            taken, numbers, ranking = arrange(taken, self._fair_by, weights, first_row)
            rankings, order = (ranking,), None if order is None else numbers[order]
        if order is not None:
            self.order.append(order + self._rows)
        self._rows += rows
        return taken, rankings

    def _runs(self, sorted_run: Parts, first_row: int) -> tuple[Run, ...]:
        runs: list[Run] = []
        for shard, rows in sorted_run:
            runs.extend(self._runs_of(shard, rows, first_row))
            first_row += rows.num_rows
        return tuple(runs)

    def _runs_of(self, shard: int | None, rows: pa.Table, first_row: int) -> Iterator[Run]:
        """Yield one run, or one for each combination of categories, whose rows interleave."""
        parts = kinds(rows, self._categories) if self._categories and rows.num_rows > 1 else ()
        if len(parts) <= 1:
            stats = stats_of(rows, self._attributes)
            yield Run(shard=shard, start=first_row, stop=first_row + rows.num_rows, stats=stats)
            return
        for numbers in parts:
            its = Rows.of_numbers(numbers + first_row)
            stats = stats_of(rows.take(numbers), self._attributes)
            yield Run(shard=shard, start=its.start, stop=its.stop, stats=stats, rows=its)


def remove_staged(storage: Storage, staged: Iterable[Staged]) -> None:
    """Remove the files of staged segments that have one; vacuum removes what this cannot."""
    # The caller raises the error that led to the removal, which must not be hidden.
    with suppress(StorageUnavailable):
        for segment in staged:
            if segment.location is not None:
                storage.remove(segment.location)


class removed_if_refused(AbstractContextManager[object]):
    """Removes segment files after errors that rule out their publication, as *others* do."""

    def __init__(
        self, storage: Storage, staged: Iterable[Staged], *others: type[Exception]
    ) -> None:
        self._storage = storage
        self._staged = staged
        self._others = others

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, self._others):
            remove_staged(self._storage, self._staged)
        elif isinstance(error, IgnisError):
            remove_refused(self._storage, self._staged, error)


def remove_refused(storage: Storage, staged: Iterable[Staged], error: IgnisError) -> None:
    """Remove the files of staged segments after an *error*, unless they may be published."""
    # These errors also refuse files that were published before, and an old batch.
    kept = (PublicationRefused, StaleCheckpoint)
    if not error.outcome_unknown and not isinstance(error, kept):
        remove_staged(storage, staged)


class _OpenSegment:
    """A segment file that is being written."""

    def __init__(self, storage: Storage, queue: QueueInfo) -> None:
        self.location = storage.new_location(queue.name)
        self.rows = self._memory = self._last_began = 0
        self.runs: list[Run] = []
        self.rankings: tuple[Ranking, ...] = ()
        with ExitStack() as stack:
            sink = stack.enter_context(storage.create(self.location))
            # This writes the header; if it fails, the storage removes the file.
            writer = SegmentWriter(sink, queue.schema, queue.settings.compression)
            self._writer = stack.enter_context(writer)
            self._stack = stack.pop_all()

    def add_run(self, run: Run) -> None:
        """Add a run of rows that come next, or lengthen the last one while it has few bytes."""
        last = self.runs[-1] if self.runs else None
        if last is not None and self._memory - self._last_began < RUN_BYTES:
            longer = replace(last, stop=run.stop)
            # Only if both are plain ranges of rows of one shard, without statistics.
            if run.stats is None and longer == replace(run, start=last.start):
                self.runs[-1] = longer
                return
        self.runs.append(run)
        self._last_began = self._memory

    def write(self, batch: pa.RecordBatch) -> None:
        try:
            self._writer.write(batch)
        except Exception as error:
            self._leave(error)
            raise
        faults.point("load.writing")
        self.rows += batch.num_rows
        self._memory += batch.nbytes

    def close(self, schema_version: int) -> Staged:
        self._stack.close()
        return Staged(
            location=self.location,
            data=None,
            rows=self.rows,
            bytes=max(self._writer.bytes, self._memory),
            chunks=tuple(self._writer.chunks),
            runs=tuple(self.runs),
            schema_version=schema_version,
            rankings=self.rankings,
        )

    def abandon(self) -> None:
        """Let the storage remove the unfinished file."""
        self._leave(Exception("abandoned"))

    def _leave(self, error: Exception) -> None:
        self._stack.__exit__(type(error), error, error.__traceback__)


def _cut(rows: pa.Table) -> Iterator[pa.RecordBatch]:
    """Cut rows into chunks within their bounds; copies only rows in many small batches."""
    per_row = max(rows.nbytes // max(rows.num_rows, 1), 1)
    most = max(min(CHUNK_ROWS, CHUNK_BYTES // per_row), 1)
    batches = rows.to_batches(max_chunksize=most)
    if len(batches) * most > MANY_BATCHES * rows.num_rows:
        batches = rows.combine_chunks().to_batches(max_chunksize=most)
    yield from (batch for batch in batches if batch.num_rows)


#: Rows that are written together are split into at most this many kinds; with more, not at all.
MOST = 64


def kinds(rows: pa.Table, columns: Sequence[str]) -> list[Numbers]:
    """
    Return the row numbers of each combination of values, in the order of their first rows.

    Each becomes a slice of its own, whose statistics describe all of its rows. So a selector finds
    these rows without reading any.
    """
    codes = np.zeros(rows.num_rows, dtype=np.int64)
    for name in columns:
        coded = rows.column(name).combine_chunks().dictionary_encode(null_encoding="encode")
        if len(coded.dictionary) > MOST:
            return [np.arange(rows.num_rows)]
        codes = codes * len(coded.dictionary) + coded.indices.to_numpy(zero_copy_only=False)
    _, firsts, codes = np.unique(codes, return_index=True, return_inverse=True)
    if len(firsts) > MOST:
        return [np.arange(rows.num_rows)]
    return [np.flatnonzero(codes == code) for code in np.argsort(firsts)]
