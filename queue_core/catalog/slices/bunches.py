"""Bunches: whole slices of a magazine that are moved or removed together, by a few statements.

A sweep, a shovel or an expiry may concern a hundred thousand slices of one message. As objects,
they would cost several times what they cost the database. So their columns are arrays here, the
database gets these as one parameter, and a moved slice keeps its row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    Update,
    bindparam,
    delete,
    func,
    select,
    tuple_,
    update,
)

from queue_core.catalog import dialect, seals
from queue_core.catalog.damage import UNREADABLE, damaged, decoding
from queue_core.catalog.slices import lanes
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import Rules
from queue_core.catalog.slices.segments import release
from queue_core.catalog.slices.slices import Room, ShardKey, allocate, fetch_these
from queue_core.catalog.tables import slices
from queue_core.values.ids import first_id
from queue_core.values.model import Magazine, QueueInfo, State
from queue_core.values.rows import Numbers

#: Stands for null among numbers that are never negative.
NULL = -1
_MASK = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bunch:
    """Slices of one magazine, in order of shards and positions: one array for each column."""

    id: Numbers
    shard: Numbers
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
    #: The bitmaps of slices that have one.
    bitmap: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.id)

    def __getitem__(self, which: slice | _MASK | Numbers) -> Bunch:
        return Bunch(**{field.name: getattr(self, field.name)[which] for field in fields(self)})

    @property
    def messages(self) -> int:
        """The number of messages in all slices."""
        return int(self.count.sum())

    @property
    def end(self) -> Numbers:
        """One past the place of the last row of each slice."""
        return self.position + self.row_stop - self.row_start

    def by_shard(self) -> list[tuple[int, slice]]:
        """Return the shards in their order, each with the range of its slices."""
        shards, starts = np.unique(self.shard, return_index=True)
        stops = [*starts[1:].tolist(), len(self)]
        ranges = map(slice, starts.tolist(), stops)
        return list(zip(shards.tolist(), ranges, strict=True))

    def message_ids(self) -> tuple[Numbers, Numbers]:
        """Return the ids of all messages, and the index of the slice of each."""
        spans = self.row_stop - self.row_start
        of = np.repeat(np.arange(len(self)), spans)
        before = np.cumsum(spans) - spans
        rows = np.arange(len(of)) + (self.row_start - before)[of]
        here = np.ones(len(of), np.bool_)
        for at in np.flatnonzero(self.bitmap != None).tolist():  # noqa: E711 - for each element
            with decoding(slices, f"id {self.id[at]}"):
                inside = np.frombuffer(BitMap.deserialize(self.bitmap[at]).to_array(), np.uint32)
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


_NUMBERS = tuple(field.name for field in fields(Bunch) if field.name != "bitmap")


def read(
    connection: Connection,
    *where: ColumnElement[bool],
    limit: int | None = None,
    skip_locked: bool = True,
) -> Bunch:
    """
    Return the first *limit* slices of one magazine that meet conditions; by default, all.

    With *skip_locked*, lock them, and pass over slices that others have locked. Raises
    `DamagedCatalog`.
    """
    query = _READ.where(*where).limit(limit)
    if skip_locked:
        query = dialect.of(connection).skip_locked(query, slices)
    return _of_rows(connection, connection.execute(query).all())


def read_given(
    connection: Connection,
    where: Rules,
    most: int,
    begin: tuple[int, int],
    given: Mapping[str, Any],
) -> Bunch:
    """
    Return the first *most* slices that meet conditions with parameters, locked as `read` does it.

    *begin*: the shard and the place from which on they are read. To build the statement takes
    longer than to read a batch, so conditions should be built once.
    """
    shard, place = begin
    given = {"most": most, "from_shard": shard, "from_place": place, **given}
    query = _reading(dialect.of(connection), where)
    return _of_rows(connection, connection.execute(query, given).all())


@lru_cache(maxsize=64)
def _reading(database: dialect.Dialect, where: Rules) -> Select[Any]:
    names = ("most", "from_shard", "from_place")
    most, *begin = (bindparam(name, type_=BigInteger) for name in names)
    follows = tuple_(slices.c.shard, slices.c.position) >= tuple_(*begin)
    return database.skip_locked(_READ.where(*where, follows).limit(most), slices)


def _of_rows(connection: Connection, rows: Sequence[Row[Any]]) -> Bunch:
    try:
        numbers = np.array([row[:-1] for row in rows], np.int64).reshape(len(rows), len(_NUMBERS))
    except UNREADABLE as error:
        # Names the row.
        fetch_these(connection, [row.id for row in rows])
        raise damaged(slices, "one of some ids", error) from error
    bitmaps = np.empty(len(rows), np.object_)
    bitmaps[:] = [row[-1] for row in rows]
    of = {name: numbers[:, at] for at, name in enumerate(_NUMBERS)}
    # Locked rows of PostgreSQL may have changed after they were sorted.
    order = np.lexsort((of["position"], of["shard"]))
    return Bunch(**of, bitmap=bitmaps)[order] if len(rows) else Bunch(**of, bitmap=bitmaps)


def _never_null(name: str) -> ColumnElement[Any]:
    column = slices.c[name]
    return func.coalesce(column, NULL) if column.nullable else column


_READ: Select[Any] = select(*map(_never_null, _NUMBERS), slices.c.bitmap).order_by(
    slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position
)


def move(
    connection: Connection,
    queue: QueueInfo,
    bunch: Bunch,
    of: tuple[Magazine, Magazine],
    counter: str,
    changes: Changes,
    *,
    due_at: Numbers | None = None,
    fired_at: int | None = None,
    now: int | None = None,
) -> None:
    """
    Move slices, loaded, to the tails of their shards, *of* one magazine to another or the same.

    *counter* counts them where they were; *changes*, to be applied afterwards, has the counts.
    *due_at*: when each is due again, or `NULL`; by default, all have no time. *now*: the time, if
    the caller knows it.
    """
    if not len(bunch):
        return
    offsets, wanted = _side_by_side(queue.id, bunch, of[1])
    moved_at = dialect.read_clock(connection) if now is None else now
    dialect.of(connection).take(connection)
    tails = allocate(connection, wanted)
    position = offsets.copy()
    for shard, range in bunch.by_shard():
        position[range] += tails[queue.id, int(of[1]), shard]
    none = np.full(len(bunch), NULL)
    rank, pace = none, none
    if of[1] is Magazine.MAIN:
        spans = bunch.row_stop - bunch.row_start
        ranked = lanes.rank_bunch(
            connection, queue.id, bunch.shard, position, position + spans, bunch.messages
        )
        rank, pace = (none, none) if ranked is None else ranked
    each = {
        "position": position,
        "due_at": none if due_at is None else due_at,
        "rank": rank,
        "pace": pace,
    }
    same: dict[str, Any] = {
        "magazine": int(of[1]),
        "state": int(State.LOADED),
        "consumer_id": None,
        "ticket": None,
        "moved_at": moved_at,
    }
    if fired_at is not None:
        same["fired_at"] = fired_at
    _update(connection, bunch.id, same, each)
    _count(changes, queue, bunch, of[0], counter, moved=True)


def remove(
    connection: Connection,
    queue: QueueInfo,
    bunch: Bunch,
    magazine: Magazine,
    counter: str,
    changes: Changes,
) -> None:
    """Remove slices for good; *counter* and *changes* are as in `move`."""
    if not len(bunch):
        return
    dialect.of(connection).take(connection)
    these = dialect.of(connection).one_of(slices.c.id, bunch.id.tolist())
    connection.execute(delete(slices).where(these))
    release(connection, np.unique(bunch.segment_id).tolist())
    _count(changes, queue, bunch, magazine, counter, moved=False)


def _side_by_side(
    queue_id: int, bunch: Bunch, to: Magazine
) -> tuple[Numbers, Mapping[ShardKey, Room]]:
    """Return the offset of each slice from its shard's new tail, and what each shard needs."""
    offsets = np.zeros(len(bunch), np.int64)
    wanted = {}
    end = bunch.end
    for shard, range in bunch.by_shard():
        position = bunch.position[range]
        furthest = np.maximum.accumulate(end[range])
        # Slices whose rows interleave keep doing so: they have one distance from the tail.
        begins = np.concatenate([[True], position[1:] >= furthest[:-1]])
        group = np.cumsum(begins) - 1
        first = position[begins]
        last = furthest[np.concatenate([begins[1:], [True]])]
        stops = np.cumsum(last - first)
        offsets[range] = position - first[group] + (stops - (last - first))[group]
        messages = int(bunch.count[range].sum())
        wanted[queue_id, int(to), shard] = Room(int(stops[-1]), messages)
    return offsets, wanted


def _update(
    connection: Connection,
    ids: Numbers,
    same: Mapping[str, int | None],
    each: Mapping[str, Numbers],
) -> None:
    """Give slices the *same* values, and *each* its own of other columns."""
    gains = seals.gain(slices, same)["gain"] + seals.gains(slices, each)
    columns = {name: _or_none(values) for name, values in each.items()}
    database = dialect.of(connection)
    rows = database.given_rows({"slice_id": ids.tolist(), "gain": gains.tolist(), **columns})
    statement = _updating(database, tuple(same), tuple(each))
    connection.execute(statement, {f"new_{name}": value for name, value in same.items()} | rows)


@lru_cache(maxsize=64)
def _updating(database: dialect.Dialect, same: tuple[str, ...], each: tuple[str, ...]) -> Update:
    given = database.rows_of(("slice_id", "gain", *each))
    values = {name: bindparam(f"new_{name}", type_=slices.c[name].type) for name in same}
    seal = seals.resealing(slices, (*same, *each), given.c.gain)
    own = {name: given.c[name] for name in each}
    here = slices.c.id == given.c.slice_id
    return update(slices).where(here).values(values | own | {"seal": seal})


def _or_none(values: Numbers) -> Sequence[int | None]:
    return np.where(values == NULL, None, values).tolist()  # type: ignore[call-overload,no-any-return]


def _count(
    changes: Changes,
    queue: QueueInfo,
    bunch: Bunch,
    magazine: Magazine,
    counter: str,
    *,
    moved: bool,
) -> None:
    end = bunch.end
    held = bunch.ticket != NULL
    for shard, range in bunch.by_shard():
        key = (queue.id, int(magazine), shard)
        changes.count_at(key, **{counter: int(bunch.count[range].sum())})
        free = ~held[range]
        if free.any():
            # In the counters, a message that has left a shard was fired from it.
            changes.fire_at(key, int(bunch.count[range][free].sum()), int(end[range][free].max()))
    changes.left(queue.id, magazine, moved=moved)
