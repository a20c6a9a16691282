"""Reset: what was received and kept is next again.

Changes: slices of main that keepers hold wait again, at their old places. Guard: only what this
process keeps, and what those keep that are dead, since they cannot ask for it; slices are locked.
Crash before the commit: all of it is kept still. Crash after it: it waits.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from queue_core import faults
from queue_core.catalog.consumers import DEAD_AFTER_SECONDS, KEEPER
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import consumers, slices
from queue_core.model import Consumer, Magazine, QueueInfo, State
from queue_core.selection.conditions import ago


def reset(
    catalog: Catalog,
    queue: QueueInfo,
    keeper: Consumer | None,
    dead_after: float = DEAD_AFTER_SECONDS,
) -> int:
    """Let all that was kept wait again, the oldest first; return how many messages."""
    dead = consumers.c.name.startswith(KEEPER, autoescape=True) & (
        consumers.c.heartbeat_at <= ago(dead_after)
    )
    whose = dead if keeper is None else dead | (consumers.c.id == keeper.id)

    def work(connection: Connection) -> int:
        found = fetch(
            connection,
            slices.c.queue_id == queue.id,
            slices.c.magazine == int(Magazine.MAIN),
            slices.c.state == int(State.FIRED),
            slices.c.consumer_id.in_(select(consumers.c.id).where(whose)),
            lock="wait",
        )
        changes = Changes()
        for piece in found:
            changes.release(piece, piece.rows)
            changes.count(piece, reloaded=len(piece.rows))
        changes.apply(connection)
        faults.point("reset.before_commit")
        return sum(len(piece.rows) for piece in found)

    given_back = catalog.write(work)
    faults.point("reset.committed")
    return given_back
