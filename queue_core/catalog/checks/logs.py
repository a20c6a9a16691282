"""Logs: whole, in order, and on segments that know of it; and the cursors in them (I32 to I34)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Select, and_, case, exists, func, or_, select

from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.checks.rules import ALTERED, Scope, is_altered, of_row
from queue_core.catalog.slices.logs import OF_LOG, READING
from queue_core.catalog.tables import (
    id_map,
    log_slices,
    logs,
    queues,
    segments,
    shard_locks,
    shards,
)
from queue_core.values.model import Magazine

_END = log_slices.c.first_offset + log_slices.c.count
_SHARD = (log_slices.c.queue_id, log_slices.c.shard)
_MAIN = int(Magazine.MAIN)


def check_logs(scope: Scope) -> Iterator[Finding]:
    """Check that the rows of each log follow one another, up to its end, and are sound."""
    for table in (logs, log_slices):
        query = select(table).execution_options(yield_per=10_000)
        for row in scope.connection.execute(query):
            if is_altered(table, row._asdict()):
                yield of_row(table, row, "I1", ALTERED)
    for row in scope.connection.execute(_broken()):
        text = f"it begins at {row.first_offset}, and the one before it ends at {row.before}"
        yield of_row(log_slices, row, "I32", text)
    for row in scope.connection.execute(_ends()):
        text = f"its log ends at {row.last}, and {row.logged} messages were loaded"
        yield of_row(logs, row, "I32", text)


def check_segments(scope: Scope) -> Iterator[Finding]:
    """Check that segments know how many rows of logs name them, and are there."""
    named = (
        select(log_slices.c.segment_id, func.count().label("named"))
        .group_by(log_slices.c.segment_id)
        .subquery()
    )
    wrong = func.coalesce(named.c.named, 0) != segments.c.log_rows
    query = select(segments, named.c.named).outerjoin(named, named.c.segment_id == segments.c.id)
    for row in scope.connection.execute(query.where(wrong)):
        text = f"{row.named or 0} rows of logs name it, and it says {row.log_rows}"
        yield of_row(segments, row, "I33", text, Remedy.NONE)
    there = exists().where(
        segments.c.id == log_slices.c.segment_id,
        segments.c.queue_id == log_slices.c.queue_id,
        segments.c.rows >= log_slices.c.row_stop,
    )
    for row in scope.connection.execute(select(log_slices).where(~there)):
        text = "its segment is missing, belongs to another queue, or has fewer rows"
        yield of_row(log_slices, row, "I33", text)
    mapped = exists().where(
        id_map.c.segment_id == log_slices.c.segment_id, id_map.c.queue_id == -log_slices.c.queue_id
    )
    odd = case((mapped, 1), else_=0) != log_slices.c.compacted
    for row in scope.connection.execute(select(log_slices).where(odd)):
        text = "compaction has written its segment, and the map of ids is missing, or the reverse"
        yield of_row(log_slices, row, "I33", text)


def check_cursors(scope: Scope) -> Iterator[Finding]:
    """Check that each subscription reads the log of its root, from within it."""
    reads = and_(shard_locks.c.magazine == _MAIN, queues.c.root_id != 0)
    cursor, log_of = shard_locks.c.cursor, shard_locks.c.log_of
    outside = or_(logs.c.start.is_(None), cursor < logs.c.start, cursor > shards.c.logged)
    of_reader = or_(log_of.not_in([queues.c.root_id, 0]), and_(READING, outside))
    of_another = or_(log_of != 0, cursor != 0)
    of_root = and_(logs.c.queue_id == queues.c.root_id, logs.c.shard == shard_locks.c.shard)
    query = (
        select(shard_locks, queues.c.root_id, logs.c.start, shards.c.logged)
        .join(queues, queues.c.id == shard_locks.c.queue_id)
        .outerjoin(logs, of_root)
        .outerjoin(shards, OF_LOG)
        .where(or_(and_(reads, of_reader), and_(~reads, of_another)))
    )
    for row in scope.connection.execute(query):
        text = f"its cursor is at {row.cursor}, outside of the log from {row.start} to {row.logged}"
        yield of_row(shard_locks, row, "I34", text)


def _broken() -> Select[Any]:
    """Select the rows of logs that do not begin where the row before them ends."""
    before = func.lag(_END).over(partition_by=_SHARD, order_by=log_slices.c.first_offset)
    each = select(*_SHARD, log_slices.c.first_offset, before.label("before")).subquery()
    return select(each).where(each.c.first_offset != each.c.before)


def _ends() -> Select[Any]:
    """Select the logs whose rows do not go from their beginning to the last loaded message."""
    first, last = func.min(log_slices.c.first_offset), func.max(_END)
    each = select(*_SHARD, first.label("first"), last.label("last")).group_by(*_SHARD).subquery()
    here = and_(each.c.queue_id == logs.c.queue_id, each.c.shard == logs.c.shard)
    return (
        select(logs, func.coalesce(each.c.last, logs.c.start).label("last"), shards.c.logged)
        .select_from(logs.outerjoin(each, here).join(shards, OF_LOG))
        .where(
            or_(
                func.coalesce(each.c.first, logs.c.start) != logs.c.start,
                func.coalesce(each.c.last, logs.c.start) != shards.c.logged,
                shards.c.log != 1,
            )
        )
    )
