"""Logs of queues: every new message, in the order of its shard, also after it has left the queue.

A message of the log has an offset: how many messages were loaded into its shard before it. Retries
and edits give a message a new place, and no new offset. Loads write a row of `log_slices` for each
segment and shard. The row from which a load gets its places says whether the queue has a log now,
even if the load has read older settings.

Guard: the statement that allocates places also gives the offsets, and its row stays locked until
the commit. So offsets rise in the order of commits, and a rollback leaves no gap. A copy from a log
locks the row of `logs` for reading and checks that it begins early enough; `trim` locks it for
writing. A segment stays while a row of a log or a slice names it.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby, islice, takewhile
from operator import attrgetter, itemgetter
from typing import Any, Literal, NamedTuple, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    case,
    delete,
    func,
    insert,
    select,
    update,
)

from queue_core.catalog import dialect, seals
from queue_core.catalog.slices import segments
from queue_core.catalog.slices.slices import ShardKey, execute_each
from queue_core.catalog.slices.tails import Tail
from queue_core.catalog.tables import log_slices, logs, queues, shard_locks, shards
from queue_core.catalog.tables import segments as segment_rows
from queue_core.errors import BadOption, NoSuchQueue
from queue_core.values.log_limits import LogLimits
from queue_core.values.model import Extent, Magazine, QueueInfo
from queue_core.values.rows import Rows

#: How far the clock of a machine that names a time may be ahead of the catalog's, in microseconds.
SOON = 60_000_000

_INSERT = insert(log_slices).inline()
_OF_QUEUE = logs.c.queue_id == bindparam("queue")
_HOLD = select(logs.c.shard, logs.c.start).where(_OF_QUEUE).order_by(logs.c.shard).with_for_update()
_RAISE = (
    update(segment_rows)
    .where(segment_rows.c.id == bindparam("segment"))
    .values(log_rows=segment_rows.c.log_rows + bindparam("by"))
)
_REMOVE = delete(log_slices).where(
    log_slices.c.queue_id == bindparam("queue"),
    log_slices.c.shard == bindparam("at"),
    log_slices.c.first_offset < bindparam("upto"),
)
_START = (
    update(logs)
    .where(_OF_QUEUE, logs.c.shard == bindparam("at"))
    .values(seals.changing(logs, start=bindparam("upto", type_=BigInteger)))
)


def add(
    connection: Connection,
    new: Mapping[ShardKey, Sequence[dict[str, Any]]],
    tails: Mapping[ShardKey, Tail],
) -> Counter[int]:
    """
    Write new slices, given by shards as rows of their table, to the logs of their queues.

    Return how many rows of logs name each segment.
    """
    rows, named = [], Counter[int]()
    for key, tail in tails.items():
        if not tail.log:
            continue
        offset, before = tail.offset, tail.bytes
        for segment_id, parts in groupby(new[key], itemgetter("segment_id")):
            row = _row(list(parts))
            rows.append(
                row
                | {"queue_id": key[0], "shard": key[2], "segment_id": segment_id}
                | {"first_offset": offset, "bytes_before": before, "logged_at": tail.at}
                | {"compacted": 0}
            )
            offset += row["count"]
            before += row["bytes"]
            named[segment_id] += 1
    execute_each(connection, _INSERT, rows)
    return named


def _row(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the rows, the size and the statistics of slices of one segment and shard."""
    if len(parts) == 1:
        names = ("row_start", "row_stop", "bitmap", "count", "bytes", "loaded_at", "stats")
        return {name: parts[0][name] for name in names}
    # Those of categories interleave.
    each = [Rows.from_bytes(p["row_start"], p["row_stop"], p["bitmap"]) for p in parts]
    rows = each[0]
    for more in each[1:]:
        rows |= more
    return {
        "row_start": rows.start,
        "row_stop": rows.stop,
        "bitmap": rows.to_bytes(),
        "count": len(rows),
        "bytes": sum(part["bytes"] for part in parts),
        "loaded_at": parts[0]["loaded_at"],
        "stats": None,
    }


def correct(connection: Connection, named: Mapping[int, int], expected: Mapping[int, int]) -> None:
    """Note how many rows of logs name new segments, if others were expected."""
    wrong = {at: named.get(at, 0) - n for at, n in expected.items() if named.get(at, 0) != n}
    execute_each(connection, _RAISE, [{"segment": at, "by": by} for at, by in wrong.items()])


def begin(connection: Connection, queue_id: int) -> None:
    """Let a queue keep a log from now on; loads wait until the commit."""
    main = (shards.c.queue_id == queue_id, shards.c.magazine == int(Magazine.MAIN))
    rows = connection.execute(
        update(shards)
        .where(*main)
        .values(seals.changing(shards, log=1))
        .returning(shards.c.shard, shards.c.logged)
    ).all()
    new = [{"queue_id": queue_id, "shard": row.shard, "start": row.logged} for row in rows]
    execute_each(connection, insert(logs), new)


def end(connection: Connection, queue_id: int) -> None:
    """Remove the log of a queue, with all that it keeps."""
    connection.execute(_HOLD, {"queue": queue_id}).all()
    main = (shards.c.queue_id == queue_id, shards.c.magazine == int(Magazine.MAIN))
    connection.execute(update(shards).where(*main).values(seals.changing(shards, log=0)))
    forget(connection, queue_id)
    connection.execute(delete(logs).where(logs.c.queue_id == queue_id))


def forget(connection: Connection, queue_id: int) -> None:
    """Remove all rows of a queue's log."""
    here = log_slices.c.queue_id == queue_id
    named = connection.execute(
        select(log_slices.c.segment_id, func.count()).where(here).group_by(log_slices.c.segment_id)
    ).all()
    connection.execute(delete(log_slices).where(here))
    let_go(connection, dict(named))


#: Where a subscription begins: at one end, at a time in microseconds, or where another one is.
Start: TypeAlias = "Literal['earliest', 'latest'] | int | QueueInfo"


def places(connection: Connection, queue_id: int, start: Start) -> dict[int, int]:
    """
    Return an offset of each shard of a log; it is not trimmed until the transaction ends.

    Raises `BadOption` for a time in the future, and `NoSuchQueue` if the other one was dropped.
    """
    held = _HOLD.with_for_update(read=True)
    first = {row.shard: row.start for row in connection.execute(held, {"queue": queue_id})}
    if start == "earliest":
        return first
    if isinstance(start, QueueInfo):
        if start.root != queue_id:
            raise BadOption(
                f"queue {start.name!r} reads the log of another queue, so its place means nothing "
                "here; name a subscription to the same queue"
            )
        there = cursors(connection, start.id)
        if not there:
            raise NoSuchQueue(f"queue {start.name!r} was dropped, so its place is unknown")
        if not start.detached_at and not any(each.log_of or each.cursor for each in there.values()):
            raise BadOption(
                f"queue {start.name!r} has the messages of a log, and no place in it; name a "
                "subscription to the same queue"
            )
        return {shard: max(each.cursor, first[shard]) for shard, each in there.items()}
    last = {row.shard: row.logged for row in connection.execute(_SIZES, {"queue": queue_id})}
    if start == "latest":
        return last
    if start > dialect.read_clock(connection) + SOON:
        time = datetime.fromtimestamp(start // 1_000_000, UTC).isoformat(" ", "seconds")
        raise BadOption(f"{time}: this time is in the future; use 'latest', or a past time")
    return {
        shard: at_time(connection, queue_id, shard, start, (first[shard], end))
        for shard, end in last.items()
    }


def at_time(
    connection: Connection, queue_id: int, shard: int, time: int, within: tuple[int, int]
) -> int:
    """Return the offset of the first message since a time, *within* a half-open range of a log."""
    begin, end = within
    given = {"queue": queue_id, "at": shard}
    while begin < end:
        row = connection.execute(_HOLDING, given | {"offset": (begin + end) // 2}).one()
        if row.logged_at >= time:
            end = row.first_offset
        else:
            begin = row.first_offset + row.messages
    return begin


def extents(connection: Connection, queue_ids: Collection[int]) -> Iterator[dict[str, Any]]:
    """Yield where each shard of some logs begins and ends, and what it has."""
    for queue_id in queue_ids:
        heads = _heads(connection, queue_id, 1)
        starts = {row.shard: row.start for row in connection.execute(_STARTS, {"queue": queue_id})}
        for size in connection.execute(_SIZES, {"queue": queue_id}).all():
            if size.shard in starts:
                first = heads.get(size.shard, [None])[0]
                yield {
                    "queue_id": queue_id,
                    "shard": size.shard,
                    "begin": starts[size.shard],
                    "end": size.logged,
                    "messages": size.logged - starts[size.shard],
                    "bytes": size.logged_bytes - first.bytes_before if first else 0,
                    "oldest_at": first and first.logged_at,
                }


def kept(connection: Connection, queue_id: int, limits: LogLimits) -> int:
    """Return how many bytes the setting of a log keeps."""
    size, now = 0, dialect.read_clock(connection)
    for shard in extents(connection, [queue_id]):
        begin = shard["begin"]
        if limits.seconds is not None:
            since, within = now - int(limits.seconds * 1e6), (begin, shard["end"])
            begin = at_time(connection, queue_id, shard["shard"], since, within)
        if begin < shard["end"]:
            given = {"queue": queue_id, "at": shard["shard"], "offset": shard["begin"]}
            first = connection.execute(_HOLDING, given).one().bytes_before
            held = connection.execute(_HOLDING, given | {"offset": begin}).one().bytes_before
            size += shard["bytes"] - (held - first)
    return size if limits.bytes is None else min(size, limits.bytes)


class Cursor(NamedTuple):
    """Where a subscription stands in a shard, as the row of its lock has it."""

    log_of: int
    cursor: int
    cursor_end: int = 0


def cursors(connection: Connection, queue_id: int) -> dict[int, Cursor]:
    """Return the cursors of a queue by shards."""
    query = select(shard_locks.c.shard, *(shard_locks.c[name] for name in Cursor._fields))
    here = shard_locks.c.queue_id == queue_id, shard_locks.c.magazine == int(Magazine.MAIN)
    return {row.shard: Cursor(*row[1:]) for row in connection.execute(query.where(*here))}


def place(connection: Connection, queue_id: int, wanted: Mapping[int, Cursor]) -> None:
    """Set the cursors of a queue by shards."""
    main = (shard_locks.c.queue_id == queue_id, shard_locks.c.magazine == int(Magazine.MAIN))
    for shard, to in sorted(wanted.items()):
        seals.change(connection, shard_locks, *main, shard_locks.c.shard == shard, **to._asdict())


def between(
    connection: Connection, queue_id: int, start: Start, end: Start | None = None
) -> dict[int, Cursor]:
    """Return the cursors of a subscription from a place of a log, up to another one if given."""
    first = places(connection, queue_id, start)
    if end is None:
        return {shard: Cursor(queue_id, at) for shard, at in first.items()}
    last = places(connection, queue_id, end)
    # A cursor_end of 0 means no end, so a shard whose end is 0 reads no log at all.
    return {
        shard: Cursor(queue_id if last[shard] else 0, min(at, last[shard]), last[shard])
        for shard, at in first.items()
    }


def measure(connection: Connection, wanted: Mapping[int, Cursor], expired: int = 0) -> Extent:
    """
    Return how much of a log cursors, which are given by shards, have yet to read.

    *expired*: what was loaded up to this time has expired.
    """
    found = [0, 0, 0]
    for shard, each in wanted.items():
        given = {"queue": each.log_of, "at": shard, "first": each.cursor, "until": expired}
        given["end"] = each.cursor_end or 2**62
        row = connection.execute(_MEASURE, given).one()
        found = [total + int(part or 0) for total, part in zip(found, row, strict=True)]
    return Extent(*found)


def readers_of(connection: Connection, segment_ids: Collection[int]) -> Sequence[int]:
    """Return the subscriptions to queues whose logs name some segments."""
    named = (dialect.one_of(segment_rows.c.id, segment_ids), segment_rows.c.log_rows > 0)
    roots = select(segment_rows.c.queue_id).where(*named)
    return connection.scalars(select(queues.c.id).where(queues.c.root_id.in_(roots))).all()


class Old(NamedTuple):
    """The beginning of a log that may be trimmed."""

    #: By shard: the offset of the first message that stays.
    upto: Mapping[int, int]
    #: How many rows name each segment.
    segments: Mapping[int, int]
    #: How many messages of each shard go.
    messages: Mapping[int, int]


def find_old(connection: Connection, queue_id: int, limits: LogLimits, most: int) -> Old:
    """
    Return what exceeds the limits at the beginning of a log, *most* rows at most.

    What a subscription has not taken in stays. Of a log that is too large, the oldest messages go
    first, whatever their shard. To trim it, hold it first: `hold`.
    """
    seconds, size = limits
    unread: dict[int, int] = {}
    for shard, cursor in connection.execute(_READERS, {"queue": queue_id}):
        unread[shard] = min(cursor, unread.get(shard, cursor))
    ends = {row.shard: row.logged_bytes for row in connection.execute(_SIZES, {"queue": queue_id})}
    now = dialect.read_clock(connection)
    before = None if seconds is None else now - int(seconds * 1e6)
    found = _heads(connection, queue_id, most)
    left = 0
    if size is not None:
        firsts = {shard: rows[0].bytes_before for shard, rows in found.items()}
        left = sum(ends[shard] - first for shard, first in firsts.items())
    upto: dict[int, int] = {}
    named, counts = Counter[int](), Counter[int]()
    for row in islice(_oldest_first(found, unread), most):
        is_old = before is not None and row.logged_at <= before
        if not is_old and (size is None or left - row.bytes < size):
            break
        upto[row.shard] = row.first_offset + row.messages
        named[row.segment_id] += 1
        counts[row.shard] += row.messages
        left -= row.bytes
    return Old(upto, named, counts)


def _oldest_first(
    found: Mapping[int, Sequence[Row[Any]]], unread: Mapping[int, int]
) -> Iterator[Row[Any]]:
    """Yield the first rows of shards by their times, up to what is unread in each."""

    def is_read(row: Row[Any]) -> bool:
        return row.shard not in unread or row.first_offset + row.messages <= unread[row.shard]

    read = (takewhile(is_read, rows) for _, rows in sorted(found.items()))
    return heapq.merge(*read, key=attrgetter("logged_at"))


def hold(connection: Connection, queue_id: int) -> bool:
    """
    Keep others from reading a log until the transaction ends; return whether there is one.

    Subscriptions read it while they have the locks of their shards. A new one holds the log itself.
    """
    readers = _READERS.order_by(shard_locks.c.queue_id, shard_locks.c.shard)
    connection.execute(readers.with_for_update(), {"queue": queue_id}).all()
    return bool(connection.execute(_HOLD, {"queue": queue_id}).all())


def trim(connection: Connection, queue_id: int, old: Old) -> None:
    """Remove the beginning of a log, and the segments that nothing else names."""
    rows = [{"queue": queue_id, "at": at, "upto": upto} for at, upto in sorted(old.upto.items())]
    execute_each(connection, _REMOVE, rows)
    execute_each(connection, _START, rows)
    let_go(connection, old.segments)


def let_go(connection: Connection, named: Mapping[int, int]) -> None:
    """Note that so many rows of logs no longer name some segments."""
    execute_each(
        connection, _RAISE, [{"segment": at, "by": -count} for at, count in sorted(named.items())]
    )
    segments.release(connection, named.keys())


#: The shards whose subscriptions still take in from a log.
READING = and_(
    shard_locks.c.magazine == int(Magazine.MAIN),
    shard_locks.c.log_of != 0,
    (shard_locks.c.cursor_end == 0) | (shard_locks.c.cursor < shard_locks.c.cursor_end),
)
#: The shard that a row of `logs` is of.
OF_LOG = and_(
    shards.c.queue_id == logs.c.queue_id,
    shards.c.magazine == int(Magazine.MAIN),
    shards.c.shard == logs.c.shard,
)
_READERS = select(shard_locks.c.shard, shard_locks.c.cursor).where(
    shard_locks.c.queue_id.in_(select(queues.c.id).where(queues.c.root_id == bindparam("queue"))),
    READING,
)
_SIZES = select(shards.c.shard, shards.c.logged, shards.c.logged_bytes).where(
    shards.c.queue_id == bindparam("queue"), shards.c.magazine == int(Magazine.MAIN)
)
_ENDS = log_slices.c.first_offset + log_slices.c.count
_FIRST, _END = (bindparam(name, type_=BigInteger) for name in ("first", "end"))
_HERE = case((_ENDS < _END, _ENDS), else_=_END) - case(
    (log_slices.c.first_offset > _FIRST, log_slices.c.first_offset), else_=_FIRST
)
_OLD = log_slices.c.loaded_at <= bindparam("until", type_=BigInteger)
_MEASURE = select(
    func.sum(_HERE),
    func.sum(log_slices.c.bytes * _HERE / log_slices.c.count),
    func.sum(case((_OLD, _HERE), else_=0)),
).where(
    log_slices.c.queue_id == bindparam("queue"),
    log_slices.c.shard == bindparam("at"),
    log_slices.c.first_offset < _END,
    _ENDS > _FIRST,
)
_HEADS: Select[Any] = (
    select(
        *(log_slices.c[name] for name in ("shard", "first_offset", "segment_id", "bytes")),
        *(log_slices.c.bytes_before, log_slices.c.logged_at),
        log_slices.c.count.label("messages"),
    )
    .where(log_slices.c.queue_id == bindparam("queue"), log_slices.c.shard == bindparam("at"))
    .order_by(log_slices.c.first_offset)
    .limit(bindparam("most", type_=BigInteger))
)


_STARTS = select(logs.c.shard, logs.c.start).where(_OF_QUEUE)


def row_with(
    offset: Any, queue_id: ColumnElement[int], shard: ColumnElement[int], *columns: Any
) -> Select[Any]:
    """Return the statement that reads *columns* of the row of a log that has an offset."""
    first = log_slices.c.first_offset
    here = (log_slices.c.queue_id == queue_id, log_slices.c.shard == shard, first <= offset)
    return select(*columns).where(*here).order_by(first.desc()).limit(1)


_HOLDING = row_with(
    *(bindparam("offset", type_=BigInteger), bindparam("queue"), bindparam("at")),
    *(log_slices.c.first_offset, log_slices.c.bytes_before, log_slices.c.logged_at),
    log_slices.c.count.label("messages"),
)


def _heads(connection: Connection, queue_id: int, most: int) -> dict[int, Sequence[Row[Any]]]:
    """Return the first rows of each shard that has some."""
    numbers = connection.scalars(_SIZES, {"queue": queue_id}).all()
    each: dict[int, Sequence[Row[Any]]] = {
        shard: connection.execute(_HEADS, {"queue": queue_id, "at": shard, "most": most}).all()
        for shard in numbers
    }
    return {shard: rows for shard, rows in each.items() if rows}
