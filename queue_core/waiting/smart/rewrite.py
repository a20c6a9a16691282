"""Rewrite queued messages that get other values, under their ids and at their places.

A segment never changes. So these messages and their close neighbours become rows of a new segment,
as in a compaction. Other messages stay in their segment.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.slices import read_plans
from queue_core.policies.inputs import Overwritten
from queue_core.segments.reader import read_table
from queue_core.segments.rewriter import Repacked, RewriteGroup, kept_columns, repack
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.values.ids import first_id
from queue_core.values.model import MAX_SEGMENT_ROWS, QueueInfo, ReadPlan, Slice, Staged
from queue_core.values.plan import Taken, packed
from queue_core.values.rows import Numbers
from queue_core.waiting.smart.snapshot import QueuedMessages

#: Messages with fewer rows between them are rewritten together with these rows: an additional slice
#: would cost as much as the rows.
_NEAR_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RewritePlan:
    """The parts of slices to rewrite, and how to read them."""

    #: The queue, with all columns that the messages can have.
    queue: QueueInfo
    #: Groups that fit together into one segment, with their read plan, in order of their slices.
    units: tuple[tuple[Sequence[RewriteGroup], ReadPlan], ...]
    #: The segment and row of each message that gets other values, as one number, ascending.
    ids: Numbers
    #: The new values, in this order.
    values: dict[str, pa.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A new segment, durable, which no slice names yet, and the parts in it."""

    staged: Staged
    parts: tuple[Repacked, ...]


def plan_rewrite(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    queued: QueuedMessages,
    overwritten: Overwritten,
) -> RewritePlan:
    """Find the parts of slices that must be rewritten."""
    queue = queues.still_there(connection, queue)
    ids = queued.physical_ids(overwritten.rows)
    order = np.argsort(ids)
    piece, row = queued.piece[overwritten.rows], queued.row[overwritten.rows]
    groups = [
        RewriteGroup((part,))
        for number in np.unique(piece).tolist()
        for part in _parts(queued.slices[number], np.sort(row[piece == number]))
    ]
    units = [
        (unit, read_plans.build(connection, [queue], _taken(unit), storage_uri))
        for unit in packed(groups, [(group.span,) for group in groups], [MAX_SEGMENT_ROWS])
    ]
    values = {name: column.take(pa.array(order)) for name, column in overwritten.values.items()}
    return RewritePlan(queue=queue, units=tuple(units), ids=ids[order], values=values)


def rewrite(storage: Storage, plan: RewritePlan) -> list[Rewritten]:
    """Write new segments with the new values. Raises `DamagedSegment`."""
    rewritten = []
    for groups, read_plan in plan.units:
        messages = read_table(read_plan, kept_columns(plan.queue))
        ids, order = _ids(groups)
        if order is not None:
            messages = messages.take(pa.array(order))
        rows = np.flatnonzero(np.isin(ids, plan.ids, assume_unique=True))
        which = pa.array(np.searchsorted(plan.ids, ids[rows]))
        values = {name: column.take(which) for name, column in plan.values.items()}
        messages = Overwritten(rows=rows, values=values).applied_to(messages)
        staged, parts = repack(storage, plan.queue, groups, messages)
        rewritten.append(Rewritten(staged=staged, parts=tuple(parts)))
    faults.point("policy.rewritten")
    return rewritten


def _parts(piece: Slice, rows: Numbers) -> Iterator[Slice]:
    """Yield the parts of a slice that cover some of its rows, cut at wide gaps between them."""
    ends = np.flatnonzero(np.diff(rows) > _NEAR_ROWS)
    for start, stop in zip(
        rows[[0, *(ends + 1)]].tolist(), rows[[*ends, len(rows) - 1]].tolist(), strict=True
    ):
        part = piece.rows.between(start, stop + 1)
        yield replace(
            piece, rows=part, position=piece.place_of(part.start), bytes=piece.bytes_of(part)
        )


def _taken(groups: Sequence[RewriteGroup]) -> list[Taken]:
    return [(piece, piece.rows) for group in groups for piece in group.pieces]


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
