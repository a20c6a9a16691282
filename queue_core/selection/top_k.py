"""Ranking: which of the waiting messages come first by an order, of all shards together.

Slices are looked at in the order of the best that may be in them, by their statistics, until none
that is left can hold anything better than what was found. Among equals the oldest comes first: by
when it came into the magazine, and within a shard by its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from queue_core.catalog.slices import ShardKey
from queue_core.model import ROW_BITS, Slice
from queue_core.plan import Taken, interleaved
from queue_core.selection.fifo_scan import (
    ScanConditions,
    ShardScan,
    decided_by_stats,
    eligible_rows,
)
from queue_core.selection.scan import ID, PLACE, SLICE, SliceScan

if TYPE_CHECKING:
    from queue_core.selector import Order
    from queue_core.selector.order import SortKey as Standing

#: Rows that are looked at in the first step; each later one looks at twice as many.
FIRST_STEP = 1 << 15
#: Columns of what is ranked: the less of two equals comes first; and the share of the bytes.
TIE, BYTES = "#tie", "#bytes"


_NOTHING = pa.table({ID: pa.array([], pa.int64()), BYTES: pa.array([], pa.float64())})


class _Entry(NamedTuple):
    """A slice that may hold something, and before which nothing in it stands."""

    bound: Standing
    tie: int
    piece: Slice
    #: Whether all of it is eligible, and whether it all stands at the bound.
    sure: bool
    known: bool


class TopK:
    """The first *limit* of the messages of some shards by an order."""

    def __init__(
        self,
        look: SliceScan,
        order: Order,
        limit: int,
        asked: Mapping[ShardKey, ScanConditions],
        shards: Mapping[ShardKey, Sequence[Slice]],
    ) -> None:
        """*asked* has the same conditions for each of the shards."""
        self._look = look
        self._order = order
        self._limit = limit
        self._asked = asked
        self._shards = shards
        self._conditions = next(iter(asked.values())).all if asked else ()
        self._ties = _ties(shards)

    def heads(self) -> pa.Table:
        """The first heads of groups; which those are is known only at the end of the shards."""
        found: list[pa.Table] = []
        for place, pieces in self._shards.items():
            walk = ShardScan(self._look, self._asked[place], pieces, self._weighed)
            walk.find(None)
            found.extend(walk.found)
        return self._best(found)

    def messages(self) -> pa.Table:
        """The first messages, with `ID` and `BYTES`."""
        entries = self._entries()
        best = _NOTHING
        at, size = 0, FIRST_STEP
        while at < len(entries) and not self._is_settled(best, entries[at]):
            step = self._step(entries, at, size)
            found = eligible_rows(
                self._look,
                self._conditions,
                [self._taken(entry) for entry in step if entry.sure],
                [self._taken(entry) for entry in step if not entry.sure],
                self._order.columns,
            )
            best = self._best([best, *(self._weighed(*part) for part in found)])
            at, size = at + len(step), size * 2
        return best

    def _entries(self) -> list[_Entry]:
        entries = []
        for pieces in self._shards.values():
            for piece in pieces:
                decided = decided_by_stats(self._look, piece, self._conditions)
                if decided is False:
                    continue
                stats = self._look.stats(piece, self._order.columns)
                entries.append(
                    _Entry(
                        bound=self._order.bound(stats),
                        tie=self._ties[piece.id] + piece.position,
                        piece=piece,
                        sure=decided is True,
                        known=self._look.is_known(piece, self._order.columns),
                    )
                )
        return sorted(entries, key=lambda entry: (entry.bound, entry.tie))

    def _step(self, entries: Sequence[_Entry], at: int, size: int) -> Sequence[_Entry]:
        """The entries to look at next: not more than those that are sure to be enough."""
        end, rows, sure = at, 0, 0
        while end < len(entries) and rows < size and sure < self._limit:
            entry = entries[end]
            rows += len(entry.piece.rows)
            sure += len(entry.piece.rows) if entry.sure and entry.known else 0
            end += 1
        return entries[at:end]

    def _taken(self, entry: _Entry) -> Taken:
        rows = entry.piece.rows
        # Where all are equal, the oldest will do.
        return entry.piece, rows.split(self._limit)[0] if entry.sure and entry.known else rows

    def _is_settled(self, best: pa.Table, following: _Entry) -> bool:
        """Whether nothing that is left stands before the last of those that were found."""
        if best.num_rows < self._limit:
            return False
        last = self._order.place(best, self._limit - 1), best.column(TIE)[-1].as_py()
        return last < (following.bound, following.tie)

    def _best(self, tables: Sequence[pa.Table]) -> pa.Table:
        found = [table for table in tables if table.num_rows]
        if not found:
            return _NOTHING
        rows = pa.concat_tables(found)
        return rows.take(self._order.top(rows, self._limit, rows.column(TIE)))

    def _weighed(self, rows: pa.Table, taken: Sequence[Taken]) -> pa.Table:
        """What is needed to rank rows of some slices."""
        slices = rows.column(SLICE).to_numpy()
        ties = np.array([self._ties[piece.id] for piece, _ in taken])
        bytes = np.array([piece.bytes / max(len(piece.rows), 1) for piece, _ in taken])
        kept = rows.select([ID, *sorted(self._order.columns)])
        ranked = kept.append_column(TIE, pa.array(ties[slices] + rows.column(PLACE).to_numpy()))
        return ranked.append_column(BYTES, pa.array(bytes[slices]))


def _ties(shards: Mapping[ShardKey, Sequence[Slice]]) -> dict[int, int]:
    """For each slice, by its id, what to add to a place, so that what is older has less."""
    blocks = []
    for place, pieces in shards.items():
        came = 0
        for block in interleaved(pieces):
            # Within a shard the places decide, whatever was put together since.
            came = max(came, *(piece.moved_at for piece in block))
            blocks.append((came, place, block[0].position, block))
    blocks.sort(key=lambda block: block[:3])
    return {
        piece.id: (rank << (ROW_BITS + 1)) - position
        for rank, (_, _, position, block) in enumerate(blocks)
        for piece in block
    }
