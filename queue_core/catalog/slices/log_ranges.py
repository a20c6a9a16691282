"""Ranges of a log, by the offsets of each shard: where they are, and the messages in them.

Nothing is locked. Guard: a reader reads a range in one transaction, which sees one state of the
catalog, and compares where the log begins. Afterwards, files stay for vacuum's grace period.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from sqlalchemy import Connection, bindparam, select

from queue_core.catalog.slices import id_map, intake, logs
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import logs as log_rows
from queue_core.catalog.tables import shards
from queue_core.values.ids import first_id
from queue_core.values.model import Magazine, QueueInfo, Slice

_REACH = (
    select(log_rows.c.shard, log_rows.c.start, shards.c.logged)
    .join(shards, logs.OF_LOG)
    .where(log_rows.c.queue_id == bindparam("root"))
    .order_by(log_rows.c.shard)
)


#: The name of a queue, and the number of a shard.
Shard: TypeAlias = tuple[str, int]


class Reach(NamedTuple):
    """The offsets of the messages that a shard's log has."""

    start: int
    end: int


class Mark(NamedTuple):
    """What shows that a message is the same one: its id, and when it was logged."""

    id: int
    #: 0: it is merged with others, so that its own time is not in the catalog.
    at: int


def reach(connection: Connection, queues: Sequence[QueueInfo]) -> dict[Shard, Reach]:
    """Return what the logs of queues, or of their roots, have; nothing for one without a log."""
    return {
        (queue.name, row.shard): Reach(row.start, row.logged)
        for queue in queues
        for row in connection.execute(_REACH, {"root": queue.root})
    }


def since(
    connection: Connection,
    queues: Sequence[QueueInfo],
    there: Mapping[Shard, Reach],
    at: int,
) -> dict[Shard, int]:
    """Return each shard's first offset that was logged at a time or later; its end, if none was."""
    roots = {queue.name: queue.root for queue in queues}
    return {
        (name, shard): logs.at_time(connection, roots[name], shard, at, each)
        for (name, shard), each in there.items()
    }


def between(
    connection: Connection, queue: QueueInfo, begins: Mapping[Shard, int], ends: Mapping[Shard, int]
) -> list[tuple[int, Slice]]:
    """
    Return the messages of a queue from some offsets up to others: slices, and their first offsets.

    They are in the order of shards and offsets.
    """
    return [(first, piece) for piece, first, _ in _pieces(connection, queue, begins, ends)]


def marks(
    connection: Connection, queues: Sequence[QueueInfo], ends: Mapping[Shard, int]
) -> dict[Shard, Mark]:
    """Return the marks of the messages before some offsets, of those that there are."""
    begins = {key: end - 1 for key, end in ends.items()}
    found = {
        (queue.name, piece.shard): (first_id(piece.segment_id) + piece.rows.start, at)
        for queue in queues
        for piece, _, at in _pieces(connection, queue, begins, ends)
    }
    ids = id_map.logical(connection, np.array([row for row, _ in found.values()], np.int64))
    times = [at for _, at in found.values()]
    return dict(zip(found, map(Mark, ids.tolist(), times), strict=True))


def _pieces(
    connection: Connection, queue: QueueInfo, begins: Mapping[Shard, int], ends: Mapping[Shard, int]
) -> Iterator[tuple[Slice, int, int]]:
    """Yield the messages between offsets, by rows: with the first offset, and the time if known."""
    upto: dict[ShardKey, int] = {}
    first: dict[ShardKey, int] = {}
    for (name, shard), end in ends.items():
        if name == queue.name and begins[name, shard] < end:
            key = queue.id, int(Magazine.MAIN), shard
            upto[key], first[key] = end, begins[name, shard]
    reading = (queue.id, queue.root, first, upto)
    for row in intake.rows_between(connection, *reading) if upto else ():
        key = queue.id, int(Magazine.MAIN), row.shard
        begin = max(first[key], row.first_offset)
        piece = intake.as_slice(key, row, begin, upto[key] - begin)
        # The last row may end before.
        if piece.rows:
            yield piece, begin, 0 if row.compacted else int(row.logged_at)
