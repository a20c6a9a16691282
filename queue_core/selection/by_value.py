"""Limits by value: how many messages of each value of a column a firing may take.

Values that may have no message now are a condition of the search, so that statistics skip slices
that hold only such values. The others have a room, the number of messages that they may have.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.records import token_buckets
from queue_core.catalog.slices.conditions import IN_FLIGHT, eligible_of_segments, in_queue
from queue_core.catalog.slices.slices import fetch
from queue_core.policies.numbering import ranks
from queue_core.selection.request import FireRequest
from queue_core.selection.scan import BYTES, ID, Mask, SliceScan, row_sizes
from queue_core.selector import NoneOf
from queue_core.values import buckets
from queue_core.values.ids import IdSet
from queue_core.values.limits import MANY, Limit
from queue_core.values.model import Magazine
from queue_core.values.plan import Taken, having
from queue_core.values.rows import Numbers

#: A longer key is stored as its hash.
_LONGEST = 300
#: The most searches of one firing.
ROUNDS = 6


class ColumnRooms:
    """The rooms of the values of a column, by one limit of a queue, at one moment."""

    def __init__(
        self, connection: Connection, queue_id: int, limit: Limit, in_flight: dict[Any, int]
    ) -> None:
        assert limit.column is not None, "the limit is one of values"
        self.column = limit.column
        self._queue_id = queue_id
        self._limit = limit
        self.has_rate = limit.per_second is not None
        self._in_flight = in_flight if limit.in_flight is not None else {}
        self._spent = (
            token_buckets.of_values(connection, queue_id, self.column) if self.has_rate else {}
        )
        self._now = dialect.read_clock(connection)
        #: The values that may have no message now, and after how many seconds they may; infinite:
        #: after a settlement.
        self.closed: dict[Any, float] = {}
        #: The same seconds for values of which only a hash is known: their room is 0.
        self.hashed: list[float] = []
        for key, spent_until in self._spent.items():
            if not buckets.tokens(limit, spent_until, self._now):
                wait = buckets.wait(limit, spent_until, self._now) / 1e6
                if key.startswith("#"):
                    self.hashed.append(wait)
                else:
                    self.closed[json.loads(key)] = wait
        for value, count in self._in_flight.items():
            if limit.in_flight is not None and count >= limit.in_flight:
                self.closed[value] = inf

    def room(self, value: Any) -> int:
        """Return how many messages a value may have."""
        room = MANY
        if self.has_rate:
            room = buckets.tokens(self._limit, self._spent.get(key_of(value)), self._now)
        if self._limit.in_flight is not None:
            room = min(room, max(self._limit.in_flight - self._in_flight.get(value, 0), 0))
        return room

    def spend(self, connection: Connection, column: pa.ChunkedArray, at: int) -> None:
        """Take the tokens of messages with these values that are fired at a moment."""
        if not self.has_rate or not len(column):
            return
        until = {}
        for value, count in _counted(column):
            key = key_of(value)
            until[key] = buckets.spend(self._limit, self._spent.get(key), at, count)
        full_before = at - int(buckets.window(self._limit))
        token_buckets.spend_of_values(connection, self._queue_id, self.column, until, full_before)


class ValueRooms:
    """The rooms by all limits of values of one queue."""

    def __init__(self, scan: SliceScan, queue_id: int, limits: Sequence[Limit]) -> None:
        self._scan = scan
        counted = {each.column for each in limits if each.in_flight is not None and each.column}
        in_flight = in_flight_by_value(scan, queue_id, counted) if counted else {}
        self.by_column = [
            ColumnRooms(scan.connection, queue_id, each, in_flight.get(each.column, {}))
            for each in limits
        ]

    @property
    def columns(self) -> frozenset[str]:
        """The columns of the limits."""
        return frozenset(each.column for each in self.by_column)

    @property
    def conditions(self) -> tuple[NoneOf, ...]:
        """The conditions that messages have no closed value."""
        return tuple(
            NoneOf(each.column, frozenset(each.closed)) for each in self.by_column if each.closed
        )

    @property
    def waits(self) -> list[float]:
        """The seconds after which closed values may have messages."""
        return [s for each in self.by_column for s in (*each.closed.values(), *each.hashed)]

    def admitted(self, rows: pa.Table) -> tuple[Mask, Mask]:
        """Return which rows fit, the first ones of each value, and which have a crowded value."""
        fit = np.ones(rows.num_rows, dtype=np.bool_)
        crowded = np.zeros(rows.num_rows, dtype=np.bool_)
        for each in self.by_column:
            column = rows.column(each.column).combine_chunks()
            encoded = column.dictionary_encode(null_encoding="encode")
            codes = encoded.indices.to_numpy()
            values = encoded.dictionary.to_pylist()
            rooms = np.array([each.room(value) for value in values], dtype=np.int64)
            # Only rows that fit so far take room.
            before = np.full(rows.num_rows, MANY)
            before[fit] = ranks(codes[fit])
            within = before < rooms[codes] if len(codes) else fit
            rejected = np.unique(codes[fit & ~within])
            crowded |= np.isin(codes, rejected)
            fit &= within
        return fit, crowded

    def spend(self, taken: Sequence[Taken], at: int) -> None:
        """Take the tokens of messages that are fired at a moment."""
        if taken and any(each.has_rate for each in self.by_column):
            rows = self._scan.table(taken, self.columns)
            for each in self.by_column:
                each.spend(self._scan.connection, rows.column(each.column), at)

    def close(self, rows: pa.Table) -> None:
        """Close the crowded values of rows for the rest of the search."""
        for each in self.by_column:
            for value, count in _counted(rows.column(each.column)):
                if count > each.room(value):
                    each.closed.setdefault(value, 0.0)

    def read(self, request: FireRequest, ids: Numbers) -> pa.Table:
        """Return the columns and `BYTES` of rows of segments, given and returned as ids."""
        located, connection = IdSet.of(ids), self._scan.connection
        where, given = eligible_of_segments(request, located.segments)
        taken = having(fetch(connection, *where, given=given), located)
        if not taken:
            fields = [self._scan.schema.field(name) for name in sorted(self.columns)]
            return pa.schema([(ID, pa.int64()), *fields, (BYTES, pa.float64())]).empty_table()
        table = self._scan.table(taken, self.columns)
        rows = table.select([ID, *sorted(self.columns)])
        rows = rows.append_column(BYTES, row_sizes(table, taken))
        # In the order of the ids.
        order = np.argsort(rows.column(ID).to_numpy())
        places = np.searchsorted(rows.column(ID).to_numpy()[order], ids)
        return rows.take(pa.array(order[places]))


def find_with_room(
    rooms: ValueRooms,
    search: Callable[[int | None, tuple[NoneOf, ...]], Numbers],
    request: FireRequest,
    limit: int | None,
) -> pa.Table:
    """
    Return the messages whose values have room, in order: their rows as `ID`, and the columns.

    *search* finds the first messages that meet conditions, a number or a few more. Where they have
    more of a value than its room, it is called again without that value, if there is a *limit*.
    """
    found: list[pa.Table] = []
    seen: list[Numbers] = []
    rounds, left = 1 if limit is None else ROUNDS, limit
    fit = np.zeros(0, np.bool_)
    for number in range(1, rounds + 1):
        # If nothing has fit so far, the messages of other values can be anywhere behind.
        looks_at_all = number == rounds and not (fit.any() or any(map(len, found)))
        ids = search(None if looks_at_all else left, rooms.conditions)
        seen.append(ids)
        rows = rooms.read(request, ids)
        fit, crowded = rooms.admitted(rows)
        # Otherwise, the next round finds the messages of values that are not crowded again.
        is_enough = left is not None and np.count_nonzero(fit) >= left
        is_last = number == rounds or is_enough or not crowded.any()
        kept = rows.filter(pa.array(fit if is_last else fit & crowded))
        kept = kept.slice(0, left if looks_at_all else None)
        found.append(kept)
        if is_last:
            break
        left = None if left is None else left - kept.num_rows
        rooms.close(rows.filter(pa.array(crowded)))
    return _as_seen(pa.concat_tables(found), np.concatenate(seen))


def _as_seen(rows: pa.Table, seen: Numbers) -> pa.Table:
    """Sort rows by their first place among ids: a later search finds what comes after them."""
    ids, first = np.unique(seen, return_index=True)
    places = first[np.searchsorted(ids, rows.column(ID).to_numpy())]
    return rows.take(pa.array(np.argsort(places)))


def key_of(value: Any) -> str:
    """Return the key of a value in the catalog."""
    key = json.dumps(value, ensure_ascii=False)
    if len(key) <= _LONGEST and not key.startswith("#"):
        return key
    return "#" + hashlib.sha256(key.encode()).hexdigest()


def in_flight_by_value(
    scan: SliceScan, queue_id: int, columns: set[str]
) -> dict[str | None, dict[Any, int]]:
    """Return how many messages of each value of some columns are in flight."""
    fired = fetch(scan.connection, *in_queue(queue_id, Magazine.MAIN), *IN_FLIGHT)
    if not fired:
        return {}
    rows = scan.table([(piece, piece.rows) for piece in fired], columns)
    return {name: dict(_counted(rows.column(name))) for name in columns}


def _counted(column: pa.ChunkedArray) -> Iterator[tuple[Any, int]]:
    """Yield each value of a column, and how many rows have it."""
    return ((each["values"], each["counts"]) for each in pc.value_counts(column).to_pylist())
