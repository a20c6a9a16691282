"""Slices: each has a place and existing rows, and shares neither with others (I1 to I9, I29, I30).

The database checks all slices in two passes. Only slices with gaps in their rows, or with
statistics, are checked one by one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from pyroaring import BitMap
from sqlalchemy import BigInteger, ColumnElement, and_, cast, exists, func, or_, select

from queue_core.catalog import dialect, seals
from queue_core.catalog.checks.finding import Finding
from queue_core.catalog.checks.rules import ALTERED, Scope, find_rows, of_row
from queue_core.catalog.tables import id_map, queues, same_shard, segments, shards, slices
from queue_core.values.model import Magazine, State
from queue_core.values.rows import Rows

_HEAD = (slices.c.id, slices.c.queue_id, slices.c.moved_at, slices.c.fired_at)
#: A quarantined slice is known to be damaged.
_TRUSTED = slices.c.state != int(State.DAMAGED)
#: Segments whose slices are compared at a time.
_BATCH = 10_000
#: As 64 bits: a damaged value must not make the database refuse the statement.
_SPAN = cast(slices.c.row_stop, BigInteger) - slices.c.row_start


#: Whether the slice is of a subscription to the queue of its segment.
_OF_ROOT = exists().where(queues.c.id == slices.c.queue_id, queues.c.root_id == segments.c.queue_id)


def check_each(scope: Scope) -> Iterator[Finding]:
    """Check each slice by itself, and against its shard and its segment."""
    plain = slices.c.bitmap.is_(None) & slices.c.stats.is_(None)
    loaded, fired = (slices.c.state == int(state) for state in (State.LOADED, State.FIRED))
    held = (slices.c.consumer_id, slices.c.ticket)
    shares_place = or_(slices.c.position < 0, slices.c.position > shards.c.load_pointer - _SPAN)
    of_trusted = {
        "I1": (ALTERED, plain & slices.c.seal.is_distinct_from(seals.numbers_in_sql(slices))),
        "I3": (
            "its rows and their count disagree",
            or_(
                slices.c.row_start < 0,
                slices.c.row_stop <= slices.c.row_start,
                slices.c.count <= 0,
                and_(slices.c.bitmap.is_(None), slices.c.count != _SPAN),
                slices.c.bytes < 0,
                slices.c.attempts < 0,
            ),
        ),
        "I4": (
            "its segment is missing, belongs to another queue, or has fewer rows",
            or_(
                segments.c.id.is_(None),
                (segments.c.queue_id != slices.c.queue_id) & ~_OF_ROOT,
                slices.c.row_stop > segments.c.rows,
            ),
        ),
        "I7": ("it stands beyond the load pointer of its shard", shares_place),
        "I9": (
            "it has another loading time than its segment",
            and_(id_map.c.segment_id.is_(None), slices.c.loaded_at != segments.c.loaded_at),
        ),
        "I29": (
            "it has a due time, and is in main, or the due time is before 1970",
            and_(
                slices.c.due_at.is_not(None),
                or_(slices.c.magazine != int(Magazine.SIDELINE), slices.c.due_at < 0),
            ),
        ),
        "I30": (
            "it was lost among no messages, or never lost among some",
            or_(
                slices.c.lost < 0,
                slices.c.lost_among < 0,
                (slices.c.lost > 0) != (slices.c.lost_among > 0),
            ),
        ),
    }
    of_any = {
        "I2": ("its queue has no such magazine and shard", shards.c.shard.is_(None)),
        "I8": (
            "its state and its ticket disagree",
            or_(
                slices.c.state.not_in([int(state) for state in State]),
                fired & or_(slices.c.fired_at.is_(None), *(column.is_(None) for column in held)),
                loaded & or_(*(column.is_not(None) for column in held)),
            ),
        ),
    }
    trusted = {name: (text, _TRUSTED & wrong) for name, (text, wrong) in of_trusted.items()}
    joined = (
        slices.outerjoin(segments, segments.c.id == slices.c.segment_id)
        .outerjoin(
            id_map,
            (id_map.c.segment_id == slices.c.segment_id) & (id_map.c.queue_id == slices.c.queue_id),
        )
        .outerjoin(shards, same_shard(shards, slices))
    )
    yield from find_rows(scope, slices, select(*_HEAD).select_from(joined), trusted | of_any)


def check_texts(scope: Scope) -> Iterator[Finding]:
    """Check the seals of slices with gaps or statistics, and their bitmaps."""
    rest = (slices.c.seal - seals.numbers_in_sql(slices)).label("rest")
    columns = (slices.c.row_start, slices.c.row_stop, slices.c.bitmap, slices.c.stats)
    query = select(*_HEAD, *columns, slices.c.count.label("messages"), rest).where(
        _TRUSTED, slices.c.bitmap.is_not(None) | slices.c.stats.is_not(None)
    )
    for row in scope.connection.execute(query.execution_options(yield_per=10_000)):
        if row.rest != seals.digest([row.bitmap, row.stats]):
            yield of_row(slices, row, "I1", ALTERED)
        if row.bitmap is not None and not _is_whole(row):
            yield of_row(slices, row, "I3", "its bitmap, its rows and their count disagree")


def check_rows_once(scope: Scope) -> Iterator[Finding]:
    """Find rows of segments that are in two slices of a queue."""
    stops = func.lag(slices.c.row_stop).over(
        partition_by=(slices.c.segment_id, slices.c.queue_id), order_by=slices.c.row_start
    )
    near = select(slices.c.segment_id, slices.c.row_start, stops.label("before")).where(_TRUSTED)
    pairs = near.subquery()
    crowded = select(pairs.c.segment_id).where(pairs.c.row_start < pairs.c.before).distinct()
    ids = sorted(scope.connection.scalars(crowded))
    for first in range(0, len(ids), _BATCH):
        these = dialect.one_of(slices.c.segment_id, ids[first : first + _BATCH])
        taken: dict[tuple[int, int], BitMap] = defaultdict(BitMap)
        for row, rows in _loaded(scope, these):
            key = (row.queue_id, row.segment_id)
            if taken[key] & rows:
                yield of_row(slices, row, "I5", "another slice of its queue has some of its rows")
            taken[key] |= rows


def check_places_once(scope: Scope) -> Iterator[Finding]:
    """Find places of shards that two messages share."""
    here = (slices.c.queue_id, slices.c.magazine, slices.c.shard)
    ends = func.lag(slices.c.position + _SPAN).over(partition_by=here, order_by=slices.c.position)
    small = slices.c.position.between(0, 2**62)
    near = select(*here, slices.c.position, ends.label("before")).where(_TRUSTED, small)
    pairs = near.subquery()
    crowded = (
        select(pairs.c.queue_id, pairs.c.magazine, pairs.c.shard)
        .where(pairs.c.position < pairs.c.before)
        .distinct()
    )
    for shard in scope.connection.execute(crowded).all():
        group: list[tuple[int, int, BitMap]] = []
        there = (column == value for column, value in zip(here, shard, strict=True))
        for row, rows in _loaded(scope, *there, small):
            span = row.row_stop - row.row_start
            group = [one for one in group if one[0] + one[1] > row.position]
            if any(_meet(one, (row.position, span, rows)) for one in group):
                yield of_row(slices, row, "I6", "another message stands at one of its places")
            group.append((row.position, span, rows))


def _loaded(scope: Scope, *where: ColumnElement[bool]) -> Iterator[tuple[Any, BitMap]]:
    """Yield slices in order of their places, each with its rows."""
    columns = (slices.c.segment_id, slices.c.position, slices.c.bitmap)
    query = select(*_HEAD, *columns, slices.c.row_start, slices.c.row_stop).where(*where, _TRUSTED)
    # All at once, because an open cursor would block other transactions.
    for row in scope.connection.execute(query.order_by(slices.c.position)).all():
        if 0 <= row.row_start < row.row_stop <= 2**20:
            rows = _decoded(row)
            if rows is not None:
                yield row, rows


def _meet(one: tuple[int, int, BitMap], other: tuple[int, int, BitMap]) -> bool:
    (begin, _, rows), (start, _, others) = one, other
    by = (start - others.min()) - (begin - rows.min())
    return bool(rows & others.shift(by))


def _is_whole(row: Any) -> bool:
    rows = _decoded(row)
    if not rows:
        return False
    ends = (rows.min(), rows.max() + 1)
    return len(rows) == row.messages and ends == (row.row_start, row.row_stop)


def _decoded(row: Any) -> BitMap | None:
    try:
        return Rows.from_bytes(row.row_start, row.row_stop, row.bitmap).as_bitmap()
    except ValueError:
        return None
