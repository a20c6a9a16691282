"""Which queues have messages of some kind: one look at an index for each queue."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection, select

from queue_core.catalog import dialect
from queue_core.catalog.records.retries import ready
from queue_core.catalog.slices.conditions import IN_FLIGHT, WAITING, ago, in_magazines
from queue_core.catalog.tables import queues, slices
from queue_core.values.model import Magazine


def with_messages_in_flight(connection: Connection) -> set[int]:
    """Return the ids of the queues with messages in flight."""
    in_flight = select(slices.c.id).where(
        slices.c.queue_id == queues.c.id, *in_magazines([*Magazine]), *IN_FLIGHT
    )
    return set(connection.scalars(select(queues.c.id).where(in_flight.exists())))


def with_ready(connection: Connection, queue_ids: Collection[int]) -> set[int]:
    """Return those of some queues in whose sideline a message waits that may return to main."""
    sidelined = select(slices.c.id).where(
        slices.c.queue_id == queues.c.id, *in_magazines([Magazine.SIDELINE]), *WAITING, ready()
    )
    some = dialect.one_of(queues.c.id, queue_ids)
    return set(connection.scalars(select(queues.c.id).where(some, sidelined.exists())))


def with_older_messages(
    connection: Connection, queue_ids: Collection[int], magazine: Magazine, seconds: float
) -> set[int]:
    """Return those of some queues in which a message waits that was loaded so long ago."""
    old = select(slices.c.id).where(
        slices.c.queue_id == queues.c.id,
        *in_magazines([magazine]),
        *WAITING,
        slices.c.loaded_at <= ago(seconds),
    )
    some = dialect.one_of(queues.c.id, queue_ids)
    return set(connection.scalars(select(queues.c.id).where(some, old.exists())))
