"""The names of trials: each time that a query hands out suspects which it settles.

An executor notes the name in the storage before it reads them (`queue_core.segments.trials`).
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, select

from queue_core.catalog.holder_tables import consumers, tickets
from queue_core.catalog.holders.consumers import SETTLES
from queue_core.values.model import Slice


def trial(connection: Connection, held: Sequence[Slice], lives_ago: int = 0) -> str | None:
    """
    Return the name of the trial in which a query hands out the messages of a batch.

    *held* are the slices of its tickets. *lives_ago* is 1 for the trial of the query's last life.
    It is None if other messages than suspects are among them, or if the query settles none. Runs
    within a transaction.
    """
    if not held or not all(piece.lost_among for piece in held):
        return None
    newest = max(held, key=lambda piece: piece.ticket or 0)
    row = connection.execute(
        select(tickets.c.fired_at, tickets.c.lives)
        .join(consumers, consumers.c.id == tickets.c.consumer_id)
        .where(
            tickets.c.consumer_id == newest.consumer_id,
            tickets.c.number == newest.ticket,
            consumers.c.ack == SETTLES,
        )
    ).first()
    if row is None:
        return None
    # The time tells tickets apart that have the same number before and after a restore.
    return f"{newest.consumer_id}-{newest.ticket}-{row.fired_at}-{row.lives - lives_ago}"
