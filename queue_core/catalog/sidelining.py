"""Move stuck messages to the sideline, and record why, how many, and when they are due again."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, select

from queue_core.catalog import dialect, failures, queues
from queue_core.catalog.changes import Changes
from queue_core.catalog.tables import consumers
from queue_core.catalog.task_log import Moves
from queue_core.due import NEVER, due_after
from queue_core.failure_kinds import DELIVERIES, KILLED
from queue_core.model import Magazine, QueueInfo, Slice
from queue_core.plan import Taken


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
    due_at = _due_at(connection, queue, kind) if taken else None
    moves = Moves()
    holders: dict[int | None, list[Taken]] = defaultdict(list)
    for piece, rows in taken:
        at = due_at(piece) if due_at else None
        changes.move(piece, rows, Magazine.SIDELINE, "swept", due_at=at)
        moves.add(piece, len(rows), Magazine.SIDELINE)
        holders[piece.consumer_id].append((piece, rows))
    changes.apply(connection)
    if taken:
        names = _names(connection, [holder for holder in holders if holder is not None])
        for holder, held in holders.items():
            rows_failed = failures.of_same(held, kind, reason)
            failures.record(connection, queue.id, names.get(holder), rows_failed)
        moves.record(connection, queue.id, "sweep")
    return len(moves)


def _due_at(connection: Connection, queue: QueueInfo, kind: str) -> Callable[[Slice], int | None]:
    """Return the function that gives the due time of a slice that is set aside."""
    settings = queues.as_it_is(connection, queue).settings
    retry, most, now = settings.retry, settings.max_deliveries, dialect.read_clock(connection)

    def due_at(piece: Slice) -> int | None:
        if kind in (DELIVERIES, KILLED):
            return NEVER
        if retry is None:
            return None
        too_often = most is not None and piece.deliveries >= most
        if too_often or not retry.retries(kind):
            return NEVER
        return due_after(retry, piece.attempts, now)

    return due_at


def _names(connection: Connection, consumer_ids: list[int]) -> dict[int | None, str]:
    these = dialect.of(connection).one_of(consumers.c.id, consumer_ids)
    rows = connection.execute(select(consumers.c.id, consumers.c.name).where(these))
    return {row.id: row.name for row in rows}
