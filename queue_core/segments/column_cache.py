"""Cache decoded columns of waiting messages, which each firing scans.

Segments never change, so a column that was decoded and verified once stays valid: the cache keeps
it for the whole process, in bounded memory. It identifies a chunk by its checksum and not by its
name, so that it never returns a stale column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import pyarrow as pa

from queue_core.segments.lru_cache import LruCache
from queue_core.segments.reader import decode_all, read_table
from queue_core.values.model import Chunk, ReadPlan, SegmentRef
from queue_core.values.schema import COMPACTED

#: The most bytes of columns in the cache of a process.
CACHE_BYTES = 128 << 20

#: Checksum and length of a chunk, index and type of the column.
_Key: TypeAlias = "tuple[int, int, int, str]"


class ColumnCache:
    """Columns of chunks, a `Decoder`; evicts the least recently used. Safe for threads."""

    def __init__(self, capacity: int = CACHE_BYTES) -> None:
        self._columns: LruCache[_Key, pa.Array] = LruCache(capacity, lambda column: column.nbytes)

    def __len__(self) -> int:
        return len(self._columns)

    def __call__(
        self,
        segment: SegmentRef,
        chunk: Chunk,
        written: pa.Schema,
        names: Sequence[str],
        fetch: Callable[[], pa.Buffer],
    ) -> pa.RecordBatch:
        """Return the columns *names* of a chunk, and the `COMPACTED` columns after them."""
        own = len(written) - (len(COMPACTED) if segment.compacted else 0)
        indices = [at for at in range(len(written)) if at >= own or written.field(at).name in names]
        if not indices:
            # The segment has none of these columns; only the number of rows counts.
            return pa.record_batch([pa.nulls(chunk.rows)], [""])
        keys = [(chunk.checksum, chunk.length, at, str(written.field(at).type)) for at in indices]
        columns = [self._columns.get(key) for key in keys]
        if any(column is None for column in columns):
            batch = decode_all(segment, chunk, written, names, fetch)
            columns = [_copy(batch.column(at)) for at in indices]
            for key, column in zip(keys, columns, strict=True):
                self._columns.put(key, column)
        fields = [written.field(at) for at in indices]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


_cache = ColumnCache()


def read_columns(plan: ReadPlan, columns: Sequence[str]) -> pa.Table:
    """Return some columns of the messages of a plan, like `read_table`, through the cache."""
    return read_table(plan, columns, _cache)


def _copy(column: pa.Array) -> pa.Array:
    """Copy the values: a decoded column shares the memory of its whole chunk."""
    data = pa.record_batch([column], ["column"]).serialize()
    schema = pa.schema([pa.field("column", column.type)])
    return pa.ipc.read_record_batch(data, schema).column(0)
