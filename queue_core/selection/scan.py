"""Scan slices with data skipping: use their statistics first, then read the few columns needed.

A scan reads one state of the catalog, at one moment of its clock. It does not read columns that the
catalog knows, or for which the statistics leave just one value. Segments never change, so neither
does the result of most conditions: a process keeps it, for the next firings of a consumer that
fires few of many messages.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap
from sqlalchemy import Connection

from queue_core.catalog.damage import UNREADABLE
from queue_core.catalog.slices import read_plans
from queue_core.catalog.slices.slices import damaged_slice
from queue_core.segments.lru_cache import LruCache
from queue_core.segments.reader import read_columns
from queue_core.values.column_stats import ColumnStats, stats_from_json
from queue_core.values.ids import IdSet, first_id
from queue_core.values.model import QueueInfo, SegmentRef, Slice
from queue_core.values.plan import Taken
from queue_core.values.rows import Numbers, Rows
from queue_core.values.schema import AGE, NOW, output_schema

if TYPE_CHECKING:
    from queue_core.selector import Condition

#: Columns that a scan adds: the message's segment and row, as an id; its place; and the index of
#: its slice among the scanned ones. No column of a queue can have such a name.
ID, PLACE, SLICE = "\nid", "\nplace", "\nslice"
#: A column of found rows: their bytes, as `row_sizes` estimates them.
BYTES = "\nbytes"

#: Columns whose values may differ each time a message waits.
_PASSING = {NOW, AGE, "_attempt", "_fired_at"}

Mask: TypeAlias = npt.NDArray[np.bool_]


class Match(NamedTuple):
    """The evaluated rows of one segment, and the matching ones among them."""

    seen: BitMap
    met: BitMap


#: Matches by segment and condition, of 2^27 rows at most, at two bits a row.
_matches: LruCache[Hashable, Match] = LruCache(1 << 27, lambda match: len(match.seen))

_MOMENT = pa.timestamp("us")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class SliceScan:
    """A scan of slices of some queues of one schema."""

    def __init__(
        self, connection: Connection, queues: Sequence[QueueInfo], storage: str, now: int
    ) -> None:
        self.connection = connection
        self.now = now
        # The most columns first: one may have been added to a single queue.
        self._queues = sorted(queues, key=lambda queue: -len(queue.schema))
        self._storage = storage
        self.schema = self._queues[0].schema
        self._types = {field.name: field.type for field in output_schema(self.schema)}
        self._types |= {NOW: _MOMENT, AGE: pa.float64()}
        url = str(connection.engine.url)
        #: What tells each queue from a later one with the same id, even in a new store.
        self.created = {queue.id: (url, queue.id, queue.created_at) for queue in queues}
        self._sources: dict[int, SegmentRef] = {}

    def stats(self, piece: Slice, columns: Iterable[str]) -> Mapping[str, ColumnStats]:
        """Return the statistics of a slice's columns, from the segment and the catalog."""
        try:
            known = _parsed(piece.stats, self.schema) if piece.stats else {}
        except UNREADABLE as error:
            raise damaged_slice(piece.id, error) from error
        found = {name: known.get(name) or self._catalog_stats(piece, name) for name in columns}
        return {name: one for name, one in found.items() if one is not None}

    def table(self, taken: Sequence[Taken], columns: Collection[str]) -> pa.Table:
        """Return columns of rows of slices, with `ID`, `PLACE` and `SLICE`; slices in any order."""
        stats = [self.stats(piece, columns) for piece, _ in taken]
        uniform = [is_uniform(one, columns) for one in stats]
        tables = [
            self._repeated(taken[at], at, stats[at], columns)
            for at, is_so in enumerate(uniform)
            if is_so
        ]
        others = [at for at, is_so in enumerate(uniform) if not is_so]
        if others:
            tables.append(self._read(taken, others, columns))
        return tables[0] if len(tables) == 1 else pa.concat_tables(tables)

    def matching(self, taken: Sequence[Taken], conditions: tuple[Condition, ...]) -> list[Taken]:
        """Return the rows that meet lasting conditions; see `is_lasting`."""
        keys = {piece.segment_id: self._key(piece, conditions) for piece, _ in taken}
        found = {
            segment: _matches.get(key) or Match(BitMap(), BitMap()) for segment, key in keys.items()
        }
        new = [(p, rows - Rows.of_bitmap(found[p.segment_id].seen)) for p, rows in taken]
        new = [(piece, rows) for piece, rows in new if rows]
        if new:
            rows = self.table(new, columns_of(conditions))
            met = IdSet.of(rows.filter(mask(rows, conditions)).column(ID))
            for segment, of_segment in groupby(sorted(new, key=_segment), key=_segment):
                seen = BitMap.union(*(rows.as_bitmap() for _, rows in of_segment))
                new_ones = Match(seen, met.rows(segment).as_bitmap())
                found[segment] = _matches.update(keys[segment], partial(_extended, new_ones))
        matching = [(p, rows & Rows.of_bitmap(found[p.segment_id].met)) for p, rows in taken]
        return [(piece, rows) for piece, rows in matching if rows]

    def _key(self, piece: Slice, conditions: tuple[Condition, ...]) -> Hashable:
        # The time of loading tells a segment from another one with its number, even in a copy that
        # was put back.
        return self.created[piece.queue_id], piece.segment_id, piece.loaded_at, conditions

    def _read(self, taken: Sequence[Taken], which: list[int], columns: Collection[str]) -> pa.Table:
        stored = {name for name in columns if name not in (AGE, NOW)}
        stored |= {"_loaded_at"} if AGE in columns else set()
        plan = read_plans.build(
            self.connection,
            self._queues,
            [taken[at] for at in which],
            self._storage,
            self._sources,
        )
        found = with_moment(read_columns(plan, sorted(stored)), columns, self.now)
        # The order of a read plan.
        queues = {queue.id: at for at, queue in enumerate(self._queues)}
        shards = {at: (queues[taken[at][0].queue_id], taken[at][0].shard) for at in which}
        firsts = {at: taken[at][0].place_of(taken[at][1].start) for at in which}
        ordered = sorted(which, key=lambda at: (*shards[at], firsts[at]))
        parts = [
            _numbered(taken, list(part)) for _, part in groupby(ordered, key=shards.__getitem__)
        ]
        ids, places, slices = (np.concatenate(part) for part in zip(*parts, strict=True))
        return _marked({name: found.column(name) for name in columns}, ids, places, slices)

    def _repeated(
        self, taken: Taken, at: int, stats: Mapping[str, ColumnStats], columns: Collection[str]
    ) -> pa.Table:
        """Return rows of a slice whose columns have one known value each."""
        ids, places, slices = _numbered([taken], [0])
        values = {name: pa.scalar(stats[name].min, self._types[name]) for name in columns}
        repeated = {name: pa.repeat(value, len(ids)) for name, value in values.items()}
        return _marked(repeated, ids, places, slices + at)

    def _catalog_stats(self, piece: Slice, name: str) -> ColumnStats | None:
        """Return the statistics of a column that the catalog knows."""
        # A compacted slice has messages of several loads, all earlier than its last move.
        loaded, moved = piece.loaded_at, max(piece.moved_at, piece.loaded_at)
        match name:
            case "_attempt":
                return _only(piece.attempts, piece)
            case "_shard":
                return _only(piece.shard, piece)
            case "_loaded_at":
                return _between(moment(loaded), moment(moved), piece)
            case _ if name == AGE:
                return _between((self.now - moved) / 1e6, (self.now - loaded) / 1e6, piece)
            case _ if name == NOW:
                return _only(moment(self.now).replace(tzinfo=None), piece)
        return None


def is_uniform(stats: Mapping[str, ColumnStats], columns: Collection[str]) -> bool:
    """Return whether statistics leave just one value for each of some columns."""
    return all(_is_one_value(stats.get(name)) for name in columns)


def mask(rows: pa.Table, conditions: Sequence[Condition]) -> Mask:
    """Return a mask of the rows that meet all conditions."""
    met = np.ones(rows.num_rows, dtype=np.bool_)
    for condition in conditions:
        met &= condition.mask(rows).to_numpy(zero_copy_only=False)
    return met


def columns_of(conditions: Sequence[Condition]) -> frozenset[str]:
    """Return the columns that conditions read."""
    return frozenset[str]().union(*(condition.columns for condition in conditions))


def is_lasting(condition: Condition) -> bool:
    """Return whether a condition's result for a message never changes."""
    return condition.repeatable and not condition.columns & _PASSING


def row_sizes(rows: pa.Table, taken: Sequence[Taken]) -> pa.Array:
    """Return the estimated bytes of each row of some slices."""
    sizes = np.array([piece.bytes / max(len(piece.rows), 1) for piece, _ in taken])
    return pa.array(sizes[rows.column(SLICE).to_numpy()])


def in_order(rows: pa.Table) -> pa.Table:
    """Sort rows of one shard by their places."""
    places = rows.column(PLACE).to_numpy()
    if (places[1:] > places[:-1]).all():
        return rows
    return rows.take(pa.array(np.argsort(places, kind="stable")))


def with_moment(rows: pa.Table, columns: Collection[str], now: int) -> pa.Table:
    """Add the moment of the scan and the messages' age then, if they are among *columns*."""
    if NOW in columns:
        rows = rows.append_column(NOW, pa.repeat(pa.scalar(now, _MOMENT), rows.num_rows))
    if AGE in columns:
        loaded = rows.column("_loaded_at").cast(pa.int64()).to_numpy()
        rows = rows.append_column(AGE, pa.array((now - loaded) / 1e6))
    return rows


def moment(microseconds: int) -> datetime:
    """Convert a time of the catalog to UTC."""
    return _EPOCH + timedelta(microseconds=microseconds)


def _extended(new: Match, old: Match | None) -> Match:
    return new if old is None else Match(old.seen | new.seen, old.met | new.met)


def _numbered(taken: Sequence[Taken], which: Sequence[int]) -> tuple[Numbers, Numbers, Numbers]:
    """Return the ids, places and slice indices of the rows of slices of one shard, by place."""
    rows = [taken[at][1].numbers().astype(np.int64) for at in which]
    pieces = [taken[at][0] for at in which]
    ids = np.concatenate([n + first_id(p.segment_id) for p, n in zip(pieces, rows, strict=True)])
    places = np.concatenate([n + p.place_of(0) for p, n in zip(pieces, rows, strict=True)])
    slices = np.repeat(np.array(which, dtype=np.int64), [len(n) for n in rows])
    if (places[1:] > places[:-1]).all():
        return ids, places, slices
    # Rows of slices interleave.
    order = np.argsort(places, kind="stable")
    return ids[order], places[order], slices[order]


def _marked(columns: Mapping[str, Any], ids: Numbers, places: Numbers, slices: Numbers) -> pa.Table:
    return pa.table({**columns, ID: ids, PLACE: places, SLICE: slices})


def _segment(taken: Taken) -> int:
    return taken[0].segment_id


# The parts of a slice share its statistics, and each firing reads them.
@lru_cache(maxsize=1 << 14)
def _parsed(text: str, schema: pa.Schema) -> Mapping[str, ColumnStats]:
    return stats_from_json(text, schema)


def _is_one_value(stats: ColumnStats | None) -> bool:
    if stats is None:
        return False
    if stats.null_count == stats.row_count:
        return True
    return stats.null_count == 0 and stats.min is not None and bool(stats.min == stats.max)


def _only(value: Any, piece: Slice) -> ColumnStats:
    return _between(value, value, piece)


def _between(low: Any, high: Any, piece: Slice) -> ColumnStats:
    return ColumnStats(low, high, null_count=0, row_count=len(piece.rows))
