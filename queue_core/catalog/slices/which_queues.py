"""Which queues have messages of some kind: one look at an index for each queue."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import ColumnElement, Connection, select

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import IN_FLIGHT, READY, WAITING, ago, in_magazines
from queue_core.catalog.tables import queues, slices
from queue_core.values.model import Magazine


def with_messages_in_flight(connection: Connection) -> set[int]:
    """Return the ids of the queues with messages in flight."""
    return _having(connection, None, *in_magazines([*Magazine]), *IN_FLIGHT)


def with_ready(connection: Connection, queue_ids: Collection[int]) -> set[int]:
    """Return those of some queues in whose sideline a message waits that may return to main."""
    return _having(connection, queue_ids, *in_magazines([Magazine.SIDELINE]), *WAITING, *READY)


def with_older_messages(
    connection: Connection, queue_ids: Collection[int], magazine: Magazine, seconds: float
) -> set[int]:
    """Return those of some queues in which a message waits that was loaded so long ago."""
    old = slices.c.loaded_at <= ago(seconds)
    return _having(connection, queue_ids, *in_magazines([magazine]), *WAITING, old)


def _having(
    connection: Connection, queue_ids: Collection[int] | None, *where: ColumnElement[bool]
) -> set[int]:
    """Return those of some queues, or of all, that have a slice which meets conditions."""
    found = select(slices.c.id).where(slices.c.queue_id == queues.c.id, *where).exists()
    query = select(queues.c.id).where(found, *dialect.among(queues.c.id, queue_ids))
    return set(connection.scalars(query))
