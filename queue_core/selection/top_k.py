"""Top-k: find the first messages of all shards by an order, without reading them all.

Slices are read in the order of the best message that their statistics allow, until no remaining
slice can hold a better message than the found ones. Among equals, the oldest comes first: by the
time at which it entered the magazine, and within a shard by its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from queue_core.catalog.slices.slices import ShardKey
from queue_core.selection.fifo_scan import (
    ScanConditions,
    ShardScan,
    decided_by_stats,
    matching_rows,
)
from queue_core.selection.scan import ID, PLACE, SLICE, SliceScan
from queue_core.values.model import ROW_BITS, Slice
from queue_core.values.plan import Taken, interleaved

if TYPE_CHECKING:
    from queue_core.selector import Order
    from queue_core.selector.order import SortKey

#: Rows that the first step reads; each later step reads twice as many.
FIRST_STEP = 1 << 15
#: Columns of ranked rows: the tie-breaker (the lower comes first), and the estimated bytes.
TIE, BYTES = "#tie", "#bytes"


class _Entry(NamedTuple):
    """A slice that may hold matches; none of its messages comes before (bound, tie)."""

    bound: SortKey
    tie: int
    piece: Slice
    #: Whether all its messages match.
    sure: bool
    #: Whether all its messages have the same sort key, the bound.
    uniform: bool


class TopK:
    """The first *limit* messages of some shards by an order."""

    def __init__(
        self,
        scan: SliceScan,
        order: Order,
        limit: int,
        conditions: Mapping[ShardKey, ScanConditions],
        shards: Mapping[ShardKey, Sequence[Slice]],
    ) -> None:
        """*conditions* of the shards differ only in their groups in flight and their horizon."""
        self._scan = scan
        self._order = order
        self._limit = limit
        self._by_shard = conditions
        self._shards = shards
        self._conditions = next(iter(conditions.values())).all if conditions else ()
        self._ties = _ties(shards)

    def heads(self) -> pa.Table:
        """Return the first heads of groups. The heads are known only after a scan of the shards."""
        found: list[pa.Table] = []
        for key, pieces in self._shards.items():
            scan = ShardScan(self._scan, self._by_shard[key], pieces, self._ranked)
            scan.find(None)
            found.extend(scan.found)
        return self._best(found)

    def messages(self) -> pa.Table:
        """Return the first messages, with `ID` and `BYTES`."""
        entries = self._entries()
        best = _nothing()
        at, size = 0, FIRST_STEP
        while at < len(entries) and not self._is_settled(best, entries[at]):
            step = self._step(entries, at, size)
            found = matching_rows(
                self._scan,
                self._conditions,
                [self._taken(entry) for entry in step if entry.sure],
                [self._taken(entry) for entry in step if not entry.sure],
                self._order.columns,
            )
            best = self._best([best, *(self._ranked(*part) for part in found)])
            at, size = at + len(step), size * 2
        return best

    def _entries(self) -> list[_Entry]:
        entries = []
        for pieces in self._shards.values():
            for piece in pieces:
                decided = decided_by_stats(self._scan, piece, self._conditions)
                if decided is False:
                    continue
                stats = self._scan.stats(piece, self._order.columns)
                entries.append(
                    _Entry(
                        bound=self._order.bound(stats),
                        tie=self._ties[piece.id] + piece.position,
                        piece=piece,
                        sure=decided is True,
                        uniform=self._scan.is_uniform(piece, self._order.columns),
                    )
                )
        return sorted(entries, key=lambda entry: (entry.bound, entry.tie))

    def _step(self, entries: Sequence[_Entry], at: int, size: int) -> Sequence[_Entry]:
        """Return the entries to read next: no more than are certainly enough."""
        end, rows, sure = at, 0, 0
        while end < len(entries) and rows < size and sure < self._limit:
            entry = entries[end]
            rows += len(entry.piece.rows)
            sure += len(entry.piece.rows) if entry.sure and entry.uniform else 0
            end += 1
        return entries[at:end]

    def _taken(self, entry: _Entry) -> Taken:
        rows = entry.piece.rows
        # Among equals, the oldest are enough.
        return entry.piece, rows.split(self._limit)[0] if entry.sure and entry.uniform else rows

    def _is_settled(self, best: pa.Table, following: _Entry) -> bool:
        """Return whether no remaining entry can come before the last found row."""
        if best.num_rows < self._limit:
            return False
        last = self._order.sort_key(best, self._limit - 1), best.column(TIE)[-1].as_py()
        return last < (following.bound, following.tie)

    def _best(self, tables: Sequence[pa.Table]) -> pa.Table:
        found = [table for table in tables if table.num_rows]
        if not found:
            return _nothing()
        rows = pa.concat_tables(found)
        return rows.take(self._order.top(rows, self._limit, rows.column(TIE)))

    def _ranked(self, rows: pa.Table, taken: Sequence[Taken]) -> pa.Table:
        """Return rows of some slices with the columns that rank them."""
        slices = rows.column(SLICE).to_numpy()
        ties = np.array([self._ties[piece.id] for piece, _ in taken])
        bytes = np.array([piece.bytes / max(len(piece.rows), 1) for piece, _ in taken])
        kept = rows.select([ID, *sorted(self._order.columns)])
        ranked = kept.append_column(TIE, pa.array(ties[slices] + rows.column(PLACE).to_numpy()))
        return ranked.append_column(BYTES, pa.array(bytes[slices]))


def _ties(shards: Mapping[ShardKey, Sequence[Slice]]) -> dict[int, int]:
    """Return, by slice, the number to add to a place for its tie-breaker; older is lower."""
    blocks = []
    for key, pieces in shards.items():
        arrived = 0
        for block in interleaved(pieces):
            # Within a shard, places decide, even after a compaction.
            arrived = max(arrived, *(piece.moved_at for piece in block))
            blocks.append((arrived, key, block[0].position, block))
    blocks.sort(key=lambda block: block[:3])
    return {
        piece.id: (rank << (ROW_BITS + 1)) - position
        for rank, (_, _, position, block) in enumerate(blocks)
        for piece in block
    }


@cache
def _nothing() -> pa.Table:
    # Not at the top: a call of pa.array imports pandas.
    return pa.table({ID: pa.array([], pa.int64()), BYTES: pa.array([], pa.float64())})
