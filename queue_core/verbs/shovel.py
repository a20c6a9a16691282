"""Shovel: sidelined messages go back to main.

Changes: slices of the sideline become slices of main, at its tail, stamped with the time. Guard: it
takes turns with those who fire from the sideline. No payload is read, and there is no moment at
which a message is in both magazines or in none. Crash before the commit: all is in the sideline
still.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from queue_core import faults
from queue_core.catalog import Catalog, dialect, wake
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import slices
from queue_core.model import Magazine, QueueInfo, State
from queue_core.plan import take
from queue_core.rows import EMPTY
from queue_core.verbs.choose import Wanted, waiting


def shovel(catalog: Catalog, queue: QueueInfo, limit: int | None = None) -> int:
    """Move up to *limit* waiting messages, each shard in order; return how many were moved."""

    def work(connection: Connection) -> int:
        waiting(connection, Wanted(queue_ids=(queue.id,), magazine=Magazine.SIDELINE), lock="wait")
        now = connection.scalar(select(dialect.now()))
        found = fetch(
            connection,
            slices.c.queue_id == queue.id,
            slices.c.magazine == int(Magazine.SIDELINE),
            slices.c.state == int(State.LOADED),
            lock="skip",
        )
        changes = Changes()
        moved = 0
        for shard in sorted({piece.shard for piece in found}):
            left = None if limit is None else limit - moved
            for piece, rows in take([s for s in found if s.shard == shard], left):
                changes.keep(piece, piece.rows - rows if rows is not piece.rows else EMPTY)
                changes.move(piece, rows, Magazine.MAIN, fired_at=now)
                changes.count(piece, shovelled=len(rows))
                changes.fire(piece, rows)
                moved += len(rows)
        changes.apply(connection)
        if moved:
            wake.notify(connection, queue.name)
        faults.point("shovel.before_commit")
        return moved

    moved = catalog.write(work)
    faults.point("shovel.committed")
    return moved
