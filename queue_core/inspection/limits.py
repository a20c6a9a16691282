"""The view of limits: how many messages each allows now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection, func, select

from queue_core import buckets
from queue_core.catalog import dialect
from queue_core.catalog.allotments import WHOLE
from queue_core.catalog.tables import allotments, slices
from queue_core.limits import Limit
from queue_core.model import Magazine, QueueInfo, State

#: The most values of one limit that the view shows: those with the fewest tokens.
MOST_VALUES = 1000


def limits(connection: Connection, shown: Iterable[QueueInfo]) -> Iterator[Mapping[str, Any]]:
    """Yield a row for each limit, and for each value that was fired within its window."""
    for queue in shown:
        for limit in queue.settings.limits:
            yield from _rows(connection, queue, limit)


def _rows(connection: Connection, queue: QueueInfo, limit: Limit) -> Iterator[Mapping[str, Any]]:
    rows = connection.execute(
        select(allotments.c.value, allotments.c.spent_until)
        .where(
            allotments.c.queue_id == queue.id,
            allotments.c.of_column == (limit.column or WHOLE),
            allotments.c.spent_until.is_not(None),
        )
        .order_by(allotments.c.spent_until.desc(), allotments.c.value)
        .limit(MOST_VALUES)
    ).all()
    spent = {row.value: int(row.spent_until) for row in rows}
    now = dialect.read_clock(connection)
    shown: dict[str, Any] = {"queue": queue.name, "limit": str(limit)}
    if limit.column is None:
        in_flight = _in_flight(connection, queue.id)
        yield (
            shown | {"value": None, "in_flight": in_flight} | _bucket(limit, spent.get(WHOLE), now)
        )
    else:
        for value, until in spent.items():
            if limit.per_second is not None and not buckets.is_full(limit, until, now):
                yield shown | {"value": value} | _bucket(limit, until, now)


def _bucket(limit: Limit, spent_until: int | None, now: int) -> dict[str, Any]:
    if limit.per_second is None:
        return {}
    tokens = buckets.tokens(limit, spent_until, now)
    next_at = None if tokens else now + buckets.wait(limit, spent_until, now)
    return {"tokens": tokens, "next_at": next_at}


def _in_flight(connection: Connection, queue_id: int) -> int:
    fired = select(func.sum(slices.c.count)).where(
        slices.c.queue_id == queue_id,
        slices.c.magazine == int(Magazine.MAIN),
        slices.c.state == int(State.FIRED),
    )
    return int(connection.scalar(fired) or 0)
