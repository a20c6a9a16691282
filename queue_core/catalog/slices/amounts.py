"""How many messages and bytes there are, added up over slices, and which queues have some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, Row, Select, bindparam, func, select

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import IN_FLIGHT, Rules, in_magazines, in_queues
from queue_core.catalog.slices.shard_locks import ANY_BEHIND
from queue_core.catalog.tables import queues, shared_limits, slices
from queue_core.values.model import Magazine

# Built once: each firing of a queue with limits uses it.
_SHARING = select(shared_limits.c.queue_id).where(shared_limits.c.name == bindparam("name"))
_MESSAGES = select(func.sum(slices.c.count)).where(*in_magazines([Magazine.MAIN]), *IN_FLIGHT)
_IN_FLIGHT = _MESSAGES.where(slices.c.queue_id == bindparam("queue"))
_IN_FLIGHT_OF_NAME = _MESSAGES.where(slices.c.queue_id.in_(_SHARING))
_LOGGED = select(ANY_BEHIND)


class Counted(NamedTuple):
    """How many slices there are, and how many messages they have."""

    slices: int
    messages: int


def messages(
    connection: Connection,
    *where: ColumnElement[bool],
    given: Mapping[str, Any] | None = None,
) -> int:
    """Return how many messages the slices have that meet conditions; none: all slices."""
    return int(connection.scalar(select(func.sum(slices.c.count)).where(*where), given) or 0)


def in_flight(connection: Connection, queue_id: int, shared: str | None) -> int:
    """Return how many messages are in flight from the main of a queue, or of those of a limit."""
    if shared is None:
        return int(connection.scalar(_IN_FLIGHT, {"queue": queue_id}) or 0)
    return int(connection.scalar(_IN_FLIGHT_OF_NAME, {"name": shared}) or 0)


def size(connection: Connection, queue_ids: Collection[int], magazine: Magazine) -> int:
    """Return how many bytes a magazine of some queues has."""
    query = select(func.sum(slices.c.bytes)).where(*in_queues(queue_ids, magazine))
    return int(connection.scalar(query) or 0)


def sizes(connection: Connection, queue_ids: Collection[int] | None = None) -> Sequence[Row[Any]]:
    """Return the `bytes` in each queue, magazine and state, of some queues or of all."""
    place = (slices.c.queue_id, slices.c.magazine, slices.c.state)
    size = func.sum(slices.c.bytes).cast(BigInteger).label("bytes")
    query = select(*place, size).where(*dialect.among(slices.c.queue_id, queue_ids))
    return connection.execute(query.group_by(*place)).all()


def queues_with(
    connection: Connection, queue_ids: Collection[int] | None, *where: ColumnElement[bool]
) -> set[int]:
    """Return those of some queues, or of all, with a slice that meets conditions: by an index."""
    found = select(slices.c.id).where(slices.c.queue_id == queues.c.id, *where).exists()
    query = select(queues.c.id).where(found, *dialect.among(queues.c.id, queue_ids))
    return set(connection.scalars(query))


def anything(connection: Connection, where: Rules, given: Mapping[str, Any]) -> bool:
    """Return whether a slice meets conditions that were built once."""
    return connection.scalar(_any(where), given) is not None


def anything_logged(connection: Connection, queue_ids: Collection[int]) -> bool:
    """Return whether messages of logs wait for some subscriptions."""
    return bool(connection.scalar(_LOGGED, {"behind_of": queue_ids}))


def count_upto(
    connection: Connection, where: Rules, given: Mapping[str, Any], most: int
) -> Counted:
    """Count the slices that meet conditions that were built once, *most* of them at most."""
    found = connection.execute(_counting(where), {**given, "most": most}).one()
    return Counted(int(found.slices), int(found.messages or 0))


@lru_cache(maxsize=64)
def _any(where: Rules) -> Select[int]:
    return select(slices.c.id).where(*where).limit(1)


@lru_cache(maxsize=64)
def _counting(where: Rules) -> Select[int, Any]:
    most = bindparam("most", type_=BigInteger)
    some = select(slices.c.count.label("messages")).where(*where).limit(most).subquery()
    return select(func.count().label("slices"), func.sum(some.c.messages).label("messages"))
