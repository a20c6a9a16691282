"""Move stuck messages to the sideline, and record why, how many, and when they are due again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.holders.consumers import names_of
from queue_core.catalog.records import failures
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import bunches
from queue_core.catalog.slices.bunches import Bunch
from queue_core.catalog.slices.changes import Changes
from queue_core.values.due import NEVER, due_after
from queue_core.values.failure_kinds import DELIVERIES, KILLED
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.plan import Taken


def set_aside(
    connection: Connection,
    queue: QueueInfo,
    taken: Sequence[Taken],
    kind: str,
    changes: Changes,
    reason: str | None = None,
) -> int:
    """
    Move rows to the sideline and apply *changes*; return how many messages were moved.

    *kind* is the kind of their failures, which do not count as attempts. The queue's policy says
    when they are due; messages that were fired too often, or killed their process, are dead.
    """
    now = dialect.read_clock(connection) if taken else 0
    due_at = _due_at(connection, queue, kind, now) if taken else None
    moves = Moves()
    holders: dict[int | None, list[Taken]] = defaultdict(list)
    for piece, rows in taken:
        at = due_at(piece.attempts, piece.deliveries) if due_at else None
        changes.move(piece, rows, Magazine.SIDELINE, "swept", due_at=at)
        moves.add(piece, len(rows), Magazine.SIDELINE)
        holders[piece.consumer_id].append((piece, rows))
    changes.apply(connection)
    if taken:
        names = names_of(connection, [holder for holder in holders if holder is not None])
        for holder, held in holders.items():
            rows_failed = failures.of_same(held, kind, reason)
            failures.record(connection, queue.id, names.get(holder or 0), rows_failed)
        moves.record(connection, queue.id, "sweep")
    return len(moves)


def set_bunch_aside(
    connection: Connection,
    queue: QueueInfo,
    bunch: Bunch,
    magazine: Magazine,
    kind: str,
    changes: Changes,
) -> int:
    """Move whole slices of a magazine to the sideline, as `set_aside` does."""
    if not len(bunch):
        changes.apply(connection)
        return 0
    # The one time of all that is written: to read the clock costs as much as a write.
    now = dialect.read_clock(connection)
    find = _due_at(connection, queue, kind, now)
    pairs, of = np.unique(np.stack([bunch.attempts, bunch.deliveries]), axis=1, return_inverse=True)
    times = [find(*pair) for pair in pairs.T.tolist()]
    due_at = np.array([bunches.NULL if time is None else time for time in times], np.int64)
    due_at = due_at[of.reshape(-1)]
    # Packed before the first write, for which others may have to wait.
    failed = _failed(connection, bunch, kind)
    moves = Moves()
    moves.add_bunch(bunch, magazine, Magazine.SIDELINE)
    moves.packed()
    to = (magazine, Magazine.SIDELINE)
    bunches.move(connection, queue, bunch, to, "swept", changes, due_at=due_at, now=now)
    changes.apply(connection)
    for name, packed in failed:
        failures.store(connection, queue.id, name, packed, now)
    moves.record(connection, queue.id, "sweep", now)
    return len(moves)


def _failed(connection: Connection, bunch: Bunch, kind: str) -> list[tuple[str | None, bytes]]:
    """Return the packed failures of all messages, with the names of those who held them."""
    holders = np.unique(bunch.consumer_id).tolist()
    names = names_of(connection, holders)
    ids, of = bunch.message_ids()
    found = []
    for holder in holders:
        theirs = bunch.consumer_id[of] == holder
        attempts = bunch.attempts[of][theirs].astype(np.int32)
        packed = failures.pack_same(connection, ids[theirs], attempts, kind)
        found.append((names.get(holder), packed))
    return found


def _due_at(
    connection: Connection, queue: QueueInfo, kind: str, now: int
) -> Callable[[int, int], int | None]:
    """Return the function that gives the due time of a slice, from its attempts and deliveries."""
    settings = queues.as_it_is(connection, queue).settings
    retry, most = settings.retry, settings.max_deliveries

    def due_at(attempts: int, deliveries: int) -> int | None:
        if kind in (DELIVERIES, KILLED):
            return NEVER
        if retry is None:
            return None
        too_often = most is not None and deliveries >= most
        if too_often or not retry.retries(kind):
            return NEVER
        return due_after(retry, attempts, now)

    return due_at
