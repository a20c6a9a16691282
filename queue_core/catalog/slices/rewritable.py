"""Slices that a compaction may rewrite: where there are enough of them, and how full segments are.

The database counts; no slice is fetched.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, and_, func, or_, select

from queue_core.catalog.damage import decoding
from queue_core.catalog.slices import parts
from queue_core.catalog.slices.conditions import WAITING, Position, Rules, in_magazines, in_queues
from queue_core.catalog.tables import segments, slices
from queue_core.values.model import Magazine, QueueInfo, State

#: Segments up to this size in bytes are small: they cost as much as larger ones.
SMALL_BYTES = 64 << 10
#: The least number of small neighbours that are merged. With fewer, messages would be rewritten too
#: often: with 64, a message among 250,000 is rewritten 3 times.
NEIGHBOURS = 64
#: A file is rewritten when less than this fraction (one in N) of its bytes is alive.
SPARSE = 4
#: How many slices of a large queue one look takes: for small ones, an index is enough.
SMALL_PART = 1 << 17
SPARSE_PART = 1 << 13
#: No segment has so many bytes.
_LARGEST = 2**62
_PLACE = (slices.c.queue_id, slices.c.magazine, slices.c.shard)
#: Shards, and their numbers of small slices.
Shards = dict[tuple[Magazine, int], int]


class Fullness(NamedTuple):
    """How much of a segment is alive."""

    bytes: int
    alive: int
    #: Whether it has a file, which only slices of one queue name.
    filed: bool
    #: Whether all of its messages wait.
    waiting: bool


def promising(connection: Connection, queue_ids: Collection[int]) -> dict[int, Shards]:
    """Return the shards that may have slices worth rewriting, by the ids of their queues."""
    here = in_queues(queue_ids)
    sparse = select(*_PLACE).where(*here, slices.c.segment_id.in_(_mostly_dead(*here)))
    found: dict[int, Shards] = defaultdict(dict)
    for row in connection.execute(sparse.distinct()):
        found[row.queue_id][Magazine(row.magazine), row.shard] = 0
    for row in connection.execute(_small(here)):
        found[row.queue_id][Magazine(row.magazine), row.shard] = row.small
    return dict(found)


def promising_in_parts(connection: Connection, queue: QueueInfo, shards: Sequence[int]) -> Shards:
    """Return the same by some parts of a large queue, each of which begins in one of *shards*."""
    found: Shards = {}
    for magazine in Magazine:
        begin = parts.random_place(connection, queue, magazine, shards)
        for shard in connection.scalars(_sparse_from(queue, magazine, begin)):
            found[magazine, shard] = 0
        begin = parts.random_place(connection, queue, magazine, shards)
        for row in connection.execute(_small_from(queue, magazine, begin)):
            found[magazine, row.shard] = row.small
    return found


def fullness(connection: Connection, here: Rules) -> dict[int, Fullness]:
    """Return how full the segments of some slices are, whose other slices may be anywhere."""
    rows = connection.execute(
        select(
            segments.c.id,
            segments.c.bytes,
            segments.c.file.is_not(None).label("filed"),
            segments.c.log_rows,
            func.count(slices.c.queue_id.distinct()).label("queues"),
            func.sum(slices.c.bytes).label("alive"),
            func.max(slices.c.state).label("state"),
        )
        .join(slices, slices.c.segment_id == segments.c.id)
        .where(segments.c.id.in_(select(slices.c.segment_id).where(*here)))
        .group_by(segments.c.id)
    )
    found = {}
    for row in rows:
        with decoding(segments, f"id {row.id}"):
            waiting = row.state == int(State.LOADED)
            # Otherwise, the file stays for a log or another queue.
            filed = bool(row.filed) and not row.log_rows and row.queues == 1
            found[row.id] = Fullness(int(row.bytes), int(row.alive), filed, waiting)
    return found


def _sparse_from(queue: QueueInfo, magazine: Magazine, begin: Position) -> Select[Any]:
    columns = (slices.c.shard, slices.c.segment_id)
    there = parts.slices_from(queue, magazine, begin, SPARSE_PART, *columns).cte("there")
    # Other slices of their segments are anywhere in the queue, and an index finds them.
    named = (
        select(there.c.segment_id)
        .join(segments, segments.c.id == there.c.segment_id)
        .where(_may_be_sparse())
    )
    alive = _mostly_dead(slices.c.segment_id.in_(named))
    return select(there.c.shard).where(there.c.segment_id.in_(alive)).distinct()


def _small_from(queue: QueueInfo, magazine: Magazine, begin: Position) -> Select[Any]:
    columns = (slices.c.shard, slices.c.bytes)
    there = parts.slices_from(queue, magazine, begin, SMALL_PART, *columns).subquery()
    return (
        select(there.c.shard, func.count().label("small"))
        .where(there.c.bytes <= SMALL_BYTES)
        .group_by(there.c.shard)
        .having(func.count() >= NEIGHBOURS)
    )


def _small(here: Rules) -> Select[Any]:
    """Return the statement that finds shards with enough small slices, and counts these."""
    # An index has all columns of it. The slices of a small segment are small themselves.
    return (
        select(*_PLACE, func.count().label("small"))
        # The index begins with the magazine and the state.
        .where(*here, *in_magazines([*Magazine]), *WAITING, slices.c.bytes <= SMALL_BYTES)
        .group_by(*_PLACE)
        .having(func.count() >= NEIGHBOURS)
    )


def _may_be_sparse() -> ColumnElement[bool]:
    # To SQLite, a text is larger than any number. It is fetched, and so reported as damaged.
    filed = and_(segments.c.file.is_not(None), segments.c.log_rows == 0)
    return or_(filed, segments.c.bytes > _LARGEST)


def _mostly_dead(*here: ColumnElement[bool]) -> Select[tuple[int]]:
    """Return the statement that finds the segments of some slices that are worth rewriting."""
    is_sparse = and_(
        func.sum(slices.c.bytes) * SPARSE < func.max(segments.c.bytes),
        func.max(slices.c.state) == int(State.LOADED),
    )
    return (
        select(slices.c.segment_id)
        .join(segments, segments.c.id == slices.c.segment_id)
        .where(*here, _may_be_sparse())
        .group_by(slices.c.segment_id)
        .having(or_(is_sparse, func.max(segments.c.bytes) > _LARGEST))
    )
