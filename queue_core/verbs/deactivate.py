"""Deactivate: retire a queue for good.

Changes: the queue's row, once; a subscription gets nothing more from its log, which is not kept for
it any longer. Guard: each load locks that row until it commits. So a load is
either committed before the deactivation, or refused. Waiting messages stay until they expire. Crash
before the commit: the queue is still in use.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog import dialect, queue_changes
from queue_core.catalog.database import Catalog
from queue_core.catalog.transact import transact
from queue_core.values.model import QueueInfo
from queue_core.verbs.detach import detach_within


def deactivate(catalog: Catalog, queue: QueueInfo, task: str = "by_hand") -> None:
    """Retire a queue after the running loads, once, and report what a log had for it as *task*."""

    def work(connection: Connection) -> None:
        if queue.log_of:
            detach_within(connection, queue, task)
        queue_changes.deactivate(connection, queue)

    seconds = None if task == "by_hand" else dialect.TASK_LOCK_SECONDS
    transact(catalog, "deactivate", work, seconds=seconds)
