"""Remove the rows of a queue that is dropped, in the order in which all verbs lock them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, delete

from queue_core.catalog.tables import (
    allotments,
    counters,
    failures,
    id_map,
    interests,
    jobs,
    lanes,
    locks,
    publications,
    queues,
    schedule,
    schemas,
    shards,
    slices,
    task_log,
    turns,
    waiters,
)

#: In the order of locks; then tables whose rows no other verb locks.
_REST: Sequence[Table] = (
    queues,
    interests,
    shards,
    lanes,
    counters,
    id_map,
    failures,
    waiters,
    publications,
    task_log,
    schedule,
    jobs,
    schemas,
    locks,
)


def remove_buckets(connection: Connection, queue_id: int) -> None:
    """Remove the buckets of limits, which a firing locks before the turns."""
    _remove(connection, (allotments,), queue_id)


def remove_messages(connection: Connection, queue_id: int) -> None:
    """Remove the slices, and the turns by which they are fired."""
    _remove(connection, (turns, slices), queue_id)


def remove_rest(connection: Connection, queue_id: int) -> None:
    """Remove the queue itself and what is left of it, once its segments are released."""
    _remove(connection, _REST, queue_id)


def _remove(connection: Connection, tables: Sequence[Table], queue_id: int) -> None:
    for table in tables:
        column = table.c.id if table is queues else table.c.queue_id
        connection.execute(delete(table).where(column == queue_id))
