"""Deactivate: give a queue up, for good.

Changes: the queue's row, once. Guard: a load holds that row until it is committed, so that each is
in the queue before it is given up, or refused. What waits stays where it is, until it expires.
Crash before the commit: the queue is in use still.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.model import QueueInfo


def deactivate(catalog: Catalog, queue: QueueInfo) -> None:
    """Give a queue up; a second time changes nothing."""

    def work(connection: Connection) -> None:
        queues.deactivate(connection, queue.id)
        faults.point("deactivate.before_commit")

    catalog.write(work)
    faults.point("deactivate.committed")
