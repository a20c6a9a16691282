"""Samples: what the figures of the queues were, every ten seconds, minute and hour.

Each round adds one row per queue. When a minute or an hour is over, its rows become one row per
queue: the highest figures of that time, and the sums of the messages that were counted. So a peak
stays visible. Rates need no window over rows: each row has the number of messages, and the time in
which they were counted. A figure that is not known is null.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Any

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Float,
    Row,
    Select,
    Update,
    bindparam,
    case,
    cast,
    delete,
    func,
    or_,
    select,
    update,
)

from queue_core.catalog import dialect
from queue_core.catalog.holders import leases
from queue_core.catalog.record_tables import samples
from queue_core.catalog.records.figures import COUNTED
from queue_core.catalog.records.timings import HANDLING, QUANTILES, UNSAMPLED, WAITING, merged
from queue_core.catalog.tables import queues

#: The seconds of a row, from the finest to the coarsest, and for how many seconds it is kept.
KEPT_SECONDS = {10: 3600, 60: 24 * 3600, 3600: 30 * 24 * 3600}
#: The seconds between two rounds.
FINEST = min(KEPT_SECONDS)

_DEPTHS = ("waiting", "oldest_age", "longest_wait", "in_flight", "sidelined", "retrying", "dead")
#: How long messages took, of those that were fired or handled in that time.
_TIMES = tuple(f"{name}_{end}" for name in (WAITING, HANDLING) for end in QUANTILES)
_NEW = {name: samples.c[f"new_{name}"] for name in COUNTED}


def _rate(name: str) -> ColumnElement[float]:
    known = case((samples.c.elapsed > 0, samples.c.elapsed))
    return (cast(_NEW[name], Float(53)) * 1e6 / known).label(f"{name}_per_s")


def _seconds(names: Iterable[str]) -> tuple[ColumnElement[float], ...]:
    return tuple((cast(samples.c[name], Float(53)) / 1e6).label(name) for name in names)


_AGES = _seconds(("oldest_age", "longest_wait"))
_RATES = tuple(map(_rate, COUNTED))
_PRESENT = (samples.c.waiting, *_AGES, samples.c.in_flight, samples.c.sidelined)


def last_round(connection: Connection) -> dict[int, Row[Any]]:
    """
    Return the samples of the last round before `now`, by the id of their queue.

    Each also says whether messages were `measured` since.
    """
    fine, now = samples.c.seconds == FINEST, select(dialect.now()).scalar_subquery()
    newest = select(func.max(samples.c.taken_at)).where(fine, samples.c.taken_at <= now)
    query = select(samples, now.label("now"), UNSAMPLED.label("measured")).where(
        fine, samples.c.taken_at == newest.scalar_subquery()
    )
    return {row.queue_id: row for row in connection.execute(query)}


def row_of(figures: Row[Any], before: Row[Any] | None, now: int) -> dict[str, Any]:
    """Return the sample of a queue; *before* is its former one."""
    row: dict[str, Any] = {"seconds": FINEST, "taken_at": now, "queue_id": figures.queue_id}
    row |= {name: getattr(figures, name) for name in _DEPTHS}
    row |= {f"all_{name}": getattr(figures, f"all_{name}") for name in COUNTED}
    row |= dict.fromkeys(("elapsed", *(f"new_{name}" for name in COUNTED)))
    if before is not None:
        total = [(row[f"all_{name}"], getattr(before, f"all_{name}")) for name in COUNTED]
        grown = [None if None in pair else pair[0] - pair[1] for pair in total]
        # A restored catalog counts from an earlier number.
        if all(number is not None and number >= 0 for number in grown):
            row["elapsed"] = now - before.taken_at
            row |= {f"new_{name}": number for name, number in zip(COUNTED, grown, strict=True)}
    return row


def add(connection: Connection, rows: list[dict[str, Any]]) -> None:
    """Add the rows of one round."""
    if rows:
        # Another process may have taken a sample at the same moment.
        fresh = dialect.insert_new(connection, samples).on_conflict_do_nothing()
        connection.execute(fresh, rows)


def roll_up(connection: Connection, now: int, before: int = 0) -> None:
    """
    Sum up the minutes and hours that are over, and remove rows that are too old.

    *before* is the time of the last round: it has done so for what was over then.
    """
    longer = samples.alias("longer")
    for fine, coarse in pairwise(KEPT_SECONDS):
        length = coarse * 1_000_000
        over = now // length * length
        if before >= over:
            return
        # Not those of the future, of a clock that was set back.
        done = select(func.coalesce(func.max(longer.c.taken_at), 0)).where(
            longer.c.seconds == coarse, longer.c.taken_at < over
        )
        new = (
            samples.c.seconds == fine,
            samples.c.taken_at > done.scalar_subquery(),
            samples.c.taken_at < over,
        )
        timings = connection.execute(
            select(samples.c.queue_id, samples.c.taken_at, samples.c.timings).where(
                *new, samples.c.timings.is_not(None)
            )
        ).all()
        rows = (
            select(
                cast(coarse, samples.c.seconds.type),
                func.max(samples.c.taken_at),
                samples.c.queue_id,
                *(func.max(samples.c[name]) for name in _DEPTHS),
                func.sum(samples.c.elapsed),
                *(func.sum(column) for column in _NEW.values()),
            )
            .where(*new)
            .group_by(samples.c.queue_id, samples.c.taken_at // length)
        )
        names = ["seconds", "taken_at", "queue_id", *_DEPTHS, "elapsed"]
        names += [column.name for column in _NEW.values()]
        fresh = dialect.insert_new(connection, samples).from_select(names, rows)
        connection.execute(fresh.on_conflict_do_nothing())
        _merge_timings(connection, coarse, timings)
        _remove_old(connection, fine, now)
    _remove_old(connection, max(KEPT_SECONDS), now)


def _remove_old(connection: Connection, seconds: int, now: int) -> None:
    old = samples.c.taken_at < now - KEPT_SECONDS[seconds] * 1_000_000
    # Rows of the future are those of a clock that was set back.
    gone = or_(old, leases.is_ahead(samples.c.taken_at))
    connection.execute(delete(samples).where(samples.c.seconds == seconds, gone))


def _merge_timings(connection: Connection, coarse: int, found: Iterable[Any]) -> None:
    """Set how long messages took in rows of a longer time, from those of a shorter one."""
    length = coarse * 1_000_000
    parts: dict[tuple[int, int], list[bytes]] = defaultdict(list)
    for row in found:
        parts[row.queue_id, row.taken_at // length].append(row.timings)
    changed = [
        {"of_queue": queue_id, "begin": at * length, "end": (at + 1) * length}
        | {f"new_{name}": value for name, value in merged(each).items()}
        for (queue_id, at), each in parts.items()
    ]
    if changed:
        connection.execute(_SET_TIMINGS[coarse], changed)


def _setting_timings(seconds: int) -> Update:
    here = (
        samples.c.seconds == seconds,
        samples.c.queue_id == bindparam("of_queue"),
        samples.c.taken_at >= bindparam("begin", type_=BigInteger),
        samples.c.taken_at < bindparam("end", type_=BigInteger),
    )
    names = (*_TIMES, "timings")
    return update(samples).where(*here).values({name: bindparam(f"new_{name}") for name in names})


_SET_TIMINGS = {seconds: _setting_timings(seconds) for seconds in KEPT_SECONDS}


def timings_since(
    connection: Connection, after: int, queue_ids: Collection[int] | None
) -> dict[int, dict[str, int | None]]:
    """Return how many microseconds messages took after a time, in some queues; None: in all."""
    query = select(samples.c.queue_id, samples.c.timings).where(
        samples.c.seconds == FINEST,
        samples.c.taken_at > after,
        samples.c.timings.is_not(None),
        *dialect.among(samples.c.queue_id, queue_ids),
    )
    parts: dict[int, list[bytes]] = defaultdict(list)
    for row in connection.execute(query):
        parts[row.queue_id].append(row.timings)
    columns = {queue_id: merged(found) for queue_id, found in parts.items()}
    return {id: {name: found[name] for name in _TIMES} for id, found in columns.items()}


def since(
    connection: Connection,
    seconds: int,
    after: int,
    upto: int | None = None,
    queue_id: int | None = None,
) -> Iterable[Row[Any]]:
    """
    Return the samples of *seconds* each after a time, of one queue or of all, oldest first.

    Each with the id of its queue, its time, its depths without `retrying` and `dead`, and its
    rates.
    """
    query = select(samples.c.queue_id, samples.c.taken_at, *_PRESENT, *_RATES, *_seconds(_TIMES))
    query = query.where(samples.c.seconds == seconds, samples.c.taken_at > after)
    if upto is not None:
        query = query.where(samples.c.taken_at <= upto)
    if queue_id is not None:
        # Not by `one_of`: for the order, SQLite would look through the samples of all queues.
        query = query.where(samples.c.queue_id == queue_id)
    return connection.execute(query.order_by(samples.c.taken_at))


def history(taken_at: ColumnElement[Any] = samples.c.taken_at) -> Select[Any]:
    """Return the columns of the view ``samples``, without an order."""
    return select(
        queues.c.name.label("queue"),
        samples.c.seconds,
        taken_at.label("taken_at"),
        *_PRESENT,
        samples.c.retrying,
        samples.c.dead,
        *_RATES,
        *_seconds(_TIMES),
    ).select_from(samples.join(queues, queues.c.id == samples.c.queue_id))


def read(connection: Connection, queue_ids: Collection[int], seconds: int | None) -> list[Row[Any]]:
    """Return the samples of some queues, in order: all, or those of so many *seconds* each."""
    query = history().where(dialect.one_of(samples.c.queue_id, queue_ids))
    if seconds is not None:
        query = query.where(samples.c.seconds == seconds)
    order = (queues.c.name, samples.c.seconds, samples.c.taken_at)
    return list(connection.execute(query.order_by(*order)))
