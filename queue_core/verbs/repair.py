"""Repair: put quarantined messages back after their segments were restored.

Changes: damaged slices of the queue are loaded again at their places. Those of a ticket are fired
again under it, since their consumer may still settle them. Many slices are put back in rounds, each
of which is whole in itself. Guard: the slices are locked. Crash before a commit: those of its round
are still damaged. A segment that is still unreadable is quarantined again by the next firing that
reads it.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.records import progress
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import DAMAGED, in_queue, numbered_above
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Rounds

#: The most slices that one transaction puts back.
ROUND_SLICES = 1000


def repair(catalog: Catalog, queue_id: int) -> int:
    """Put the damaged messages of a queue back; return how many."""
    damaged = (*in_queue(queue_id), *DAMAGED)
    with catalog.read() as connection:
        progress.expect(amounts.messages(connection, *damaged))

    def work(connection: Connection, begin: int) -> tuple[int, int | None]:
        changes, repaired = Changes(), 0
        # By their ids: those that are damaged again meanwhile wait for the next call.
        following = (*damaged, *numbered_above(begin))
        found = fetch(connection, *following, limit=ROUND_SLICES, lock="wait")
        for piece in found:
            if piece.ticket is None:
                changes.release(piece, piece.rows)
            else:
                changes.refire(piece, piece.rows)
            repaired += len(piece.rows)
        changes.apply(connection)
        last = max(piece.id for piece in found) if len(found) == ROUND_SLICES else None
        return repaired, last

    rounds = Rounds(catalog, "repair")
    rounds.through(work, 0)
    return rounds.done
