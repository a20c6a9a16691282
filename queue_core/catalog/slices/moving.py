"""Move slices to the tails of their shards.

Whole slices keep their rows of the catalog, and parts get rows of their own. Everything is an array
with one value for each slice, so that as many statements move a thousand slices as one.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection, Update, bindparam, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.slices import flows
from queue_core.catalog.slices.slice_batches import NULL, SliceBatch
from queue_core.catalog.slices.slices import ShardKey, add, columns_of
from queue_core.catalog.slices.tails import Room
from queue_core.catalog.tables import slices
from queue_core.values.model import Magazine, Slice, State
from queue_core.values.rows import Numbers, Rows


class MovingRows(NamedTuple):
    """Rows that move, with new values of some columns."""

    piece: Slice
    rows: Rows
    #: Whether the slice is not in the catalog.
    is_new: bool
    values: Mapping[str, int | None]


class MovingSlices(NamedTuple):
    """Slices that move to the tails of their shards in a magazine, with new values of columns."""

    batch: SliceBatch
    to: Magazine
    values: Mapping[str, Numbers | int | None]


def together(to: Magazine, moved: list[MovingRows]) -> MovingSlices:
    """Return one move of many rows; where a value is new for some of them, others keep theirs."""
    moved.sort(key=lambda one: (*one.piece.shard_key, one.piece.place_of(one.rows.start)))
    new = [at for at, one in enumerate(moved) if one.is_new]
    batch = SliceBatch.of([(one.piece, one.rows) for one in moved], new)
    values: dict[str, Numbers | int | None] = {}
    for name in sorted({name for one in moved for name in one.values}):
        # Messages that move are not due, unless that is new.
        kept = (None if name == "due_at" else getattr(one.piece, name) for one in moved)
        of = [one.values.get(name, old) for one, old in zip(moved, kept, strict=True)]
        alike = all(value == of[0] for value in of)
        values[name] = of[0] if alike else np.array([NULL if x is None else x for x in of])
    return MovingSlices(batch, to, values)


def side_by_side(
    batch: SliceBatch, to: Magazine, wanted: MutableMapping[ShardKey, Room]
) -> Numbers:
    """
    Return the offset of each slice from the new tail of its shard.

    Adds to *wanted* what the shards need. Slices whose rows interleave keep doing so.
    """
    shards = batch.by_shard()
    if not shards:
        return np.zeros(0, np.int64)
    starts = [range.start for _, range in shards]
    sizes = np.diff([*starts, len(batch)])
    # Put all shards on one line, as if the places of each followed those of the one before.
    lowest = batch.position[starts]
    span = np.maximum.reduceat(batch.end, starts) - lowest
    in_line = np.repeat(np.cumsum(span) - span - lowest, sizes)
    position = batch.position + in_line
    furthest = np.maximum.accumulate(batch.end + in_line)
    # Slices that interleave have one distance from the tail.
    begins = np.concatenate([[True], position[1:] >= furthest[:-1]])
    group = np.cumsum(begins) - 1
    first = position[begins]
    length = furthest[np.concatenate([begins[1:], [True]])] - first
    stops = np.cumsum(length)
    packed: Numbers = position - first[group] + (stops - length)[group]
    begin, end = packed[starts], stops[group[np.cumsum(sizes) - 1]]
    messages = np.add.reduceat(batch.count, starts)
    before = []
    for ((queue_id, _, shard), _), places, count in zip(
        shards, (end - begin).tolist(), messages.tolist(), strict=True
    ):
        key = (queue_id, int(to), shard)
        room = wanted.get(key, Room(0, 0))
        before.append(room.places)
        wanted[key] = Room(room.places + places, room.messages + count)
    return packed + np.repeat(np.array(before, np.int64) - begin, sizes)


def write(
    connection: Connection,
    move: MovingSlices,
    offsets: Numbers,
    tails: Mapping[ShardKey, int],
    moved_at: int | None,
) -> None:
    """Write a move, whose *offsets* are those from the *tails* of the shards."""
    batch, to, values = move
    position = offsets.copy()
    for (queue_id, _, shard), range in batch.by_shard():
        position[range] += tails[queue_id, int(to), shard]
    new: dict[str, Numbers | int | None] = {
        "magazine": int(to),
        "state": int(State.LOADED),
        "position": position,
        "consumer_id": None,
        "ticket": None,
        "moved_at": moved_at,
        "due_at": None,
        "rank": None,
        "rank_step": None,
        **values,
    }
    if to is Magazine.MAIN:
        new |= flows.rank_returned(connection, batch, position)
    same = {name: value for name, value in new.items() if not isinstance(value, np.ndarray)}
    each = {name: value for name, value in new.items() if isinstance(value, np.ndarray)}
    whole = batch.part == None  # noqa: E711 - for each element
    if whole.any():
        each_whole = {name: value[whole] for name, value in each.items()}
        _update(connection, batch.id[whole], same, each_whole)
    parts = np.flatnonzero(~whole).tolist()
    of = {name: _or_none(value) for name, value in each.items()}
    rows = [
        columns_of(*batch.part[at]) | same | {name: value[at] for name, value in of.items()}
        for at in parts
    ]
    add(connection, rows)


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
    if database.keeps_versions:
        rows |= {"these": ids.tolist()}
    statement = _moving(database, tuple(same), tuple(each))
    connection.execute(statement, {f"new_{name}": value for name, value in same.items()} | rows)


@lru_cache(maxsize=64)
def _moving(database: dialect.Dialect, same: tuple[str, ...], each: tuple[str, ...]) -> Update:
    given = database.rows_of(("slice_id", "gain", *each))
    values = {name: bindparam(f"new_{name}", type_=slices.c[name].type) for name in same}
    seal = seals.resealing(slices, (*same, *each), given.c.gain)
    own = {name: given.c[name] for name in each}
    here = [slices.c.id == given.c.slice_id]
    if database.keeps_versions:
        # A planner that takes the table for an empty one would look through all of its ids.
        here.append(dialect.one_of_given(slices.c.id, "these"))
    return update(slices).where(*here).values(values | own | {"seal": seal})


def _or_none(values: Numbers) -> Sequence[int | None]:
    return np.where(values == NULL, None, values).tolist()  # type: ignore[call-overload,no-any-return]
