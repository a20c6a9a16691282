"""Drop: remove a deactivated queue and free its name.

Changes: all rows of the queue are deleted and its files become garbage, in one transaction. Guard:
the queue is deactivated, which cannot be undone. Crash before the commit: nothing was removed.
"""

from __future__ import annotations

from sqlalchemy import Connection, Table, delete, select

from queue_core.catalog.database import Catalog
from queue_core.catalog.segments import release
from queue_core.catalog.tables import (
    counters,
    dedup,
    failures,
    id_map,
    interests,
    locks,
    publications,
    queues,
    schedule,
    schemas,
    segments,
    shards,
    slices,
    task_log,
    turns,
    waiters,
)
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.model import QueueInfo

#: In the order in which all verbs lock them; then tables whose rows no other verb locks.
_FIRST: tuple[Table, ...] = (turns, slices)
_THEN: tuple[Table, ...] = (
    queues,
    interests,
    shards,
    counters,
    id_map,
    dedup,
    failures,
    waiters,
    publications,
    task_log,
    schedule,
    schemas,
    locks,
)


def drop(catalog: Catalog, queue: QueueInfo) -> None:
    """Remove a deactivated queue with its messages; raises `BadOption` for a queue in use."""

    def work(connection: Connection) -> None:
        in_use = select(queues.c.id).where(
            queues.c.id == queue.id, queues.c.deactivated_at.is_(None)
        )
        if connection.scalar(in_use) is not None:
            raise BadOption(f"queue {queue.name!r} is in use; deactivate it before you drop it")
        _remove(connection, _FIRST, queue.id)
        ids = connection.scalars(select(segments.c.id).where(segments.c.queue_id == queue.id))
        release(connection, ids.all())
        _remove(connection, _THEN, queue.id)

    transact(catalog, "drop", work)


def _remove(connection: Connection, tables: tuple[Table, ...], queue_id: int) -> None:
    for table in tables:
        column = table.c.id if table is queues else table.c.queue_id
        connection.execute(delete(table).where(column == queue_id))
