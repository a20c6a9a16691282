"""Reset: put kept messages back, so that they are fired again.

Changes: slices of main that keepers hold are loaded again at their old places. Guard: the slices
are locked; only slices of this process's keeper and of dead keepers are reset. Crash before the
commit: the messages are still kept. Crash after it: they wait.
"""

from __future__ import annotations

from sqlalchemy import Connection, select

from queue_core.catalog.changes import Changes
from queue_core.catalog.consumers import DEAD_AFTER_SECONDS, KEEPER
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import consumers, slices
from queue_core.catalog.transact import transact
from queue_core.model import Consumer, Magazine, QueueInfo, State
from queue_core.selection.conditions import ago


def reset(
    catalog: Catalog,
    queue: QueueInfo,
    keeper: Consumer | None,
    dead_after: float = DEAD_AFTER_SECONDS,
) -> int:
    """Load kept messages again at their old places; return how many."""
    dead = consumers.c.name.startswith(KEEPER, autoescape=True) & (
        consumers.c.heartbeat_at <= ago(dead_after)
    )
    keepers = dead if keeper is None else dead | (consumers.c.id == keeper.id)

    def work(connection: Connection) -> int:
        kept = fetch(
            connection,
            slices.c.queue_id == queue.id,
            slices.c.magazine == int(Magazine.MAIN),
            slices.c.state == int(State.FIRED),
            slices.c.consumer_id.in_(select(consumers.c.id).where(keepers)),
            lock="wait",
        )
        changes = Changes([queue])
        for piece in kept:
            changes.release(piece, piece.rows)
            changes.count(piece, reloaded=len(piece.rows))
        changes.apply(connection)
        return sum(len(piece.rows) for piece in kept)

    return transact(catalog, "reset", work)
