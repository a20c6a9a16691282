"""A catalog without what only its logs keep: the rows that a backup has of some tables.

They are as after a `trim` of each log up to the first message that a subscription, a replay or a
snapshot has still to take in. Nothing is changed or locked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Select, and_, case, exists, func, or_, select

from queue_core.catalog import dialect, seals
from queue_core.catalog.slices.logs import OF_LOG, READING
from queue_core.catalog.tables import (
    files,
    id_map,
    log_slices,
    logs,
    segments,
    shard_locks,
    shards,
    slices,
)

_WANTED = exists().where(
    READING,
    shard_locks.c.log_of == log_slices.c.queue_id,
    shard_locks.c.shard == log_slices.c.shard,
    shard_locks.c.cursor < log_slices.c.first_offset + log_slices.c.count,
)
_BY_SHARD = (
    select(
        *(log_slices.c[name] for name in ("queue_id", "shard")),
        func.min(log_slices.c.first_offset).label("start"),
    )
    .where(_WANTED)
    .group_by(log_slices.c.queue_id, log_slices.c.shard)
    .subquery()
)
_BY_SEGMENT = (
    select(log_slices.c.segment_id, func.count().label("rows"))
    .where(_WANTED)
    .group_by(log_slices.c.segment_id)
    .subquery()
)
_LOG_ROWS = func.coalesce(_BY_SEGMENT.c.rows, 0)
_KEPT = or_(
    _LOG_ROWS > 0,
    segments.c.log_rows == 0,
    exists().where(slices.c.segment_id == segments.c.id),
)
_COUNTED = segments.outerjoin(_BY_SEGMENT, _BY_SEGMENT.c.segment_id == segments.c.id)
_LEFT_OUT = select(segments.c.id, segments.c.file).select_from(_COUNTED).where(~_KEPT).subquery()
_START = func.coalesce(_BY_SHARD.c.start, shards.c.logged)
_WITH_START = logs.join(shards, OF_LOG).outerjoin(
    _BY_SHARD, and_(_BY_SHARD.c.queue_id == logs.c.queue_id, _BY_SHARD.c.shard == logs.c.shard)
)


def _rows(of: Any, join: Any, **values: Any) -> Select[Any]:
    """Select the rows of a table with other values for some columns."""
    columns = (values[each.name].label(each.name) if each.name in values else each for each in of.c)
    return select(*columns).select_from(join)


#: The rows of the tables that have others then, by their names. Files that no row names any more
#: are garbage.
ROWS: Mapping[str, Select[Any]] = {
    "log_slices": select(log_slices).where(_WANTED),
    "logs": _rows(logs, _WITH_START, **seals.changing(logs, start=_START)),
    "segments": _rows(segments, _COUNTED, log_rows=_LOG_ROWS).where(_KEPT),
    "id_map": _rows(
        id_map, id_map.outerjoin(_LEFT_OUT, _LEFT_OUT.c.id == id_map.c.segment_id)
    ).where(_LEFT_OUT.c.id.is_(None)),
    "files": _rows(
        files,
        files.outerjoin(_LEFT_OUT, _LEFT_OUT.c.file == files.c.location),
        state=case((_LEFT_OUT.c.id.is_(None), files.c.state), else_="garbage"),
        since=case((_LEFT_OUT.c.id.is_(None), files.c.since), else_=dialect.now()),
    ),
}
_FILED = select(segments.c.file, segments.c.chunks).where(segments.c.file.is_not(None))


def filed(connection: Connection, *, with_logs: bool) -> dict[str, bytes]:
    """Return the chunks of all segments, or of those that stay, by the locations of their files."""
    query = _FILED if with_logs else _FILED.select_from(_COUNTED).where(_KEPT)
    return {row.file: row.chunks for row in connection.execute(query)}
