"""Remove the rows of a queue that is dropped, in the order in which all verbs lock them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Table, delete

from queue_core.catalog.tables import (
    allotments,
    counters,
    dedup,
    interests,
    lanes,
    metadata,
    queues,
    samples,
    segments,
    shards,
    slices,
    turns,
)

_MESSAGES = (turns, slices)
_LOCKED = (queues, interests, shards, lanes, counters)
#: Segments are released with the messages, and side tasks remove keys and samples.
_LEFT = (allotments, *_MESSAGES, *_LOCKED, segments, dedup, samples)
#: Tables whose rows no other verb locks.
_REST = [table for table in metadata.sorted_tables if "queue_id" in table.c and table not in _LEFT]


def remove_buckets(connection: Connection, queue_id: int) -> None:
    """Remove the buckets of limits, which a firing locks before the turns."""
    _remove(connection, [allotments], queue_id)


def remove_messages(connection: Connection, queue_id: int) -> None:
    """Remove the slices, and the turns by which they are fired."""
    _remove(connection, _MESSAGES, queue_id)


def remove_rest(connection: Connection, queue_id: int) -> None:
    """Remove the queue itself and what is left of it, once its segments are released."""
    _remove(connection, [*_LOCKED, *_REST], queue_id)


def _remove(connection: Connection, tables: Sequence[Table], queue_id: int) -> None:
    for table in tables:
        column = table.c.id if table is queues else table.c.queue_id
        connection.execute(delete(table).where(column == queue_id))
