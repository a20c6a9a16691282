"""Lose: take the messages of a consumer whose process ended, and find the one that ended it.

A message whose handler kills its process would be fired for ever. All messages in the hands of a
dead consumer become suspects: they count how often they were lost, and among how many. Suspects are
fired apart, in ever smaller batches (`selection.suspects`). Changes: if the consumer starts again,
its slices are loaded again at their old places; if it stays dead, they stay fired until the sweep.
A loss is no delivery. A message that was lost alone for a second time in a row moves to the
sideline for good, with the kind ``killed``. Guard: the consumer's row; all that it holds is counted
at once, and then belongs to an earlier life. A query whose sink settles counts the tickets that it
plans again, and keeps half of their messages (`abandon`). Crash before the commit: nothing was
counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, not_, select

from queue_core.catalog import dialect, queues, seals
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import KEEPER, enlist, is_alive
from queue_core.catalog.identity import clock
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.sidelining import set_aside
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.tables import consumers, slices
from queue_core.catalog.transact import Guard, transact
from queue_core.values.failure_kinds import KILLED
from queue_core.values.model import HandlingConsumer, Magazine, Slice, State
from queue_core.values.plan import Taken
from queue_core.values.rows import EMPTY, Rows

#: The most that the column of losses holds.
_MOST = 2**15 - 1


def lose(catalog: Catalog, consumer_id: int, dead_after: float, guard: Guard | None = None) -> int:
    """
    Count the messages of a dead consumer as lost, before a sweep moves them.

    Return how many were sidelined at once, because they were found guilty. Messages of a consumer
    that lives, or has started again, are left alone. Raises `NotLeading` when *guard* does.
    """

    def work(connection: Connection) -> int:
        of_dead = and_(consumers.c.id == consumer_id, not_(is_alive(dead_after)))
        query = select(consumers.c.acknowledged, consumers.c.last_ticket).where(of_dead)
        row = connection.execute(dialect.of(connection).locked(query)).first()
        if row is None:
            return 0
        held = _in_hand(connection, consumer_id, row.acknowledged)
        guilty = count_losses(connection, held, [(piece, piece.rows) for piece in held])
        # They are counted once, and are those of an earlier life from now on.
        last = {"acknowledged": row.last_ticket}
        seals.change(connection, consumers, consumers.c.id == consumer_id, **last)
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
        query = select(consumers.c.acknowledged).where(consumers.c.name == name)
        counted = connection.scalar(dialect.of(connection).locked(query))
        life = enlist(connection, name, beats=True, anew=not browses)
        if counted is not None and not browses:
            count_losses(connection, _in_hand(connection, life.id, counted))
            # A sweep has counted these, and has not moved them yet.
            _put_back(connection, _in_hand(connection, life.id, -1))
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
            if piece.magazine is Magazine.MAIN and among == piece.lost_among == 1:
                guilty.append((replace(piece, **_losses(piece, among)), piece.rows))
                continue
            values = _losses(piece, among)
            stay = kept.get(piece.id, EMPTY)
            changes.mark(piece, stay, **values, state=int(State.FIRED))
            _release(changes, piece, piece.rows - stay, values)
        if not guilty:
            changes.apply(connection)
            continue
        reason = (
            f"the process that handled it ended {guilty[0][0].lost} times; "
            "the last 2 times, it handled this message alone"
        )
        queue = queues.by_id(connection, queue_id)
        return set_aside(connection, queue, guilty, KILLED, changes, reason)
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


def dead_holders(
    connection: Connection, queue_id: int, dead_after: float, stuck: Sequence[ColumnElement[bool]]
) -> list[int]:
    """
    Return the dead consumers whose stuck messages of main were not counted as lost yet.

    A query counts its own when it starts again. Without heartbeats, nobody knows who is dead, and a
    keeper holds messages for as long as it likes.
    """
    of_dead = select(consumers.c.id).where(
        consumers.c.id == slices.c.consumer_id,
        consumers.c.acknowledged < slices.c.ticket,
        consumers.c.heartbeat_at.is_not(None),
        consumers.c.ack.is_(None),
        not_(consumers.c.name.startswith(KEEPER, autoescape=True)),
        not_(is_alive(dead_after)),
    )
    here = (slices.c.queue_id == queue_id, slices.c.magazine == int(Magazine.MAIN))
    found = select(slices.c.consumer_id).where(*here, *stuck, of_dead.exists()).distinct()
    return sorted(connection.scalars(found))


def _in_hand(connection: Connection, consumer_id: int, after: int) -> list[Slice]:
    return fetch(
        connection,
        slices.c.consumer_id == consumer_id,
        slices.c.ticket > after,
        slices.c.state == int(State.FIRED),
        lock="wait",
    )


def _losses(piece: Slice, among: int) -> dict[str, Any]:
    """Return the new values of messages that were lost among some; only main has suspects."""
    values = {"deliveries": max(piece.deliveries - 1, 0)}
    if piece.magazine is Magazine.MAIN:
        values |= {"lost": min(piece.lost + 1, _MOST), "lost_among": among}
    return values


def _put_back(connection: Connection, pieces: Sequence[Slice]) -> None:
    changes = Changes()
    for piece in pieces:
        _release(changes, piece, piece.rows, {})
    changes.apply(connection)


def _release(changes: Changes, piece: Slice, rows: Rows, values: Mapping[str, int]) -> None:
    changes.release(piece, rows, **values)
    if rows:
        changes.count(piece, reloaded=len(rows))
