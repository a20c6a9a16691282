"""Rank scan: find the matching messages of a fair queue whose turn it is, before they are fired.

Slices come in the order of their first ranks, page by page. A slice whose statistics decide is not
opened. The scan ends once it has found enough messages whose ranks no following slice can precede.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.slices import first_by_rank
from queue_core.selection.by_rank import narrowed
from queue_core.selection.fifo_scan import ScanConditions, decided_by_stats, matching_rows
from queue_core.selection.request import FireRequest
from queue_core.selection.scan import ID, PLACE, SLICE, SliceScan
from queue_core.selection.shares import by_horizon
from queue_core.selection.top_k import BYTES
from queue_core.values.model import Slice
from queue_core.values.plan import Taken

#: The smallest and the largest number of slices that are fetched at a time.
PAGE = (64, 4096)
#: A column of found rows.
_RANK = "#rank"


def find_by_rank(
    connection: Connection,
    scan: SliceScan,
    request: FireRequest,
    conditions: ScanConditions,
    max_bytes: int | None,
) -> pa.Table:
    """
    Return the `ID` and `BYTES` of the first matches by rank.

    They are at most as many as the request wants, and may be more than *max_bytes*.
    """
    limit = request.max_messages
    columns = pa.schema([(ID, pa.int64()), (_RANK, pa.int64()), (BYTES, pa.float64())])
    found = columns.empty_table()
    for pieces, upto in _pages(connection, request):
        found = pa.concat_tables([found, *_matches(scan, pieces, conditions, limit)])
        found = found.take(pa.array(np.argsort(found.column(_RANK).to_numpy(), kind="stable")))
        if limit is not None:
            found = found.slice(0, limit)
        ranks, sizes = found.column(_RANK).to_numpy(), found.column(BYTES).to_numpy()
        sure = len(ranks) if upto is None else int(np.searchsorted(ranks, upto, side="right"))
        is_full = max_bytes is not None and float(sizes[:sure].sum()) > max_bytes
        if is_full or (limit is not None and sure >= limit):
            break
    return found


def _pages(
    connection: Connection, request: FireRequest
) -> Iterator[tuple[Sequence[Slice], int | None]]:
    """Yield slices, page by page, each with a rank that no slice after it precedes."""
    size = PAGE[0]
    last: Slice | None = None
    while True:
        where = eligible(connection, request)
        page = first_by_rank(connection, *where, size, after=last)
        last = page[-1] if len(page) == size else None
        within = chain.from_iterable(
            by_horizon([(piece, piece.rows)], request, _key(piece)) for piece in page
        )
        yield [narrowed(piece, rows) for piece, rows in within], last.rank if last else None
        if last is None:
            return
        size = min(size * 4, PAGE[1])


def _matches(
    scan: SliceScan, pieces: Sequence[Slice], conditions: ScanConditions, limit: int | None
) -> Iterator[pa.Table]:
    """Yield the matches in some slices."""
    sure: list[Taken] = []
    unsure: list[Taken] = []
    for piece in pieces:
        decided = decided_by_stats(scan, piece, conditions.all)
        if decided:
            first = piece.rows if limit is None else piece.rows.split(limit)[0]
            sure.append((piece, first))
        elif decided is None:
            unsure.append((piece, piece.rows))
    for rows, taken in matching_rows(scan, conditions.all, sure, unsure, frozenset()):
        if not rows.num_rows:
            continue
        of = rows.column(SLICE).to_numpy()
        lines = np.array([(p.rank or 0, p.pace or 0, p.position) for p, _ in taken], dtype=np.int64)
        size = np.array([p.bytes / max(len(p.rows), 1) for p, _ in taken])
        steps = rows.column(PLACE).to_numpy() - lines[of, 2]
        yield pa.table(
            {
                ID: rows.column(ID),
                _RANK: lines[of, 0] + lines[of, 1] * steps,
                BYTES: size[of],
            }
        )


def _key(piece: Slice) -> tuple[int, int, int]:
    return piece.queue_id, int(piece.magazine), piece.shard
