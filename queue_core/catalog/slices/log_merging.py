"""Merge small neighbouring rows of a log into one.

A firing from a subscription inserts a slice for each row of the log that it takes. Rows of one
minute are merged, by the clock, so that a start at a whole minute stays exact.

Guard: no cursor stands between the rows. So each reader takes all their messages from the old
segments, or all from the new one, whose map of ids it then copies. The locks of the shard in all
queues that read the log keep their cursors in place, and the row of `logs` keeps new ones away. If
one has come between the two, nothing is merged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from sqlalchemy import BigInteger, Connection, Row, bindparam, delete, exists, insert, select

from queue_core.catalog import dialect
from queue_core.catalog.slices import id_map, logs, rewritable
from queue_core.catalog.slices import segments as segment_rows
from queue_core.catalog.slices.conditions import DAMAGED
from queue_core.catalog.tables import log_slices, queues, segments, shard_locks, slices
from queue_core.catalog.tables import logs as log_rows
from queue_core.segments.rewriter import Repacked
from queue_core.values.model import MAX_SEGMENT_ROWS, Magazine, QueueInfo, Staged

#: In microseconds: the time of the rows that become one, and how old they are at least.
MINUTE = 60_000_000
#: The least number of rows that become one.
NEIGHBOURS = 4
#: How many rows of a shard are looked at: the newest; once these are merged, earlier ones.
LOOK = 1 << 12

#: Rows of a log that follow one another.
Neighbours: TypeAlias = "Sequence[Row[Any]]"

_OF_SHARD = (log_slices.c.queue_id == bindparam("queue"), log_slices.c.shard == bindparam("at"))
_ROWS = select(
    log_slices,
    log_slices.c.count.label("messages"),
    (log_slices.c.first_offset + log_slices.c.count).label("stop"),
    (log_slices.c.logged_at - log_slices.c.logged_at % MINUTE).label("minute"),
).where(*_OF_SHARD)
_LATEST = _ROWS.order_by(log_slices.c.first_offset.desc()).limit(LOOK).subquery()
_MERGEABLE = (
    select(_LATEST)
    .join(segments, segments.c.id == _LATEST.c.segment_id)
    .where(
        _LATEST.c.compacted == 0,
        _LATEST.c.minute <= dialect.now() - 2 * MINUTE,
        segments.c.bytes <= bindparam("small", type_=BigInteger),
        ~exists().where(slices.c.segment_id == _LATEST.c.segment_id, *DAMAGED),
    )
    .order_by(_LATEST.c.first_offset)
)
_CURSORS = select(shard_locks.c.queue_id, shard_locks.c.cursor).where(
    shard_locks.c.queue_id.in_(select(queues.c.id).where(queues.c.root_id == bindparam("queue"))),
    shard_locks.c.magazine == int(Magazine.MAIN),
    shard_locks.c.shard == bindparam("at"),
)
_LOCKING = _CURSORS.order_by(shard_locks.c.queue_id).with_for_update()
_HOLD = (
    select(log_rows)
    .where(log_rows.c.queue_id == bindparam("queue"), log_rows.c.shard == bindparam("at"))
    .with_for_update()
)
_BETWEEN = log_slices.c.first_offset.between(
    bindparam("first", type_=BigInteger), bindparam("last", type_=BigInteger)
)
_THESE = _ROWS.where(_BETWEEN).order_by(log_slices.c.first_offset)
_REMOVE = delete(log_slices).where(*_OF_SHARD, _BETWEEN)


def find(
    connection: Connection, queue_id: int, shard: int, most_bytes: int, age: int
) -> list[Neighbours]:
    """
    Return the rows of a log's shard that may become one each, oldest first.

    Each row has a small segment. Together they have *most_bytes* at most, and were logged within
    *age* microseconds.
    """
    given = {"queue": queue_id, "at": shard}
    rows = connection.execute(_MERGEABLE, given | {"small": rewritable.SMALL_BYTES}).all()
    cursors = _cursors(connection, given) if len(rows) >= NEIGHBOURS else []
    found = _neighbours(rows, cursors, most_bytes, age)
    return [each for each in found if len(each) >= NEIGHBOURS]


def _neighbours(
    rows: Sequence[Row[Any]], cursors: Sequence[int], most_bytes: int, age: int
) -> Iterator[Neighbours]:
    """Yield rows that follow one another in one minute, with no cursor in between."""
    begin = 0
    for at, row in enumerate(rows):
        first = rows[begin]
        if at > begin and not (
            rows[at - 1].stop == row.first_offset
            and first.minute == row.minute
            and row.logged_at - first.logged_at <= age
            and not _is_between(cursors, first.first_offset, row.stop)
            and row.stop - first.first_offset <= MAX_SEGMENT_ROWS
            and row.bytes_before + row.bytes - first.bytes_before <= most_bytes
        ):
            yield rows[begin:at]
            begin = at
    yield rows[begin:]


def _cursors(connection: Connection, given: dict[str, int]) -> list[int]:
    return sorted(row.cursor for row in connection.execute(_CURSORS, given))


def _is_between(cursors: Sequence[int], begin: int, stop: int) -> bool:
    """Return whether one of some cursors, in their order, stands between two offsets."""
    at = bisect_right(cursors, begin)
    return at < len(cursors) and cursors[at] < stop


def merge(
    connection: Connection, queue: QueueInfo, rows: Neighbours, staged: Staged, repacked: Repacked
) -> bool:
    """Merge rows of a log into one, of a new segment; return whether this was still possible."""
    first, last = rows[0], rows[-1]
    given = {"queue": queue.id, "at": first.shard}
    these = given | {"first": first.first_offset, "last": last.first_offset}
    held = connection.execute(_LOCKING, given).all()
    connection.execute(_HOLD, given).all()
    cursors = _cursors(connection, given)
    if (
        len(held) != len(cursors)
        or _is_between(cursors, first.first_offset, last.stop)
        or connection.execute(_THESE, these).all() != rows
    ):
        return False
    segment_id, _ = segment_rows.publish(connection, queue.id, staged, log_rows=1)
    id_map.record(connection, -queue.id, segment_id, repacked.ids, repacked.rows)
    connection.execute(_REMOVE, these)
    row = {name: first._mapping[name] for name in {*log_slices.c.keys()} - {"seal"}}
    row |= {"segment_id": segment_id, "row_start": 0, "row_stop": len(repacked.rows)}
    row |= {"bitmap": None, "count": len(repacked.rows), "compacted": 1}
    # The bytes of a log are counted on, and no start at a time may miss its newest message.
    row |= {"bytes": sum(row.bytes for row in rows), "logged_at": last.logged_at}
    row |= {"loaded_at": repacked.piece.loaded_at, "stats": repacked.piece.stats}
    connection.execute(insert(log_slices), row)
    logs.let_go(connection, Counter(row.segment_id for row in rows))
    return True
