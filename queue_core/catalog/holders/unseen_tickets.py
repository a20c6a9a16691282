"""
Unseen tickets: those of dead consumers that were never planned, so that nobody saw their messages.

A browser's ticket holds no messages; it records where its consumer continues, and is none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, delete, false, func, or_, select

from queue_core.catalog import dialect
from queue_core.catalog.slices.conditions import Rules
from queue_core.catalog.tables import consumers, slices, tickets

#: The numbers of some tickets, by the id of their consumer.
Numbers = Mapping[int, Sequence[int]]


def there_are_some(connection: Connection, dead_after: float) -> bool:
    """Return whether there are unseen tickets."""
    return connection.execute(_unseen(dead_after).limit(1)).first() is not None


def find(connection: Connection, dead_after: float) -> Sequence[tuple[int, int, int]]:
    """Return the consumer and the number of each, and how many messages it has."""
    held = (slices.c.consumer_id == tickets.c.consumer_id) & (slices.c.ticket == tickets.c.number)
    messages = select(func.coalesce(func.sum(slices.c.count), 0)).where(held).scalar_subquery()
    rows = connection.execute(_unseen(dead_after).add_columns(messages))
    return [(consumer_id, number, int(count)) for consumer_id, number, count in rows]


def lock(connection: Connection, dead_after: float, some: Numbers) -> Numbers:
    """Lock those of some tickets that are still unseen, except where a consumer is at work."""
    # A consumer that is at work locks its own row, and is not dead.
    these = _these(tickets.c.consumer_id, tickets.c.number, some)
    query = _unseen(dead_after).where(these)
    numbers: dict[int, list[int]] = defaultdict(list)
    for row in connection.execute(query.with_for_update(skip_locked=True, of=(tickets, consumers))):
        numbers[row.consumer_id].append(row.number)
    return numbers


def held_in(some: Numbers) -> Rules:
    """Return the condition of slices that tickets hold."""
    return (_these(slices.c.consumer_id, slices.c.ticket, some),)


def remove(connection: Connection, some: Numbers) -> None:
    """Remove the rows of tickets."""
    these = _these(tickets.c.consumer_id, tickets.c.number, some)
    connection.execute(delete(tickets).where(these))


def _unseen(dead_after: float) -> Select[Any]:
    dead = dialect.now() - int(dead_after * 1e6)
    return (
        select(tickets.c.consumer_id, tickets.c.number)
        .join(consumers, consumers.c.id == tickets.c.consumer_id)
        .where(
            tickets.c.planned_at.is_(None),
            tickets.c.browsed.is_(None),
            consumers.c.heartbeat_at < dead,
        )
    )


def _these(
    holder: ColumnElement[Any], number: ColumnElement[Any], some: Numbers
) -> ColumnElement[bool]:
    each = (and_(holder == consumer, dialect.one_of(number, of)) for consumer, of in some.items())
    return or_(false(), *each)
