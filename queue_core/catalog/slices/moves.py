"""Move waiting messages together: to a magazine, or away for good; count and report them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.values.due import NEVER
from queue_core.values.failure_kinds import BY_HAND
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.plan import Taken


class Move(NamedTuple):
    """Where messages go, and how they are counted and reported."""

    #: To the tails of their shards in this magazine; None: they are removed.
    to: Magazine | None
    #: The counter of the shards that they leave.
    counter: str
    #: The task of the report.
    task: str
    #: Where they go, as the report says it; None: to the magazine.
    place: str | None = None

    def note(self, moves: Moves, shard: int, source: Magazine, messages: int) -> None:
        """Note messages of a shard for the report."""
        to = None if self.to is None else self.to.name.lower()
        moves.count(shard, messages, source.name.lower(), self.place or to)

    def note_all(self, moves: Moves, batch: SliceBatch) -> None:
        """Note all messages of some slices."""
        for (_, source, shard), range in batch.by_shard():
            self.note(moves, shard, Magazine(source), batch[range].messages)

    def values(self, now: int) -> dict[str, Any]:
        """Return what the slices get with their new places."""
        if self.to is Magazine.MAIN:
            # By this time, a sweep distinguishes them from messages that are stuck.
            return {"fired_at": now}
        # Only a person moves waiting messages to the sideline, where they stay until one acts.
        return {} if self.to is None else {"due_at": NEVER}


#: From the sideline back to main, and out of the queue at the end of their time.
SHOVELLED = Move(Magazine.MAIN, "shovelled", "shovel")
EXPIRED = Move(None, "expired", "expire")
#: By a person.
DELETED = Move(None, "deleted", BY_HAND)
SIDELINED = Move(Magazine.SIDELINE, "sidelined", BY_HAND)
REQUEUED = SHOVELLED._replace(task=BY_HAND)


def carry_out(
    connection: Connection,
    queue: QueueInfo,
    move: Move,
    taken: Sequence[Taken],
    whole: SliceBatch | None = None,
    *,
    changes: Changes | None = None,
    loaded_at: Mapping[int, int] = MappingProxyType({}),
) -> int:
    """
    Move rows of slices that the transaction has locked; return how many messages were moved.

    *whole* are more of them, as arrays. Other *changes* are applied with it. *loaded_at*: the times
    of loading that slices of these ids get, whose oldest messages stay.
    """
    changes, moves = changes or Changes([queue]), Moves()
    # The one time of all that is written: to read the clock costs as much as a write.
    now = dialect.read_clock(connection) if taken or whole else None
    for piece, rows in taken:
        move.note(moves, piece.shard, piece.magazine, len(rows))
        if move.to is None:
            changes.remove(piece, rows, move.counter)
        else:
            young = {"loaded_at": loaded_at[piece.id]} if piece.id in loaded_at else {}
            changes.move(piece, rows, move.to, move.counter, **move.values(now or 0), **young)
    if whole:
        move.note_all(moves, whole)
    # Packed before the first write, for which others may have to wait.
    moves.packed()
    if whole and move.to is None:
        changes.remove_all(whole, move.counter)
    elif whole and move.to is not None:
        changes.move_all(whole, move.to, move.counter, **move.values(now or 0))
    changes.apply(connection, now)
    moves.record(connection, queue.id, move.task, now)
    return len(moves)
