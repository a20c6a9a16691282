"""Intake: what a subscription takes from the log that it reads.

Its cursor stands in the row of its shard lock, which a firing holds anyway, and `trim` waits for
that row. So an intake needs no lock of the log. A cursor may stand within a row of the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    exists,
    func,
    select,
)

from queue_core.catalog import dialect
from queue_core.catalog.slices.shard_locks import Backlog
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import id_map, log_slices
from queue_core.values.model import ROW_BITS, Magazine, Slice
from queue_core.values.rows import Rows

_NAMES = ("at", "first", "upto")
#: Where messages without places stand: after all that have one, in the order of their offsets, each
#: of which has room for the rows of a segment, so that no two slices interleave.
_AFTER = 1 << 61
_COLUMNS = (
    *("shard", "first_offset", "segment_id", "row_start", "row_stop", "bitmap"),
    *("bytes", "loaded_at", "stats", "compacted", "logged_at"),
)
#: Whether compaction has written the segment, and the reader has not copied its map of ids yet.
_UNMAPPED = case(
    (log_slices.c.compacted == 0, 0),
    (
        exists().where(
            id_map.c.segment_id == log_slices.c.segment_id,
            id_map.c.queue_id == bindparam("reader", type_=BigInteger),
        ),
        0,
    ),
    else_=1,
).label("unmapped")


def behind(
    connection: Connection,
    backlog: Mapping[ShardKey, Backlog],
    wanted: Mapping[ShardKey, int],
    most: int,
) -> dict[ShardKey, list[Slice]]:
    """
    Return the next messages of logs for shards of subscriptions, as slices without ids.

    *wanted*: how many of each shard. There are fewer if the log, or *most* slices, have fewer.
    """
    found: dict[ShardKey, list[Slice]] = {}
    for queue_id in sorted({key[0] for key in wanted}):
        own = {key: count for key, count in wanted.items() if key[0] == queue_id}
        found |= _behind(connection, backlog, own, most)
    return found


def _behind(
    connection: Connection,
    backlog: Mapping[ShardKey, Backlog],
    wanted: Mapping[ShardKey, int],
    most: int,
) -> dict[ShardKey, list[Slice]]:
    """Do the same for one subscription."""
    found: dict[ShardKey, list[Slice]] = {key: [] for key in wanted}
    ends = {key: backlog[key].cursor for key in wanted}
    left, mean = dict(wanted), 1.0
    while left:
        # Each row has at least one message; once some rows are known, about as many as these.
        upto = {
            key: ends[key] + min(count, int((most - len(found[key])) * mean))
            for key, count in left.items()
        }
        one = next(iter(left))
        rows = rows_between(connection, one[0], backlog[one].log_of, ends, upto)
        more, by_shard = set(), {key[2]: key for key in left}
        for row in rows:
            key = by_shard[row.shard]
            if len(found[key]) < most:
                piece = as_slice(key, row, ends[key], left[key], unmapped=bool(row.unmapped))
                found[key].append(piece)
                ends[key] += len(piece.rows)
                left[key] -= len(piece.rows)
                more.add(key)
        mean = sum(row.messages for row in rows) / max(len(rows), 1)
        left = {key: left[key] for key in more if left[key] > 0 and len(found[key]) < most}
    return found


def rows_between(
    connection: Connection,
    reader: int,
    root: int,
    ends: Mapping[ShardKey, int],
    upto: Mapping[ShardKey, int],
) -> list[Row[Any]]:
    """Return the rows of a log with the messages from *ends* up to other offsets, in order."""
    database = dialect.of(connection)
    columns = ([key[2] for key in upto], [ends[key] for key in upto], list(upto.values()))
    given = database.given_rows(dict(zip(_NAMES, columns, strict=True)))
    given |= {"reader": reader, "root": root}
    rows = connection.execute(_next(database), given).all()
    return [row for row in rows if row.shard is not None]


def as_slice(
    key: ShardKey, row: Row[Any], begin: int, most: int | None = None, *, unmapped: bool = False
) -> Slice:
    """Return the messages of a row of a log from an offset on, or *most* of them."""
    rows = Rows.from_bytes(row.row_start, row.row_stop, row.bitmap)
    if begin > row.first_offset:
        rows = rows.split(begin - row.first_offset)[1]
    if most is not None:
        rows = rows.split(most)[0]
    return Slice(
        id=0,
        queue_id=key[0],
        magazine=Magazine.MAIN,
        shard=key[2],
        position=_AFTER + (max(begin, row.first_offset) << ROW_BITS),
        segment_id=row.segment_id,
        rows=rows,
        bytes=row.bytes * len(rows) // max(row.messages, 1),
        attempts=0,
        deliveries=0,
        loaded_at=row.loaded_at,
        # Merged messages were loaded at different times, and all before the last one was logged.
        moved_at=max(row.loaded_at, row.logged_at) if row.compacted else row.loaded_at,
        stats=row.stats,
        unmapped=unmapped,
    )


@lru_cache(maxsize=4)
def _next(database: dialect.Dialect) -> Select[Any]:
    given = database.rows_of(_NAMES)
    earlier = log_slices.alias("earlier")
    root = bindparam("root", type_=BigInteger)
    # The row in which the cursor stands begins before it.
    first = (
        select(func.max(earlier.c.first_offset))
        .where(
            earlier.c.queue_id == root,
            earlier.c.shard == given.c.at,
            earlier.c.first_offset <= given.c.first,
        )
        .correlate(given)
        .scalar_subquery()
    )
    here = and_(
        log_slices.c.queue_id == root,
        log_slices.c.shard == given.c.at,
        log_slices.c.first_offset >= first,
        log_slices.c.first_offset < given.c.upto,
    )
    # An outer join, or SQLite would read the whole log, and look for each of its rows among those
    # that are given.
    return (
        select(
            *(log_slices.c[name] for name in _COLUMNS),
            log_slices.c.count.label("messages"),
            _UNMAPPED,
        )
        .select_from(given.outerjoin(log_slices, here))
        .order_by(log_slices.c.shard, log_slices.c.first_offset)
    )
