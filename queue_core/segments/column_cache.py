"""Glances: a few columns of messages that wait, looked at again for one firing after the other.

Segments never change, so what was decoded and verified once is kept in mind: column by column of
each chunk, for the whole process, in bounded memory. A chunk is known by its checksum, not by its
name, so that nothing stale is ever taken for what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from queue_core.model import Chunk, ReadPlan, SegmentRef
from queue_core.schema import COMPACTED
from queue_core.segments.lru_cache import LruCache
from queue_core.segments.reader import read_table, whole

#: Bytes of columns that a process keeps in mind.
MEMORY_BYTES = 128 << 20

#: A chunk by its checksum and its length, and a column of it by where it stands and its type.
_Key: TypeAlias = "tuple[int, int, int, str]"


class ColumnCache:
    """Columns of chunks; what was not asked for longest is forgotten first. Safe for threads."""

    def __init__(self, bytes: int = MEMORY_BYTES) -> None:
        self._columns: LruCache[_Key, pa.Array] = LruCache(bytes, lambda column: column.nbytes)

    def __len__(self) -> int:
        return len(self._columns)

    def decoded(
        self,
        source: SegmentRef,
        chunk: Chunk,
        written: pa.Schema,
        names: Sequence[str],
        fetch: Callable[[], pa.Buffer],
    ) -> pa.RecordBatch:
        """The columns of a chunk that have some names, and what compaction has put behind them."""
        own = len(written) - (len(COMPACTED) if source.compacted else 0)
        wanted = [at for at in range(len(written)) if at >= own or written.field(at).name in names]
        if not wanted:
            # All that is asked for is known without the segment; only the rows have to be there.
            return pa.record_batch([pa.nulls(chunk.rows)], [""])
        keys = [(chunk.checksum, chunk.length, at, str(written.field(at).type)) for at in wanted]
        columns = [self._columns.get(key) for key in keys]
        if any(column is None for column in columns):
            batch = whole(source, chunk, written, names, fetch)
            columns = [_copy(batch.column(at)) for at in wanted]
            for key, column in zip(keys, columns, strict=True):
                self._columns.update(key, partial(_first, column))
        fields = [written.field(at) for at in wanted]
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


_memory = ColumnCache()


def read_columns(reading: ReadPlan, columns: Sequence[str]) -> pa.Table:
    """Some columns of the messages of a reading, as `read_table` gives them."""
    return read_table(reading, columns, _memory.decoded)


def _first(column: pa.Array, known: pa.Array | None) -> pa.Array:
    """The column that was cached first."""
    return column if known is None else known


def _copy(column: pa.Array) -> pa.Array:
    """The values alone: a column that was read shares the memory of its whole chunk."""
    data = pa.record_batch([column], ["column"]).serialize()
    schema = pa.schema([pa.field("column", column.type)])
    return pa.ipc.read_record_batch(data, schema).column(0)
