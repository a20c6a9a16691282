"""Trim: remove the beginning of a queue's log.

Changes: the rows of the log that exceed the setting `log`, oldest first, and the segments that
nothing else names; before that, the snapshots whose time is over. What a subscription or a snapshot
has not taken in stays, however old it is. Guard: the locks of the shards of its subscriptions,
under which they take messages in, and the row of the log, which a new subscription holds; no load
waits for either. Messages are removed by age, so the clock is checked. Crash before the commit: the
log is as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import dialect, snapshots
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.queues import as_it_is
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import copying, logs
from queue_core.catalog.transact import Rounds, transact
from queue_core.errors import CatalogForbidden
from queue_core.values.model import QueueInfo
from queue_core.verbs.drop import remove

_log = logging.getLogger(__name__)
#: The most rows of a log that one transaction removes.
ROUND_ROWS = 1000


def trim(catalog: Catalog, queue: QueueInfo) -> int:
    """
    Remove what exceeds the limits of a queue's log, in rounds; return how many messages.

    It ends if a transaction of a caller keeps the lock of a subscription; the next trim goes on.
    Raises `CatalogUnavailable` if the clock may have jumped.
    """
    clock.check(catalog)
    with catalog.read() as connection:
        over = [*snapshots.ended(connection, [queue.id])]
    try:
        if over:
            transact(catalog, "trim", partial(_end, snapshot_ids=over))
    except CatalogForbidden:
        _log.warning(
            "the log of queue %r is kept for snapshots whose time is over: only the owner of the "
            "catalog or an operator may remove them. Run trim in such a process, too",
            queue.name,
        )
    if queue.settings.log is None:
        return 0
    rounds = Rounds(catalog, "trim", seconds=dialect.TASK_LOCK_SECONDS)
    # Other subscriptions must not wait for one from which a caller's transaction has fired.
    with suppress(dialect.StillLocked):
        rounds.repeat(partial(_trim, queue=queue))
    return rounds.done


def _end(connection: Connection, snapshot_ids: Sequence[int]) -> None:
    copying.hold(connection, snapshot_ids)
    for snapshot_id in snapshot_ids:
        remove(connection, snapshot_id)
    clock.confirm(connection)


def _trim(connection: Connection, queue: QueueInfo) -> int:
    if not logs.hold(connection, queue.id):
        return 0
    # A process that runs many tasks may have read the queue hours ago.
    limits = as_it_is(connection, queue).settings.log_limits
    old = logs.find_old(connection, queue.id, limits, ROUND_ROWS)
    logs.trim(connection, queue.id, old)
    clock.confirm(connection)
    moves = Moves()
    for shard, messages in old.messages.items():
        moves.count(shard, messages, "log", None)
    moves.record(connection, queue.id, "trim")
    return len(moves)
