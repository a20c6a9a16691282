"""Repair: load quarantined messages again, once their segments are restored."""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import slices
from queue_core.model import State


def repair(catalog: Catalog, queue_id: int) -> int:
    """Load what was set apart again, once its segments were restored; return how many messages."""

    def work(connection: Connection) -> int:
        changes = Changes()
        repaired = 0
        damaged = (slices.c.queue_id == queue_id) & (slices.c.state == int(State.DAMAGED))
        for piece in fetch(connection, damaged, lock="wait"):
            changes.release(piece, piece.rows)
            changes.count(piece, damaged=-len(piece.rows))
            repaired += len(piece.rows)
        changes.apply(connection)
        faults.point("repair.before_commit")
        return repaired

    repaired = catalog.write(work)
    faults.point("repair.committed")
    return repaired
