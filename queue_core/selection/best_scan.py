"""Best scan: find the first messages of all shards by a key, without reading them all.

Slices come in the order of a bound that none of their messages precedes. A slice whose statistics
decide is not opened. The scan ends once it has found enough messages that no message of a following
slice can precede. The key is an order by columns, or the rank of a fair queue.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.slices import ShardKey, first_by_rank
from queue_core.selection.fifo_scan import decided_by_stats, matching_rows
from queue_core.selection.quotas import cut_by_horizon
from queue_core.selection.request import FireRequest
from queue_core.selection.scan import BYTES, ID, PLACE, SLICE, SliceScan, is_uniform, row_sizes
from queue_core.values.model import ROW_BITS, Slice
from queue_core.values.plan import Taken, interleaved

if TYPE_CHECKING:
    from queue_core.selector import Condition, Order

#: What puts messages of all shards into one order.
ScanKey: TypeAlias = "ByColumns | ByRank"

#: Rows that the first step reads; each later step reads twice as many.
FIRST_STEP = 1 << 15
#: The smallest and the largest number of slices that are fetched at a time.
PAGE = (64, 4096)
#: Columns of found rows: the tie-breaker (the lower comes first), and the rank.
_TIE, _RANK = "\ntie", "\nrank"


class BoundedSlice(NamedTuple):
    """A slice that may hold matches; none of its messages comes before the bound."""

    bound: Any
    piece: Slice
    #: Whether its messages are in the order of the key, so that the first ones are enough.
    in_order: bool


class BoundedPage(NamedTuple):
    """Slices in the order of their bounds."""

    entries: Sequence[BoundedSlice]
    #: The least bound of those on later pages; None: this page is the last one.
    following: Any = None


def find_first(
    scan: SliceScan,
    conditions: Sequence[Condition],
    key: ScanKey,
    pages: Iterable[BoundedPage],
    limit: int,
    max_bytes: int | None,
) -> pa.Table:
    """
    Return the first messages that meet conditions, with `ID` and `BYTES`.

    There are at most *limit*. They may exceed *max_bytes*.
    """
    best, size = nothing(), FIRST_STEP
    for page in pages:
        at = 0
        while at < len(page.entries):
            sure, unsure, slices = _next(scan, conditions, page.entries[at:], size, limit)
            found = matching_rows(scan, conditions, sure, unsure, key.columns)
            best = first_of([best, *(key.keyed(*part) for part in found)], key, limit)
            at, size = at + slices, size * 2
            bound = page.entries[at].bound if at < len(page.entries) else page.following
            if bound is not None and _is_settled(best, key, bound, limit, max_bytes):
                return best
    return best


def first_of(tables: Sequence[pa.Table], key: ScanKey, limit: int) -> pa.Table:
    """Return the first rows, by the key, of several tables from `keyed`."""
    found = [table for table in tables if table.num_rows]
    return key.first(pa.concat_tables(found), limit) if found else nothing()


def _next(
    scan: SliceScan,
    conditions: Sequence[Condition],
    entries: Sequence[BoundedSlice],
    size: int,
    limit: int,
) -> tuple[list[Taken], list[Taken], int]:
    """
    Return the next slices: about *size* rows, or fewer if *limit* messages are certain to match.

    Returns the slices that match as a whole, those that may match, and how many were looked at.
    """
    sure: list[Taken] = []
    unsure: list[Taken] = []
    rows = certain = count = 0
    for _, piece, in_order in entries:
        if rows >= size or certain >= limit:
            break
        count += 1
        decided = decided_by_stats(scan, piece, conditions)
        if decided and in_order:
            sure.append((piece, piece.rows.split(limit)[0]))
            certain += len(piece.rows)
        elif decided is not False:
            (sure if decided else unsure).append((piece, piece.rows))
        rows += 0 if decided is False else len(piece.rows)
    return sure, unsure, count


def _is_settled(
    best: pa.Table, key: ScanKey, bound: Any, limit: int, max_bytes: int | None
) -> bool:
    """Return whether no later message can be among the first ones."""
    last = limit - 1
    if max_bytes is not None:
        sizes = np.cumsum(best.column(BYTES).to_numpy())
        last = min(last, int(np.searchsorted(sizes, max_bytes, side="right")))
    return last < best.num_rows and key.precedes(best, last, bound)


class ByColumns:
    """
    The order by columns.

    Among equals, the oldest comes first: by the time at which it entered the magazine, and within
    a shard by its place.
    """

    def __init__(
        self, scan: SliceScan, order: Order, shards: Mapping[ShardKey, Sequence[Slice]]
    ) -> None:
        self._scan = scan
        self._order = order
        self._shards = shards
        self._ties = _ties(shards)

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the order."""
        return self._order.columns

    def page(self) -> BoundedPage:
        """Return all slices."""
        entries = []
        for piece in chain.from_iterable(self._shards.values()):
            stats = self._scan.stats(piece, self.columns)
            bound = self._order.bound(stats), self._ties[piece.id] + piece.position
            entries.append(BoundedSlice(bound, piece, is_uniform(stats, self.columns)))
        return BoundedPage(sorted(entries, key=lambda entry: entry.bound))

    def keyed(self, rows: pa.Table, taken: Sequence[Taken]) -> pa.Table:
        """Return rows of some slices as `ID`, `BYTES`, and what their order needs."""
        ties = np.array([self._ties[piece.id] for piece, _ in taken])
        at = ties[rows.column(SLICE).to_numpy()] + rows.column(PLACE).to_numpy()
        kept = rows.select([ID, *sorted(self.columns)]).append_column(_TIE, pa.array(at))
        return kept.append_column(BYTES, row_sizes(rows, taken))

    def first(self, rows: pa.Table, limit: int) -> pa.Table:
        """Return the first rows."""
        return rows.take(self._order.top(rows, limit, rows.column(_TIE)))

    def precedes(self, rows: pa.Table, at: int, bound: Any) -> bool:
        """Return whether a row comes before all messages with a bound."""
        tie = rows.column(_TIE)[at].as_py()
        return bool((self._order.sort_key(rows, at), tie) < bound)


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


class ByRank:
    """The order of a fair queue."""

    columns: frozenset[str] = frozenset()

    @staticmethod
    def pages(connection: Connection, request: FireRequest) -> Iterator[BoundedPage]:
        """Yield the slices of a request's only queue."""
        size, largest = PAGE
        last: Slice | None = None
        while True:
            found = first_by_rank(connection, *eligible(request), size, after=last)
            last = found[-1] if len(found) == size else None
            pieces = cut_by_horizon(found, request)
            entries = [BoundedSlice(piece.rank or 0, piece, in_order=True) for piece in pieces]
            yield BoundedPage(entries, None if last is None else last.rank)
            if last is None:
                return
            size = min(size * 4, largest)

    def keyed(self, rows: pa.Table, taken: Sequence[Taken]) -> pa.Table:
        """Return rows of some slices as `ID`, `BYTES` and their ranks."""
        lines = np.array(
            [(p.rank or 0, p.rank_step or 0, p.position) for p, _ in taken], dtype=np.int64
        )
        first, pace, position = lines[rows.column(SLICE).to_numpy()].T
        ranks = first + pace * (rows.column(PLACE).to_numpy() - position)
        return pa.table({ID: rows.column(ID), _RANK: ranks, BYTES: row_sizes(rows, taken)})

    def first(self, rows: pa.Table, limit: int) -> pa.Table:
        """Return the first rows."""
        order = np.argsort(rows.column(_RANK).to_numpy(), kind="stable")
        return rows.take(pa.array(order[:limit]))

    def precedes(self, rows: pa.Table, at: int, bound: Any) -> bool:
        """Return whether a row comes before all messages with a bound, or with them."""
        return bool(rows.column(_RANK)[at].as_py() <= bound)


def nothing() -> pa.Table:
    """Return no messages."""
    # Not at the top: a call of pa.array imports pandas.
    return pa.table({ID: pa.array([], pa.int64()), BYTES: pa.array([], pa.float64())})
