"""Retirement: queues that have outlived their time are given up, and later dropped.

A queue is deactivated when it is as old as its setting `queue_expiry`. Whoever deactivated it, it
is dropped when twice that time has passed since, or twice the time in which its messages expire
where it has none; one without either stays for ever, and its name stays taken.
"""

from __future__ import annotations

from sqlalchemy import select

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.tables import queues
from queue_core.model import QueueInfo
from queue_core.verbs.deactivate import deactivate
from queue_core.verbs.drop import drop


def retire(catalog: Catalog, queue: QueueInfo) -> None:
    """Deactivate or drop a queue if it is time to."""
    age = select(
        (dialect.now() - queues.c.created_at).label("created"),
        (dialect.now() - queues.c.deactivated_at).label("deactivated"),
    ).where(queues.c.id == queue.id)
    with catalog.read() as connection:
        ago = connection.execute(age).first()
    if ago is None:
        return
    settings = queue.settings
    lifetime = settings.queue_expiry or settings.message_expiry
    if ago.deactivated is None:
        if settings.queue_expiry is not None and ago.created >= settings.queue_expiry * 1e6:
            deactivate(catalog, queue)
    elif lifetime is not None and ago.deactivated >= 2 * lifetime * 1e6:
        drop(catalog, queue)
