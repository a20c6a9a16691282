"""Deactivate: retire a queue for good.

Changes: the queue's row, once. Guard: each load locks that row until it commits. So a load is
either committed before the deactivation, or refused. Waiting messages stay until they expire. Crash
before the commit: the queue is still in use.
"""

from __future__ import annotations

from queue_core.catalog import queue_changes
from queue_core.catalog.database import Catalog
from queue_core.catalog.transact import transact
from queue_core.values.model import QueueInfo


def deactivate(catalog: Catalog, queue: QueueInfo) -> None:
    """Retire a queue after the running loads; a second call changes nothing."""
    transact(catalog, "deactivate", lambda connection: queue_changes.deactivate(connection, queue))
