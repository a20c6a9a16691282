"""Repair: put quarantined messages back after their segments were restored.

Changes: damaged slices of the queue are loaded again at their places. Those of a ticket are fired
again under it, since their consumer may still settle them. Guard: the slices are locked.
Crash before the commit: they are still damaged. A segment that is still unreadable is quarantined
again by the next firing that reads it.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog.changes import Changes
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import slices
from queue_core.catalog.transact import transact
from queue_core.model import State


def repair(catalog: Catalog, queue_id: int) -> int:
    """Put the damaged messages of a queue back; return how many."""

    def work(connection: Connection) -> int:
        changes = Changes()
        repaired = 0
        damaged = (slices.c.queue_id == queue_id) & (slices.c.state == int(State.DAMAGED))
        for piece in fetch(connection, damaged, lock="wait"):
            if piece.ticket is None:
                changes.release(piece, piece.rows)
            else:
                changes.refire(piece, piece.rows)
            repaired += len(piece.rows)
        changes.apply(connection)
        return repaired

    return transact(catalog, "repair", work)
