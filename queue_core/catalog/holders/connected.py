"""Connected consumers: those that are alive and registered with a queue, or hold messages of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select, union

from queue_core.catalog import dialect
from queue_core.catalog.holder_tables import consumers, interests
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.slices.conditions import IN_FLIGHT, WITH_TICKET
from queue_core.catalog.tables import slices

_HOLDS = and_(slices.c.consumer_id == consumers.c.id, *WITH_TICKET, *IN_FLIGHT)


def count(connection: Connection, now: int, queue_id: int | None = None) -> dict[int, int]:
    """
    Return how many consumers are connected, by the ids of queues that have some.

    *now*: the catalog's time. *queue_id*: only of this queue. A consumer without heartbeats, such
    as `Queue.fire` in a script, counts while it holds messages that it has lately fired.
    """
    since = now - int(DEAD_AFTER_SECONDS * 1e6)
    alive = consumers.c.heartbeat_at > since
    lately = consumers.c.heartbeat_at.is_(None) & (slices.c.fired_at > since)
    registered = select(interests.c.queue_id, interests.c.consumer_id).where(
        interests.c.consumer_id == consumers.c.id, alive, *_of(interests.c.queue_id, queue_id)
    )
    holding = select(slices.c.queue_id, slices.c.consumer_id).where(
        _HOLDS, or_(alive, lately), *_of(dialect.not_indexed(slices.c.queue_id), queue_id)
    )
    found = union(registered, holding).subquery("connected")
    query = select(found.c.queue_id, func.count()).group_by(found.c.queue_id)
    return dict(connection.execute(query).all())


def queues_of(connection: Connection, names: Collection[str]) -> dict[str, Sequence[int]]:
    """Return the ids of the queues with which consumers of some names are registered."""
    query = select(consumers.c.name, interests.c.queue_id).where(
        interests.c.consumer_id == consumers.c.id, dialect.one_of(consumers.c.name, sorted(names))
    )
    found: dict[str, list[int]] = defaultdict(list)
    for name, queue_id in connection.execute(query):
        found[name].append(queue_id)
    return dict(found)


def _of(column: ColumnElement[int], queue_id: int | None) -> list[ColumnElement[bool]]:
    return [] if queue_id is None else [column == queue_id]
