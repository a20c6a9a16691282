"""The view of limits: how many messages each allows now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.records import token_buckets
from queue_core.catalog.records.token_buckets import BucketKey
from queue_core.catalog.slices import amounts
from queue_core.values import buckets
from queue_core.values.limits import Limit
from queue_core.values.model import QueueInfo

#: The most values of one limit that the view shows: those with the most messages in flight, and
#: those with the fewest tokens.
MOST_VALUES = 1000


def limits(
    connection: Connection, shown: Iterable[QueueInfo], storage: str
) -> Iterator[Mapping[str, Any]]:
    """
    Yield a row for each limit of a queue, and for each value that a limit of values holds back.

    Those are the values with messages in flight, if the limit counts them, and those that were
    fired within the limit's window. A limit with a name has a row for each of its queues, with the
    figures of all of them. *storage*: the URI from which the values in flight are read.
    """
    for queue in shown:
        for limit in queue.settings.limits:
            yield from _rows(connection, queue, limit, storage)


def _rows(
    connection: Connection, queue: QueueInfo, limit: Limit, storage: str
) -> Iterator[Mapping[str, Any]]:
    shown: dict[str, Any] = {"queue": queue.name, "limit": str(limit)}
    if limit.column is None:
        in_flight = amounts.in_flight(connection, queue.id, limit.name)
        bucket = token_buckets.read(connection, BucketKey.of(queue.id, limit))
        yield shown | {"value": None, "in_flight": in_flight} | _bucket(limit, *bucket)
    else:
        spent = token_buckets.of_values(connection, queue.id, limit.column, MOST_VALUES)
        now = dialect.read_clock(connection)
        held = _held(connection, queue, limit, storage, now)
        used = {key for key, until in spent.items() if not _is_full(limit, until, now)}
        for value in [*held, *sorted(used - held.keys(), key=lambda key: (-spent[key], key))]:
            counts = {"in_flight": held.get(value, 0)} if limit.in_flight is not None else {}
            yield shown | {"value": value} | counts | _bucket(limit, spent.get(value), now)


def _held(
    connection: Connection, queue: QueueInfo, limit: Limit, storage: str, now: int
) -> dict[str, int]:
    """Return how many messages of each value are in flight, if the limit counts them."""
    if limit.in_flight is None or limit.column is None:
        return {}
    from queue_core.selection.by_value import in_flight_by_value, key_of
    from queue_core.selection.scan import SliceScan

    scan = SliceScan(connection, [queue], storage, now)
    counts = in_flight_by_value(scan, queue.id, {limit.column}).get(limit.column, {})
    most = sorted(counts.items(), key=lambda item: (-item[1], key_of(item[0])))[:MOST_VALUES]
    return {key_of(value): count for value, count in most}


def _is_full(limit: Limit, spent_until: int, now: int) -> bool:
    return limit.per_second is None or buckets.is_full(limit, spent_until, now)


def _bucket(limit: Limit, spent_until: int | None, now: int) -> dict[str, Any]:
    if limit.per_second is None:
        return {}
    tokens = buckets.tokens(limit, spent_until, now)
    next_at = None if tokens else now + buckets.wait(limit, spent_until, now)
    return {"tokens": tokens, "next_at": next_at}
