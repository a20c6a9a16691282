"""Move stuck messages to the sideline, and record why, how many, and when they are due again."""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.holders.consumers import names_of
from queue_core.catalog.records import failures
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import id_map
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.moves import Move
from queue_core.catalog.slices.slice_batches import NULL, SliceBatch
from queue_core.values.due import NEVER, due_after
from queue_core.values.failure_kinds import DELIVERIES, KILLED
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.settings import QueueSettings

_SWEPT = Move(Magazine.SIDELINE, "swept", "sweep")


def set_aside(
    connection: Connection,
    queue: QueueInfo,
    batch: SliceBatch,
    kind: str,
    changes: Changes,
    reason: str | None = None,
) -> int:
    """
    Move slices to the sideline and apply *changes*; return how many messages were moved.

    *kind* is the kind of their failures, which do not count as attempts. The queue's policy says
    when they are due; messages that were fired too often, or killed their process, are dead.
    """
    if not len(batch):
        changes.apply(connection)
        return 0
    # The one time of all that is written: to read the clock costs as much as a write.
    now = dialect.read_clock(connection)
    settings = queues.as_it_is(connection, queue).settings
    pairs, of = np.unique(np.stack([batch.attempts, batch.deliveries]), axis=1, return_inverse=True)
    times = [_due_at(settings, kind, now, *pair) for pair in pairs.T.tolist()]
    due_at = np.array([NULL if time is None else time for time in times], np.int64)
    # Packed before the first write, for which others may have to wait.
    failed = _failed(connection, batch, kind, reason)
    moves = Moves()
    _SWEPT.note_all(moves, batch)
    moves.packed()
    changes.move_all(batch, Magazine.SIDELINE, _SWEPT.counter, due_at=due_at[of.reshape(-1)])
    changes.apply(connection, now)
    shard = int(batch.shard.min())
    for name, packed, count in failed:
        failures.store(connection, queue.id, name, packed, shard, {kind: count}, now)
    moves.record(connection, queue.id, _SWEPT.task, now)
    return len(moves)


def _failed(
    connection: Connection, batch: SliceBatch, kind: str, reason: str | None
) -> list[tuple[str | None, bytes, int]]:
    """Return the packed failures of all messages and their number, by those who held them."""
    holders = np.unique(batch.consumer_id).tolist()
    names = names_of(connection, holders)
    rows, of = batch.message_ids()
    ids, found = id_map.logical(connection, rows), []
    for holder in holders:
        theirs = batch.consumer_id[of] == holder
        attempts = batch.attempts[of][theirs].astype(np.int32)
        packed = failures.pack_same(ids[theirs], attempts, kind, reason)
        found.append((names.get(holder), packed, int(theirs.sum())))
    return found


def _due_at(
    settings: QueueSettings, kind: str, now: int, attempts: int, deliveries: int
) -> int | None:
    """Return the due time of a slice; None: it has none."""
    if kind in (DELIVERIES, KILLED):
        return NEVER
    retry, most = settings.retry, settings.max_deliveries
    if retry is None:
        return None
    too_often = most is not None and deliveries >= most
    if too_often or not retry.retries(kind):
        return NEVER
    return due_after(retry, attempts, now)
