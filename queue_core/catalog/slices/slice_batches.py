"""Slice batches: slices as one array for each column, to be moved or removed together.

A sweep, a shovel or an expiry may concern a hundred thousand slices of one message. As objects,
they would cost several times what they cost the database. So their columns are arrays here, the
database gets these as one parameter, and a moved slice keeps its row. Some rows of a slice are a
row of a batch too, with bounds of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap
from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Row,
    Select,
    bindparam,
    func,
    select,
    tuple_,
)

from queue_core.catalog.damage import UNREADABLE, damaged, decoding
from queue_core.catalog.slices.conditions import Rules
from queue_core.catalog.slices.slices import ShardKey, fetch_these
from queue_core.catalog.tables import slices
from queue_core.values.ids import first_id
from queue_core.values.model import Magazine, Slice
from queue_core.values.plan import Taken
from queue_core.values.rows import Numbers, Rows

#: Stands for null among numbers that are never negative.
NULL = -1
_MASK = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceBatch:
    """Slices in order of queue, magazine, shard and position: one array for each column."""

    id: Numbers
    queue_id: Numbers
    magazine: Numbers
    shard: Numbers
    state: Numbers
    position: Numbers
    segment_id: Numbers
    row_start: Numbers
    row_stop: Numbers
    count: Numbers
    attempts: Numbers
    deliveries: Numbers
    #: `NULL` for a slice that nobody holds.
    consumer_id: Numbers
    ticket: Numbers
    #: When they came to the magazine, and when they are due; `NULL` without a time.
    moved_at: Numbers
    due_at: Numbers
    #: The bitmaps of slices that have one: as the catalog has them, or read.
    bitmap: npt.NDArray[np.object_]
    #: None for a whole slice of the catalog; otherwise, the slice and its rows, as `Taken`.
    part: npt.NDArray[np.object_]

    @staticmethod
    def of(taken: Sequence[Taken], new: Collection[int] = ()) -> SliceBatch:
        """Return rows of slices as a batch; those at the indices *new* are not in the catalog."""
        part = np.empty(len(taken), np.object_)
        part[:] = [
            None if len(pair[1]) == len(pair[0].rows) and at not in new else pair
            for at, pair in enumerate(taken)
        ]
        return _batch_of([_row(*pair) for pair in taken], [rows.bitmap for _, rows in taken], part)

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, which: slice | _MASK | Numbers) -> SliceBatch:
        return SliceBatch(
            **{field.name: getattr(self, field.name)[which] for field in fields(self)}
        )

    @property
    def messages(self) -> int:
        """The number of messages in all slices."""
        return int(self.count.sum())

    @property
    def end(self) -> Numbers:
        """One past the place of the last row of each slice."""
        return self.position + self.row_stop - self.row_start

    def by_shard(self) -> list[tuple[ShardKey, slice]]:
        """Return the shards in their order, each with the range of its slices."""
        if not len(self):
            return []
        number = ((self.queue_id * len(Magazine) + self.magazine) << 32) + self.shard
        starts = [0, *(np.flatnonzero(number[1:] != number[:-1]) + 1).tolist()]
        ranges = map(slice, starts, [*starts[1:], len(self)])
        keys = (column[starts].tolist() for column in (self.queue_id, self.magazine, self.shard))
        return list(zip(zip(*keys, strict=True), ranges, strict=True))

    def message_ids(self) -> tuple[Numbers, Numbers]:
        """Return the ids of all messages, and the index of the slice of each."""
        spans = self.row_stop - self.row_start
        of = np.repeat(np.arange(len(self)), spans)
        before = np.cumsum(spans) - spans
        rows = np.arange(len(of)) + (self.row_start - before)[of]
        here = np.ones(len(of), np.bool_)
        for at in np.flatnonzero(self.bitmap != None).tolist():  # noqa: E711 - for each element
            bitmap = self.bitmap[at]
            with decoding(slices, f"id {self.id[at]}"):
                read = bitmap if isinstance(bitmap, BitMap) else BitMap.deserialize(bitmap)
                inside = np.frombuffer(read.to_array(), np.uint32)
            these = here[before[at] : before[at] + spans[at]]
            these[:] = False
            these[inside - self.row_start[at]] = True
        return (rows + first_id(1) * self.segment_id[of])[here], of[here]

    def whole(self, limit: int) -> int:
        """Return how many slices, *limit* at most, end before one that interleaves with them."""
        if len(self) <= limit:
            return len(self)
        shard = self.shard == self.shard[limit]
        begin = int(np.argmax(shard))
        ends = np.maximum.accumulate(self.end[begin:limit])
        apart = np.flatnonzero(self.position[begin + 1 : limit + 1] >= ends)
        return begin + int(apart[-1]) + 1 if len(apart) else begin


_NUMBERS = tuple(field.name for field in fields(SliceBatch) if field.name not in ("bitmap", "part"))


def read(connection: Connection, where: Rules) -> SliceBatch:
    """Return all slices that meet conditions, without locks; raises `DamagedCatalog`."""
    return _of_rows(connection, connection.execute(_READ.where(*where)).all())


def read_given(
    connection: Connection,
    where: Rules,
    most: int,
    begin: tuple[int, int],
    given: Mapping[str, Any],
) -> SliceBatch:
    """
    Lock the first *most* slices that meet conditions with parameters; pass over locked ones.

    *begin*: the shard and the place from which on they are read. To build the statement takes
    longer than to read a batch, so conditions should be built once. Raises `DamagedCatalog`.
    """
    shard, place = begin
    given = {"most": most, "from_shard": shard, "from_place": place, **given}
    query = _reading(where)
    return _of_rows(connection, connection.execute(query, given).all())


@lru_cache(maxsize=64)
def _reading(where: Rules) -> Select[Any]:
    names = ("most", "from_shard", "from_place")
    most, *begin = (bindparam(name, type_=BigInteger) for name in names)
    follows = tuple_(slices.c.shard, slices.c.position) >= tuple_(*begin)
    return _READ.where(*where, follows).limit(most).with_for_update(skip_locked=True, of=slices)


def _of_rows(connection: Connection, rows: Sequence[Row[Any]]) -> SliceBatch:
    try:
        # Whole slices, without parts.
        none = np.empty(len(rows), np.object_)
        return _batch_of([row[:-1] for row in rows], [row[-1] for row in rows], none)
    except UNREADABLE as error:
        # Names the row.
        fetch_these(connection, [row.id for row in rows])
        raise damaged(slices, "one of some ids", error) from error


def _batch_of(rows: Sequence[Sequence[Any]], bitmaps: Sequence[Any], part: Any) -> SliceBatch:
    """Return a batch from rows of the numbers, in any order; a locked row may have changed."""
    numbers = np.array(rows, np.int64).reshape(len(rows), len(_NUMBERS))
    bitmap = np.empty(len(rows), np.object_)
    bitmap[:] = bitmaps
    of = dict(zip(_NUMBERS, numbers.T, strict=True))
    batch = SliceBatch(**of, bitmap=bitmap, part=part)
    if len(batch) < 2:
        return batch
    return batch[np.lexsort((batch.position, batch.shard, batch.magazine, batch.queue_id))]


def _row(piece: Slice, rows: Rows) -> tuple[int, ...]:
    """Return the numbers of rows of a slice, as `_READ` reads them."""
    or_null = (NULL if x is None else x for x in (piece.consumer_id, piece.ticket))
    return (
        piece.id,
        piece.queue_id,
        int(piece.magazine),
        piece.shard,
        int(piece.state),
        piece.place_of(rows.start),
        piece.segment_id,
        rows.start,
        rows.stop,
        len(rows),
        piece.attempts,
        piece.deliveries,
        *or_null,
        piece.moved_at,
        NULL if piece.due_at is None else piece.due_at,
    )


def _never_null(name: str) -> ColumnElement[Any]:
    column = slices.c[name]
    return func.coalesce(column, NULL) if column.nullable else column


_READ: Select[Any] = select(*map(_never_null, _NUMBERS), slices.c.bitmap).order_by(
    slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position
)
