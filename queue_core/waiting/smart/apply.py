"""Apply a policy's result to queued messages: delete them, or move them to new segments."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog.slices import id_map, segments
from queue_core.catalog.slices.changes import Changes
from queue_core.policies.inputs import PolicyResult
from queue_core.segments.rewriter import Repacked
from queue_core.values.model import QueueInfo, Slice, State
from queue_core.values.rows import EMPTY, Rows
from queue_core.waiting.smart.rewrite import Rewritten
from queue_core.waiting.smart.snapshot import QueuedMessages


def apply_result(
    connection: Connection,
    queue: QueueInfo,
    queued: QueuedMessages,
    result: PolicyResult,
    rewritten: Sequence[Rewritten],
    locked: Sequence[Slice],
    changes: Changes,
) -> None:
    """Delete and overwrite queued messages; *locked* are the slices from `validate`."""
    waiting = [piece for piece in locked if piece.state is State.LOADED]
    _move_to_new_segments(connection, queue, rewritten, waiting, changes)
    deleted = queued.rows_of(result.deleted)
    for piece in locked:
        changes.remove(piece, piece.rows & deleted.get(piece.segment_id, EMPTY), "replaced")


def _move_to_new_segments(
    connection: Connection,
    queue: QueueInfo,
    rewritten: Sequence[Rewritten],
    waiting: Sequence[Slice],
    changes: Changes,
) -> None:
    """Let slices name messages in their new segments, if the messages still wait."""
    for one in rewritten:
        segment_id, _ = segments.publish(connection, queue.id, one.staged)
        ids, rows = [], []
        for part in one.parts:
            (source,) = part.group.pieces
            old = source.rows.numbers()
            for piece in waiting:
                if piece.segment_id != source.segment_id:
                    continue
                common = piece.rows & source.rows
                if not common:
                    continue
                at = np.flatnonzero(np.isin(old, common.numbers(), assume_unique=True))
                ids.append(part.ids[at])
                rows.append(part.rows[at])
                _put(changes, piece, common, part, Rows.of_numbers(part.rows[at]), segment_id)
        id_map.record(connection, queue.id, segment_id, np.concatenate(ids), np.concatenate(rows))


def _put(
    changes: Changes, piece: Slice, old: Rows, part: Repacked, new: Rows, segment_id: int
) -> None:
    changes.cut(piece, old)
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
