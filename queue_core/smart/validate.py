"""Witnesses: the queued messages on which a judgement rests, looked at again to carry it out.

Changes: queued messages are deleted, or named in their new segments. Guard: the slices that name
them are locked, and all of them are as they were, or nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import slices
from queue_core.model import Magazine, QueueInfo, Slice, State
from queue_core.policies.inputs import PolicyResult
from queue_core.rows import EMPTY, Rows
from queue_core.smart.rewrite import Rewritten, put_in_place
from queue_core.smart.snapshot import Queued


class StaleSnapshot(Exception):
    """What was decided does not hold any more; nothing was changed yet."""


def validate(
    connection: Connection, queue: QueueInfo, queued: Queued, verdict: PolicyResult
) -> list[Slice]:
    """The slices that name them, locked; raises `StaleSnapshot` unless all are as they were."""
    rests_on = verdict.witnesses
    taken = queued.retrieved[rests_on]
    by_state = {
        State.LOADED: queued.rows_of(rests_on[~taken]),
        State.FIRED: queued.rows_of(rests_on[taken]),
    }
    named = {segment for rows in by_state.values() for segment in rows}
    there = fetch(
        connection,
        slices.c.queue_id == queue.id,
        slices.c.magazine == int(Magazine.MAIN),
        slices.c.state.in_([int(state) for state in by_state]),
        # Of no other shard, where firings would pass over what is locked.
        dialect.one_of(connection, slices.c.shard, [shard for _, _, shard in queued.pointers]),
        dialect.one_of(connection, slices.c.segment_id, named),
        lock="wait",
    )
    for state, rows in by_state.items():
        _check([piece for piece in there if _state(piece) is state], rows)
    return there


def apply_result(
    connection: Connection,
    queue: QueueInfo,
    queued: Queued,
    verdict: PolicyResult,
    written: Sequence[Rewritten],
    there: Sequence[Slice],
    changes: Changes,
) -> None:
    """Delete and overwrite queued messages; *there* is what `witnesses` gave."""
    waits = [piece for piece in there if _state(piece) is State.LOADED]
    moved = put_in_place(connection, queue, written, waits, changes)
    deleted = queued.rows_of(verdict.deleted)
    for piece in there:
        gone = piece.rows & deleted.get(piece.segment_id, EMPTY)
        rest = piece.rows - (gone | moved.get(piece.id, EMPTY))
        if len(rest) < len(piece.rows):
            changes.keep(piece, rest if rest else EMPTY)
        if gone:
            changes.count(piece, replaced=len(gone))
            if _state(piece) is State.LOADED:
                # What leaves a shard has been fired before, by the counters.
                changes.fire(piece, gone)


def _state(piece: Slice) -> State:
    return State.LOADED if piece.ticket is None else State.FIRED


def _check(pieces: Sequence[Slice], rows: Mapping[int, Rows]) -> None:
    for segment, wanted in rows.items():
        named = sum(len(piece.rows & wanted) for piece in pieces if piece.segment_id == segment)
        if named < len(wanted):
            raise StaleSnapshot
