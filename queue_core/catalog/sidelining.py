"""Move stuck messages to the sideline, and record why and how many."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection, select

from queue_core.catalog import dialect, failures
from queue_core.catalog.changes import Changes
from queue_core.catalog.tables import consumers
from queue_core.catalog.task_log import Moves
from queue_core.model import Magazine, QueueInfo
from queue_core.plan import Taken


def set_aside(
    connection: Connection, queue: QueueInfo, taken: Sequence[Taken], kind: str, changes: Changes
) -> int:
    """
    Move rows to the sideline and apply *changes*; return how many messages were moved.

    *kind* is the kind of their failures, which do not count as attempts.
    """
    moves = Moves()
    holders: dict[int | None, list[Taken]] = defaultdict(list)
    for piece, rows in taken:
        changes.move(piece, rows, Magazine.SIDELINE, "swept")
        moves.add(piece, len(rows), Magazine.SIDELINE)
        holders[piece.consumer_id].append((piece, rows))
    changes.apply(connection)
    if taken:
        names = _names(connection, [holder for holder in holders if holder is not None])
        for holder, held in holders.items():
            rows_failed = failures.of_same(held, kind, None)
            failures.record(connection, queue.id, names.get(holder), rows_failed)
        moves.record(connection, queue.id, "sweep")
    return len(moves)


def _names(connection: Connection, consumer_ids: list[int]) -> dict[int | None, str]:
    these = dialect.of(connection).one_of(consumers.c.id, consumer_ids)
    rows = connection.execute(select(consumers.c.id, consumers.c.name).where(these))
    return {row.id: row.name for row in rows}
