"""Retirement: deactivate queues that are too old, and later drop them, as a part of the expiry.

A queue is deactivated at the age of its setting `queue_expiry`. It is dropped twice that time after
its deactivation, or twice its `message_expiry` if it has no `queue_expiry`. Without both, it stays,
and keeps its name. It also stays while its sideline has messages, which only `sideline_expiry` or a
person removes.
"""

from __future__ import annotations

from sqlalchemy import select

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.tables import queues
from queue_core.integrity import clock
from queue_core.model import QueueInfo
from queue_core.verbs.deactivate import deactivate
from queue_core.verbs.drop import drop


def retire(catalog: Catalog, queue: QueueInfo) -> None:
    """Deactivate or drop a queue when it is due."""
    age = select(
        (dialect.now() - queues.c.created_at).label("created"),
        (dialect.now() - queues.c.deactivated_at).label("deactivated"),
    ).where(queues.c.id == queue.id)
    with catalog.read() as connection:
        ago = connection.execute(age).first()
    if ago is None:
        return
    # After the ages were read, so that a jump before the reading is noticed.
    clock.check(catalog)
    settings = queue.settings
    lifetime = settings.queue_expiry or settings.message_expiry
    if ago.deactivated is None:
        if settings.queue_expiry is not None and ago.created >= settings.queue_expiry * 1e6:
            deactivate(catalog, queue)
    elif lifetime is not None and ago.deactivated >= 2 * lifetime * 1e6:
        drop(catalog, queue, keeps_sideline=True)
