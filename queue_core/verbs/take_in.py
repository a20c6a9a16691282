"""Take in: make slices of what subscriptions have not taken from the logs that they read.

A firing of any message takes what it needs itself. One that chooses or orders messages, or ends at
a moment, needs all of them as slices before it looks.

Changes: waiting slices at the tails of the subscriptions, and their cursors. Guard: the locks of
their shards, which firings and `trim` need too. Crash before the commit: the messages are still in
the log. Crash after it: they wait in the subscriptions.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import amounts, intake, shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.transact import Rounds
from queue_core.values.model import State

#: The most slices that one transaction makes.
ROUND_SLICES = 1000


def take_in(catalog: Catalog, queue_ids: Collection[int]) -> int:
    """Take in all messages that wait in logs for some queues, in rounds; return how many."""
    with catalog.read() as connection:
        if not amounts.anything_logged(connection, queue_ids):
            return 0
    return Rounds(catalog, "take_in").repeat(partial(_take_in, queue_ids=queue_ids))


def _take_in(connection: Connection, queue_ids: Collection[int]) -> int:
    backlog = shard_locks.lock(connection, queue_ids)
    behind = {key: shard.behind for key, shard in backlog.items() if shard.behind}
    most = max(ROUND_SLICES // max(len(behind), 1), 1)
    changes, taken = Changes([]), 0
    for pieces in intake.behind(connection, backlog, behind, most).values():
        for piece in pieces:
            changes.enter(piece, piece.rows, state=int(State.LOADED))
            taken += len(piece.rows)
    changes.apply(connection)
    return taken
