"""Detach and attach: end and begin again what a subscription gets from the log that it reads.

Changes: the shard locks of the subscription no longer name the log, or name it again with a place,
and its row says since when it is detached. `trim` no longer waits for it. Its messages and their
outcomes stay. The task `trim` detaches late subscriptions, and drops those whose setting
`when_late` says so; a consumer's role may only detach. Guard: the locks of its shards, which an
intake needs too; under them, the task checks again whether it is late. A new place is chosen while
the log is held. Lateness depends on the time, so the clock is checked. Crash before the commit:
nothing was changed. Crash after it, and before a drop: the next run of the task drops it.
"""

from __future__ import annotations

import logging
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import dialect, queue_changes
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.records import acts, lags
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import logs, shard_locks
from queue_core.catalog.transact import transact
from queue_core.errors import CatalogForbidden, NoSuchQueue
from queue_core.values.model import QueueInfo
from queue_core.verbs.drop import drop

_log = logging.getLogger(__name__)


def detach(catalog: Catalog, queue: QueueInfo) -> None:
    """Stop a subscription at its place; a second call changes nothing. Raises `BadOption`."""
    transact(catalog, "detach", partial(detach_within, queue=queue, task="by_hand"))


def attach(catalog: Catalog, queue: QueueInfo, start: logs.Start) -> None:
    """Let a detached subscription read its log again. Raises `BadOption`."""

    def work(connection: Connection) -> None:
        shard_locks.lock(connection, [queue.id])
        queue_changes.attach(connection, queue, start)

    transact(catalog, "attach", work)


def stop_late(catalog: Catalog, root: QueueInfo) -> int:
    """Detach or drop the subscriptions to a queue that exceed their budgets; return how many."""
    clock.check(catalog)
    with catalog.read() as connection:
        late = lags.late(connection, root.id)
    for queue in late:
        stop, seconds = partial(_stop_late, queue=queue), dialect.TASK_LOCK_SECONDS
        try:
            if not queue.detached_at and not transact(catalog, "detach", stop, seconds=seconds):
                continue
            if queue.settings.when_late == "drop":
                drop(catalog, queue, "trim")
        except (NoSuchQueue, dialect.StillLocked):
            # Another process has dropped it since, or the next trim stops it: a transaction of a
            # caller keeps the lock of a shard.
            continue
        except CatalogForbidden:
            _log.warning(
                "the log of queue %r is kept for subscription %r, which is too late and is to be "
                "dropped: only the owner of the catalog or an operator may drop it. Run trim in "
                "such a process, too",
                root.name,
                queue.name,
            )
    return len(late)


def _stop_late(connection: Connection, queue: QueueInfo) -> bool:
    shard_locks.lock(connection, [queue.id])
    if queue not in lags.late(connection, queue.root):
        return False
    detach_within(connection, queue, "trim")
    if queue.settings.when_late == "drop":
        ends_at = dialect.read_clock(connection)
        queue_changes.deactivate(connection, queue, ends_at=ends_at)
    clock.confirm(connection)
    return True


def detach_within(connection: Connection, queue: QueueInfo, task: str) -> None:
    """Stop a subscription, within a transaction; the reports say that *task* did it."""
    moves = Moves()
    for key, shard in shard_locks.lock(connection, [queue.id]).items():
        if shard.behind:
            moves.count(key[2], shard.behind, "log", None)
    queue_changes.detach(connection, queue)
    moves.record(connection, queue.id, task)
    acts.note(connection)
