"""Queued messages that take over values: written anew, with who they are and where they stand.

A segment never changes. So the messages, and what stands close between them, become rows of a new
one, as in a compaction; what is far from any of them stays in its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import id_map, read_plans, segments
from queue_core.catalog.slices import Changes
from queue_core.ids import first_id
from queue_core.model import MAX_SEGMENT_ROWS, QueueInfo, ReadPlan, Slice, Staged, State
from queue_core.policies.inputs import Overwritten
from queue_core.rows import Numbers, Rows
from queue_core.segments.reader import read_table
from queue_core.segments.rewriter import Group, Repacked, kept_columns, repack
from queue_core.segments.storage import Storage
from queue_core.smart.incoming import with_values
from queue_core.smart.snapshot import Queued

#: Messages with fewer rows between them are written together with those: one slice more costs as
#: much as they do.
_NEAR_ROWS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewriting:
    """Parts of slices that are to be written anew, and how to read them."""

    #: Some that fit into one segment each, and how to read those; in order of their slices.
    units: tuple[tuple[tuple[Group, ...], ReadPlan], ...]
    #: The segment and the row of each message that takes over values, as one number, ascending.
    ids: Numbers
    #: Their values, in this order.
    values: dict[str, pa.Array]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """A new segment, durable, that no slice names yet, and what is in it."""

    staged: Staged
    parts: tuple[Repacked, ...]


def plan(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    queued: Queued,
    overwritten: Overwritten,
) -> Rewriting:
    """Which parts of slices have to be written anew."""
    firsts = np.array([first_id(piece.segment_id) for piece in queued.slices], np.int64)
    piece, row = queued.piece[overwritten.rows], queued.row[overwritten.rows]
    order = np.argsort(firsts[piece] + row)
    groups = [
        Group((part,))
        for number in np.unique(piece).tolist()
        for part in _parts(queued.slices[number], np.sort(row[piece == number]))
    ]
    units = [
        (unit, read_plans.build(connection, [queue], _taken(unit), storage_uri))
        for unit in _packed(groups)
    ]
    values = {name: column.take(pa.array(order)) for name, column in overwritten.values.items()}
    return Rewriting(units=tuple(units), ids=(firsts[piece] + row)[order], values=values)


def rewrite(storage: Storage, queue: QueueInfo, rewriting: Rewriting) -> list[Rewritten]:
    """Write them with their new values. Raises `DamagedSegment`."""
    written = []
    for groups, reading in rewriting.units:
        messages = read_table(reading, kept_columns(queue))
        ids, order = _ids(groups)
        if order is not None:
            messages = messages.take(pa.array(order))
        at = np.flatnonzero(np.isin(ids, rewriting.ids, assume_unique=True))
        which = pa.array(np.searchsorted(rewriting.ids, ids[at]))
        values = {name: column.take(which) for name, column in rewriting.values.items()}
        messages = with_values(messages, Overwritten(rows=at, values=values))
        staged, parts = repack(storage, queue, groups, messages)
        written.append(Rewritten(staged=staged, parts=tuple(parts)))
    faults.point("policy.rewritten")
    return written


def put_in_place(
    connection: Connection,
    queue: QueueInfo,
    written: Sequence[Rewritten],
    there: Sequence[Slice],
    changes: Changes,
) -> dict[int, Rows]:
    """
    Let slices name the new segments, as far as their messages still wait.

    *there* are the slices as they are, locked. Returns, for each of them by its id, the rows that
    it must not name any more.
    """
    moved: dict[int, Rows] = {}
    for one in written:
        segment_id, _ = segments.publish(connection, queue.id, one.staged)
        ids, rows = [], []
        for part in one.parts:
            (source,) = part.group.pieces
            old = source.rows.numbers()
            for piece in there:
                if piece.segment_id != source.segment_id:
                    continue
                common = piece.rows & source.rows
                if not common:
                    continue
                mine = np.flatnonzero(np.isin(old, common.numbers(), assume_unique=True))
                ids.append(part.ids[mine])
                rows.append(part.rows[mine])
                _put(changes, piece, common, part, Rows.of_numbers(part.rows[mine]), segment_id)
                moved[piece.id] = moved.get(piece.id, Rows(0, 0)) | common
        kept = np.concatenate(ids), np.concatenate(rows)
        id_map.record(connection, queue.id, segment_id, *kept)
    return moved


def _put(
    changes: Changes, piece: Slice, old: Rows, part: Repacked, new: Rows, segment_id: int
) -> None:
    changes.put(
        piece,
        old,
        state=int(State.LOADED),
        segment_id=segment_id,
        row_start=new.start,
        row_stop=new.stop,
        bitmap=new.to_bytes(),
        bytes=part.piece.bytes_of(new),
        stats=part.piece.stats,
    )


def _parts(piece: Slice, rows: Numbers) -> Iterator[Slice]:
    """The parts of a slice in which some of its rows are close to each other."""
    ends = np.flatnonzero(np.diff(rows) > _NEAR_ROWS)
    for start, stop in zip(
        rows[[0, *(ends + 1)]].tolist(), rows[[*ends, len(rows) - 1]].tolist(), strict=True
    ):
        part = piece.rows.between(start, stop + 1)
        yield replace(
            piece, rows=part, position=piece.place_of(part.start), bytes=piece.bytes_of(part)
        )


def _packed(groups: Sequence[Group]) -> Iterator[tuple[Group, ...]]:
    """So many together as fit into one segment."""
    together: list[Group] = []
    span = 0
    for group in groups:
        if together and span + group.span > MAX_SEGMENT_ROWS:
            yield tuple(together)
            together, span = [], 0
        together.append(group)
        span += group.span
    if together:
        yield tuple(together)


def _taken(groups: Sequence[Group]) -> list[tuple[Slice, Rows]]:
    return [(piece, piece.rows) for group in groups for piece in group.pieces]


def _ids(groups: Sequence[Group]) -> tuple[Numbers, Numbers | None]:
    """
    Segment and row of each message of some groups, as one number, in order of the groups.

    And where each of them is in a reading, which goes by shards and places; None: in this order.
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
