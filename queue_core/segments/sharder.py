"""Sort incoming rows by shard, a few thousand at a time. Touches no storage."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import SchemaMismatch
from queue_core.segments.shard_hash import shards_of
from queue_core.values.rows import Numbers

#: Rows are sorted in groups of at least this many bytes, which fit into a processor's cache, and of
#: at least this many rows for each shard.
_SORTED_ROWS = 8192
_SLICE_ROWS = 128
#: Rows of a batch that are looked at before all of them.
_LOOKED_AT = 16
#: Waiting batches of up to this many bytes are copied.
_COPIED_BYTES = 4 << 20
#: A larger batch is joined with none that waits: a column of strings has at most 2 GiB.
_APART_BYTES = 1 << 30
#: In place of the number of a shard: there are several.
SEVERAL = -1

#: The rows of each shard; None in a queue without a key.
Parts: TypeAlias = list[tuple[int | None, pa.Table]]


class Sharder:
    """Collects rows; `take` returns them shard by shard, each in the order of arrival."""

    def __init__(self, queue: str, schema: pa.Schema, key: str | None, shards: int) -> None:
        self._queue = queue
        self._schema = schema
        self._key = key
        self._shards = shards
        self._least = max(_SORTED_ROWS, _SLICE_ROWS * shards)
        self._clear()

    def _clear(self) -> None:
        #: Waiting rows and bytes. Some of the rows are not yet sorted.
        self.rows = self.bytes = 0
        self._unsorted: list[pa.RecordBatch] = []
        self._unsorted_rows = 0
        self._sorted: list[list[pa.RecordBatch]] = [[] for _ in range(self._shards)]
        self._numbers: list[npt.NDArray[np.uint16]] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add a batch; raises `SchemaMismatch` if a key is null."""
        if self._key is not None and batch.nbytes > _APART_BYTES:
            self._sort(self._key)
        self.rows += batch.num_rows
        self.bytes += batch.nbytes
        self._unsorted.append(batch if self._key is not None else _copied(batch))
        self._unsorted_rows += batch.num_rows
        if self._key is not None and self._unsorted_rows >= self._least:
            self._sort(self._key)

    def only_shard(self, batch: pa.RecordBatch) -> int | None:
        """
        Return the shard of all rows of a batch, or `SEVERAL`; None without a key.

        *batch* has rows. Raises `SchemaMismatch` if a key is null.
        """
        if self._key is None:
            return None
        keys = self._checked(batch.column(self._key), self._key)
        # If rows have several shards, some of the first rows usually have.
        for some in (keys[:_LOOKED_AT], keys):
            shards = shards_of(some, self._shards)
            if (shards != shards[0]).any():
                return SEVERAL
        return int(shards[0])

    def ranks(self) -> Numbers:
        """Return the index in `take`'s result of each waiting row, in the order of arrival."""
        ranks = np.arange(self.rows, dtype=np.int64)
        if self._key is not None:
            self._sort(self._key)
            order = np.argsort(np.concatenate(self._numbers), kind="stable")
            ranks[order] = ranks.copy()
        return ranks

    def take(self) -> Parts:
        """Remove and return the rows of each shard, in order, or all with None without a key."""
        if self._key is None:
            taken: Parts = [(None, self._table(self._unsorted))]
        else:
            self._sort(self._key)
            taken = [
                (shard, self._table(pieces)) for shard, pieces in enumerate(self._sorted) if pieces
            ]
        self._clear()
        return taken

    def _sort(self, key: str) -> None:
        waiting, self._unsorted, self._unsorted_rows = self._unsorted, [], 0
        if not waiting:
            return
        rows = waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting)
        shards = shards_of(self._checked(rows.column(key), key), self._shards)
        ordered, in_order = rows, shards
        if (shards[1:] < shards[:-1]).any():
            order = np.argsort(shards, kind="stable")
            ordered, in_order = rows.take(pa.array(order)), shards[order]
        elif len(waiting) == 1:
            # Rows from a queue with the same key come sorted.
            ordered = _copied(rows)
        bounds = np.searchsorted(in_order, np.arange(self._shards + 1)).tolist()
        for shard, (start, stop) in enumerate(pairwise(bounds)):
            if stop > start:
                self._sorted[shard].append(ordered.slice(start, stop - start))
        self._numbers.append(shards)

    def _checked(self, column: pa.Array, key: str) -> pa.Array:
        if column.null_count:
            raise SchemaMismatch(
                f"queue {self._queue!r}: key column {key!r} is null in {column.null_count} rows; "
                "the key picks the shard and may not be null: fill it in, or leave these rows out"
            )
        return column

    def _table(self, batches: list[pa.RecordBatch]) -> pa.Table:
        return pa.Table.from_batches(batches, schema=self._schema)


def _copied(batch: pa.RecordBatch) -> pa.RecordBatch:
    """
    Return a copy in Arrow's memory of a batch that waits.

    A batch from Spark is in memory of Python. If many of them wait and are freed together, the
    system takes their memory back, and must clear as much for the next ones, which costs more than
    copies: Arrow keeps its memory.
    """
    if batch.num_rows < 2 or batch.nbytes > _COPIED_BYTES:
        return batch
    half = batch.num_rows // 2
    return pa.concat_batches([batch.slice(0, half), batch.slice(half)])
