"""Lags: how far subscriptions are behind, in their logs and with what they have taken in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Float,
    Select,
    and_,
    bindparam,
    cast,
    func,
    select,
)

from queue_core.catalog import dialect, queues
from queue_core.catalog.records import figures
from queue_core.catalog.slices.logs import row_with
from queue_core.catalog.slices.shard_locks import ROOT, end_of_log, reads_log
from queue_core.catalog.tables import log_slices, shard_locks, slices
from queue_core.catalog.tables import queues as queue_rows
from queue_core.values.log_limits import Lag
from queue_core.values.model import Magazine, QueueInfo, State
from queue_core.values.names import is_snapshot


def _bytes_before(offset: ColumnElement[int] | Column[int]) -> ColumnElement[int]:
    """Return how many bytes of a log are before an offset, as a share of the row that has it."""
    row = log_slices.c
    part = cast(row.bytes, Float) * (offset - row.first_offset) / row.count
    before = row.bytes_before + cast(part, BigInteger)
    query = row_with(offset, shard_locks.c.log_of, shard_locks.c.shard, before)
    return query.correlate(shard_locks, ROOT).scalar_subquery()


_LOGGED = (
    select(
        shard_locks.c.queue_id,
        func.sum(_bytes_before(end_of_log(shard_locks)) - _bytes_before(shard_locks.c.cursor))
        .cast(BigInteger)
        .label("bytes"),
    )
    .join(ROOT, and_(*reads_log(shard_locks)))
    .where(shard_locks.c.magazine == int(Magazine.MAIN), shard_locks.c.log_of != 0)
    .group_by(shard_locks.c.queue_id)
)
_TAKEN_IN = (
    select(slices.c.queue_id, func.sum(slices.c.bytes).cast(BigInteger).label("bytes"))
    .where(
        slices.c.queue_id.in_(select(queue_rows.c.id).where(queue_rows.c.root_id != 0)),
        slices.c.magazine == int(Magazine.MAIN),
        slices.c.state == int(State.LOADED),
    )
    .group_by(slices.c.queue_id)
)

#: The subscriptions to a queue that `trim` has stopped to drop them; a person stops others.
_ENDING = select(queue_rows.c.id).where(
    queue_rows.c.root_id == bindparam("root"),
    queue_rows.c.snapshot_of == 0,
    queue_rows.c.ends_at > 0,
)


def logged(connection: Connection, queue_ids: Collection[int] | None = None) -> dict[int, int]:
    """Return how many bytes a log has for each of some subscriptions, or of all that read one."""
    return _sum(connection, _LOGGED, shard_locks.c.queue_id, queue_ids)


def sizes(connection: Connection, queue_ids: Collection[int] | None = None) -> Mapping[int, int]:
    """Return how many bytes wait for some subscriptions, or for all, in the log or in main."""
    taken_in = _sum(connection, _TAKEN_IN, slices.c.queue_id, queue_ids)
    return Counter(logged(connection, queue_ids)) + Counter(taken_in)


def _sum(
    connection: Connection,
    query: Select[Any],
    queue_id: Column[int],
    only: Collection[int] | None,
) -> dict[int, int]:
    some = query.where(*dialect.among(queue_id, only))
    return {row.queue_id: max(row.bytes or 0, 0) for row in connection.execute(some)}


def of_row(row: Any, size: int) -> Lag:
    """Return the lag of a subscription by its figures and its `sizes`."""
    # A message that came back makes it no later: the subscription had it in time.
    wait = row.longest_wait
    return Lag(row.waiting or 0, None if wait is None else wait / 1e6, size, row.placed_for / 1e6)


def read(connection: Connection, queue_ids: Collection[int]) -> dict[int, Lag]:
    """Return the lags of some subscriptions."""
    size = sizes(connection, queue_ids)
    rows = figures.read(connection, queue_ids)
    return {row.queue_id: of_row(row, size.get(row.queue_id, 0)) for row in rows}


def late(connection: Connection, root_id: int) -> list[QueueInfo]:
    """
    Return the subscriptions to a queue that must be stopped, since they exceed their budgets.

    They include those that were stopped to be dropped, and are still there.
    """
    limited = [
        queue
        for queue in queues.subscriptions_to(connection, root_id)
        if queue.settings.late is not None and not is_snapshot(queue.name)
    ]
    reading = [queue.id for queue in limited if not queue.detached_at]
    lags = read(connection, reading) if reading else {}
    stopped = len(reading) < len(limited)
    ending = connection.scalars(_ENDING, {"root": root_id}).all() if stopped else ()
    return [
        queue
        for queue in limited
        if (
            # In a transaction that writes, it may have been dropped since the first statement.
            queue.id in lags and lags[queue.id].exceeds(queue.settings.budget)
            if not queue.detached_at
            else queue.settings.when_late == "drop" and queue.id in ending
        )
    ]
