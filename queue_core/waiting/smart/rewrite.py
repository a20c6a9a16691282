"""Rewrite queued messages that get other values, under their ids and at their places.

A segment never changes. So these messages and their close neighbours become rows of a new segment,
as in a compaction. Other messages stay in their segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog.slices import read_plans
from queue_core.policies.inputs import Overwritten
from queue_core.segments.reader import read_table
from queue_core.segments.rewriter import Repacked, RewriteGroup, kept_columns, repack
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.ids import first_id
from queue_core.values.model import MAX_SEGMENT_ROWS, QueueInfo, Slice, Staged
from queue_core.values.plan import packed
from queue_core.values.rows import Numbers
from queue_core.waiting.smart.snapshot import QueuedMessages

#: Messages with fewer rows between them are rewritten together with these rows: an additional slice
#: would cost as much as the rows.
_NEAR_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A new segment, durable, which no slice names yet, and the parts in it."""

    staged: Staged
    parts: tuple[Repacked, ...]


def rewrite(
    connection: Connection,
    storage: Storage,
    queue: QueueInfo,
    queued: QueuedMessages,
    overwritten: Overwritten,
) -> list[Rewritten]:
    """
    Write new segments with the new values of queued messages.

    It reads within a transaction, by the present columns. Raises `DamagedSegment`.
    """
    # The segment and row of each message that gets other values, as one number, ascending.
    changed = queued.physical_ids(overwritten.rows)
    order = np.argsort(changed)
    changed = changed[order]
    new = {name: column.take(pa.array(order)) for name, column in overwritten.values.items()}
    piece, row = queued.piece[overwritten.rows], queued.row[overwritten.rows]
    groups = [
        RewriteGroup((part,))
        for number in np.unique(piece).tolist()
        for part in _parts(queued.slices[number], np.sort(row[piece == number]))
    ]
    # Groups that fit together into one segment, in order of their slices.
    units = []
    for unit in packed(groups, [(group.span,) for group in groups], [MAX_SEGMENT_ROWS]):
        taken = [(part, part.rows) for group in unit for part in group.pieces]
        units.append((unit, read_plans.build(connection, [queue], taken, storage.uri)))
    rewritten = []
    for unit, plan in units:
        messages = read_table(plan, kept_columns(queue))
        ids, places = _ids(unit)
        if places is not None:
            messages = messages.take(pa.array(places))
        rows = np.flatnonzero(np.isin(ids, changed, assume_unique=True))
        which = pa.array(np.searchsorted(changed, ids[rows]))
        values = {name: column.take(which) for name, column in new.items()}
        messages = Overwritten(rows=rows, values=values).applied_to(messages)
        staged, parts = repack(storage, queue, unit, messages)
        rewritten.append(Rewritten(staged=staged, parts=tuple(parts)))
    faults.point("policy.rewritten")
    return rewritten


def _parts(piece: Slice, rows: Numbers) -> Iterator[Slice]:
    """Yield the parts of a slice that cover some of its rows, cut at wide gaps between them."""
    ends = np.flatnonzero(np.diff(rows) > _NEAR_ROWS)
    for start, stop in zip(
        rows[[0, *(ends + 1)]].tolist(), rows[[*ends, len(rows) - 1]].tolist(), strict=True
    ):
        yield piece.narrowed(piece.rows.between(start, stop + 1))


def _ids(groups: Sequence[RewriteGroup]) -> tuple[Numbers, Numbers | None]:
    """
    Return the segment and row of each message as one number, in order of the groups.

    Also returns the index of each message in the order of reading, by shards and places; None if
    both orders are the same.
    """
    pieces = [piece for group in groups for piece in group.pieces]
    numbers = [piece.rows.numbers().astype(np.int64) for piece in pieces]
    counts = [len(rows) for rows in numbers]
    rows = np.concatenate(numbers)
    ids = rows + np.repeat([first_id(piece.segment_id) for piece in pieces], counts)
    places = rows + np.repeat([piece.place_of(0) for piece in pieces], counts)
    order = np.lexsort((places, np.repeat([piece.shard for piece in pieces], counts)))
    if (np.diff(order) == 1).all():
        return ids, None
    where = np.empty(len(order), np.int64)
    where[order] = np.arange(len(order))
    return ids, where
