"""Deactivate: retire a queue for good.

Changes: the queue's row, once. Guard: each load locks that row until it commits. So a load is
either committed before the deactivation, or refused. Waiting messages stay until they expire. Crash
before the commit: the queue is still in use.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog import dialect, notifications, seals
from queue_core.catalog.database import Catalog
from queue_core.catalog.tables import queues
from queue_core.catalog.transact import transact
from queue_core.values.model import QueueInfo


def deactivate(catalog: Catalog, queue: QueueInfo) -> None:
    """Retire a queue after the running loads; a second call changes nothing."""

    def work(connection: Connection) -> None:
        in_use = (queues.c.id == queue.id, queues.c.deactivated_at.is_(None))
        now = dialect.read_clock(connection)
        seals.change(connection, queues, *in_use, deactivated_at=now)
        # Those who wait for messages or room of the queue wait in vain.
        notifications.notify(connection, queue.id)

    transact(catalog, "deactivate", work)
