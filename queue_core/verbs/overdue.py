"""Overdue: what says itself until when it is wanted is gone afterwards.

Changes: waiting messages whose column of expiry has passed are removed. Guard: they are looked for
outside of the transaction, which takes turns with those who fire and removes what is still there.
Crash before a commit: that batch waits still, and no firing gives it any more.
"""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import Catalog, wake
from queue_core.catalog.reports import Moves
from queue_core.catalog.slices import Changes
from queue_core.model import Magazine, QueueInfo
from queue_core.verbs.choose import Picked, Wanted, choose
from queue_core.verbs.eligibility import of_expiry
from queue_core.verbs.pick import pick
from queue_core.verbs.selection import Selection

#: Messages that one transaction removes at most.
BATCH = 100_000


def remove_overdue(catalog: Catalog, storage_uri: str, queue: QueueInfo) -> int:
    """Remove the waiting messages whose own time is over; return how many."""
    selection = Selection.parse([queue], storage_uri, eligibility=of_expiry)
    gone = 0
    for magazine in Magazine if selection is not None else ():
        wanted = Wanted(
            queue_ids=(queue.id,), magazine=magazine, max_messages=BATCH, selection=selection
        )
        while (picked := pick(catalog, wanted)) is not None and len(picked.ids):
            gone += catalog.write(partial(_remove, queue, wanted, picked))
            faults.point("expire.committed")
    return gone


def _remove(queue: QueueInfo, wanted: Wanted, picked: Picked, connection: Connection) -> int:
    changes, moves = Changes(), Moves()
    for piece, rows in choose(connection, wanted, "wait", picked):
        changes.remove(piece, rows, "expired")
        moves.add(piece, len(rows), None)
    changes.apply(connection)
    moves.record(connection, queue.id, "expire")
    wake.notify(connection, queue.name)
    faults.point("expire.before_commit")
    return len(moves)
