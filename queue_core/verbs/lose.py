"""Lose: take the messages of a consumer whose process ended, and find the one that ended it.

A message whose handler kills its process would be fired for ever. All messages in the hands of a
dead consumer become suspects: they count how often they were lost, and among how many. Suspects are
fired apart, in ever smaller batches (`selection.suspects`). Changes: if the consumer starts again,
its slices are loaded again at their old places; if it stays dead, they stay fired until the sweep.
A loss does not count as a delivery. A message that was lost alone for a second time in a row moves
to the sideline for good, with the kind ``killed``. Guard: the consumer's row; all that it holds is
counted at once, and then belongs to an earlier life. A query whose sink settles counts the tickets
that it plans again, and keeps half of their messages (`abandon`). Crash before the commit: nothing
was counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.identity import clock
from queue_core.catalog.records import acts
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import IN_FLIGHT, held_by
from queue_core.catalog.slices.sidelining import set_aside
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Guard, transact
from queue_core.values.failure_kinds import KILLED
from queue_core.values.model import HandlingConsumer, Magazine, Slice
from queue_core.values.plan import Taken
from queue_core.values.rows import EMPTY

#: The most that the column of losses holds.
_MOST = 2**15 - 1


def lose(catalog: Catalog, consumer_id: int, dead_after: float, guard: Guard | None = None) -> int:
    """
    Count the messages of a dead consumer as lost, before a sweep moves them.

    Return how many were sidelined at once, because they were found guilty. Messages of a consumer
    that lives, or has started again, are left alone. Raises `NotLeading` when *guard* does.
    """

    def work(connection: Connection) -> int:
        dead = consumers.lock_dead(connection, consumer_id, dead_after)
        if dead is None:
            return 0
        acknowledged, last_ticket = dead
        held = _in_hand(connection, consumer_id, acknowledged)
        guilty = count_losses(connection, held, [(piece, piece.rows) for piece in held])
        # From now on they belong to an earlier life, so that they are counted only once.
        consumers.finish_tickets(connection, consumer_id, last_ticket)
        acts.note(connection, guilty)
        clock.confirm(connection)
        return guilty

    return transact(catalog, "lose", work, guard, late=True)


def start_again(catalog: Catalog, name: str, *, browses: bool = False) -> HandlingConsumer:
    """
    Start a life of a consumer with handlers; what it held before waits again, and counts as lost.

    It sends heartbeats, and does not know the tickets of earlier lives. One that *browses* goes on
    where its last life ended, and holds nothing.
    """

    def work(connection: Connection) -> HandlingConsumer:
        counted = consumers.lock_named(connection, name)
        life = consumers.enlist(connection, name, beats=True, anew=not browses)
        if counted is not None and not browses:
            count_losses(connection, _in_hand(connection, life.id, counted))
            # The rest was counted by a sweep that has not moved it yet.
            changes = Changes()
            for piece in _in_hand(connection, life.id, -1):
                changes.reload(piece, piece.rows)
            changes.apply(connection)
        return HandlingConsumer(id=life.id, name=life.name, epoch=life.epoch)

    return transact(catalog, "lose", work)


def count_losses(connection: Connection, held: Sequence[Slice], keep: Sequence[Taken] = ()) -> int:
    """
    Count the slices that one consumer held as lost together; return how many messages are guilty.

    A guilty message was the only one, twice in a row, and moves to the sideline. Others wait again
    at their old places, except for those to *keep*, which stay in their tickets. Runs within a
    transaction that has locked the slices.
    """
    among = sum(len(piece.rows) for piece in held)
    kept = {piece.id: rows for piece, rows in keep}
    by_queue: dict[int, list[Slice]] = defaultdict(list)
    for piece in held:
        by_queue[piece.queue_id].append(piece)
    for queue_id, pieces in sorted(by_queue.items()):
        changes, guilty = Changes(), []
        for piece in pieces:
            values = _losses(piece, among)
            if piece.magazine is Magazine.MAIN and among == piece.lost_among == 1:
                changes.mark(piece, piece.rows, **values)
                guilty.append((piece, piece.rows))
                continue
            stay = kept.get(piece.id, EMPTY)
            changes.mark(piece, stay, **values)
            changes.reload(piece, piece.rows - stay, **values)
        if not guilty:
            changes.apply(connection)
            continue
        reason = (
            f"the process that handled it ended {_losses(guilty[0][0], among)['lost']} times; "
            "the last 2 times, it handled this message alone"
        )
        queue = queues.by_id(connection, queue_id)
        return set_aside(connection, queue, SliceBatch.of(guilty), KILLED, changes, reason)
    return 0


def first_half(held: Sequence[Slice]) -> list[Taken]:
    """Return the first half of some messages, in the order of shards and places; one at least."""
    left = max(sum(len(piece.rows) for piece in held) // 2, 1)
    kept = []
    for piece in held:
        rows, _ = piece.rows.split(min(left, len(piece.rows)))
        left -= len(rows)
        if rows:
            kept.append((piece, rows))
    return kept


def _in_hand(connection: Connection, consumer_id: int, after: int) -> list[Slice]:
    return fetch(connection, *held_by(consumer_id, after=after), *IN_FLIGHT, lock="wait")


def _losses(piece: Slice, among: int) -> dict[str, Any]:
    """Return the new values of messages that were lost among some; only main has suspects."""
    values = {"deliveries": max(piece.deliveries - 1, 0)}
    if piece.magazine is Magazine.MAIN:
        values |= {"lost": min(piece.lost + 1, _MOST), "lost_among": among}
    return values
