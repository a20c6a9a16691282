"""Sweep: rescue what was fired too long ago and never finished.

Changes: slices fired before a time become slices of the sideline. Guard: what a living consumer
still works on is left alone: its tickets behind the last acknowledged one, as long as its heart
beats. Slices that others hold are passed over. Crash before the commit: all is fired still.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from queue_core import faults
from queue_core.catalog import Catalog, dialect, wake
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import consumers, slices
from queue_core.model import Magazine, QueueInfo, State
from queue_core.rows import EMPTY

#: A consumer whose heart has not beaten for so many seconds is dead.
DEAD_AFTER_SECONDS = 60.0


def sweep(
    catalog: Catalog,
    queue: QueueInfo,
    older_than: float,
    dead_after: float = DEAD_AFTER_SECONDS,
) -> int:
    """Sideline what was fired more than *older_than* seconds ago; return how many messages."""

    def work(connection: Connection) -> int:
        now = int(connection.scalar(select(dialect.now())) or 0)
        alive = select(consumers.c.id).where(
            consumers.c.id == slices.c.consumer_id,
            consumers.c.heartbeat_at > now - int(dead_after * 1e6),
            consumers.c.acknowledged < slices.c.ticket,
        )
        found = fetch(
            connection,
            slices.c.queue_id == queue.id,
            slices.c.state == int(State.FIRED),
            slices.c.fired_at <= now - int(older_than * 1e6),
            ~alive.exists(),
            lock="skip",
        )
        changes = Changes()
        for piece in found:
            changes.keep(piece, EMPTY)
            changes.move(piece, piece.rows, Magazine.SIDELINE)
            changes.count(piece, swept=len(piece.rows))
        changes.apply(connection)
        if found:
            wake.notify(connection, queue.name)
        faults.point("sweep.before_commit")
        return sum(len(piece.rows) for piece in found)

    swept = catalog.write(work)
    faults.point("sweep.committed")
    return swept
