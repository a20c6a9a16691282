"""Changes to slices, written together.

A verb records what happens to which rows of which slices; `Changes.apply` writes it with a fixed
number of statements, whatever the number of messages, and wakes the threads that wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Delete,
    Table,
    Update,
    bindparam,
    case,
    delete,
    update,
)

from queue_core.catalog import dialect, notifications, seals
from queue_core.catalog.slices import lanes
from queue_core.catalog.slices.segments import release
from queue_core.catalog.slices.slices import INSERT, Room, ShardKey, allocate, execute_each
from queue_core.catalog.tables import counters, slices, turns
from queue_core.values.model import Magazine, QueueInfo, Slice, State
from queue_core.values.rows import EMPTY, Rows
from queue_core.values.settings import QueueSettings

#: Values of messages that were settled: they are no suspects any more.
CLEARED = {"lost": 0, "lost_among": 0}
#: Columns of a slice that loses some of its rows.
_REMAINDER = ("position", "row_start", "row_stop", "bitmap", "count", "bytes", "rank")


class Changes:
    """
    Changes to some slices; nothing is written before `apply`.

    `apply` notifies consumers that wait for messages if some became loaded. If some left main, it
    notifies loads that wait for room, and consumers that wait for the next message of a group, or
    for a limit of messages in flight.
    """

    def __init__(self, queues: Sequence[QueueInfo] | None = None) -> None:
        """*queues*: the slices' queues; by default, any. In most, nobody waits for a departure."""
        self._frees = queues is None or any(_frees(queue.settings) for queue in queues)
        #: The queues whose waiting threads `apply` notifies.
        self._wakes: set[int] = set()
        #: Slices that lose rows, by id, and the rows that they keep.
        self._kept: dict[int, tuple[Slice, Rows]] = {}
        self._new: list[dict[str, Any]] = []
        self._moved: list[tuple[Slice, Rows, Magazine, dict[str, Any]]] = []
        self._updated: dict[tuple[tuple[str, Any], ...], list[int]] = defaultdict(list)
        self._counts: dict[ShardKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._fired: dict[ShardKey, tuple[int, int]] = {}
        #: The lowest rank of the messages that come back, by fair queue.
        self._lowest: dict[int, int] = {}

    def mark(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """Set other values for these rows of a slice, which stay at their places."""
        if len(rows) == len(piece.rows):
            self._updated[tuple(values.items())].append(piece.id)
        elif rows:
            self.cut(piece, rows)
            self.put(piece, rows, **values)

    def release(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """Load these rows again at their places; they leave their ticket."""
        self._found_sound(piece, rows)
        values |= {"state": int(State.LOADED), "consumer_id": None, "ticket": None}
        self.mark(piece, rows, **values)
        if rows:
            self._wakes.add(piece.queue_id)
            rank = piece.rank_of(rows.start)
            if rank is not None:
                self._lowest[piece.queue_id] = min(rank, self._lowest.get(piece.queue_id, rank))

    def refire(self, piece: Slice, rows: Rows) -> None:
        """Put these damaged rows back in the hand of their ticket."""
        self._found_sound(piece, rows)
        self.mark(piece, rows, state=int(State.FIRED))

    def leave_ticket(self, piece: Slice, rows: Rows) -> None:
        """Let these damaged rows leave their ticket, so that it cannot settle them."""
        self.mark(piece, rows, state=int(State.DAMAGED), consumer_id=None, ticket=None)

    def remove(self, piece: Slice, rows: Rows, counter: str) -> None:
        """Remove these rows for good; *counter* counts them."""
        if rows:
            self._leave(piece, rows, counter)

    def move(self, piece: Slice, rows: Rows, to: Magazine, counter: str, **values: Any) -> None:
        """Move these rows, loaded, to the tail of their shard in a magazine; *counter* counts."""
        if rows:
            self._leave(piece, rows, counter)
            self._moved.append((piece, rows, to, values))
            self._wakes.add(piece.queue_id)

    def put(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """Add a slice with these rows at their places: a copy of *piece* with other *values*."""
        if rows:
            position = piece.place_of(rows.start)
            self._new.append(_columns(piece, rows) | {"position": position} | values)

    def cut(self, piece: Slice, rows: Rows) -> None:
        """Take these rows out of a slice; counts nothing."""
        if rows:
            _, kept = self._kept.get(piece.id, (piece, piece.rows))
            self._kept[piece.id] = (piece, EMPTY if len(rows) == len(kept) else kept - rows)

    def fire(self, piece: Slice, rows: Rows) -> None:
        """Count rows as fired, and advance the shard's fire pointer past them."""
        self.fire_at(_key(piece), len(rows), piece.place_of(rows.stop))

    def fire_at(self, key: ShardKey, messages: int, end: int) -> None:
        """Count messages of a shard as fired, and advance its fire pointer to *end*."""
        count, pointer = self._fired.get(key, (0, 0))
        self._fired[key] = (count + messages, max(pointer, end))

    def left(self, queue_id: int, magazine: Magazine, *, moved: bool) -> None:
        """Note that messages have left a magazine, and whether they were *moved* to one."""
        if moved or (magazine is Magazine.MAIN and self._frees):
            self._wakes.add(queue_id)

    def unfire(self, piece: Slice, rows: Rows) -> None:
        """Count rows as never fired; the caller holds the turn of their shard."""
        count, pointer = self._fired.get(_key(piece), (0, 0))
        self._fired[_key(piece)] = (count - len(rows), pointer)

    def count(self, piece: Slice, **deltas: int) -> None:
        """Add to the counters of a slice's shard."""
        self.count_at(_key(piece), **deltas)

    def count_at(self, key: ShardKey, **deltas: int) -> None:
        """Add to the counters of a shard."""
        for name, delta in deltas.items():
            self._counts[key][name] += delta

    def apply(self, connection: Connection, now: int | None = None) -> None:
        """
        Write everything; the locks that others wait for longest come last.

        *now* is the time at which messages move, if the caller has read the clock.
        """
        database = dialect.of(connection)
        # All is computed before the first write, for which others may have to wait.
        marks = [_marking(database, items, ids) for items, ids in self._updated.items()]
        remainders = [_remainder(piece, rows) for piece, rows in self._kept.values() if rows]
        new = [seals.sealed(slices, row) for row in self._new]
        fired = self._fired_rows()
        moves = self._moves(connection, now)
        gone = [piece for piece, rows in self._kept.values() if not rows]
        these = {"these": database.listed([piece.id for piece in gone])}
        counting, counts = self._counted_rows()
        database.take(connection)
        for statement, given in marks:
            connection.execute(statement, given)
        execute_each(connection, _SHRINK, remainders)
        execute_each(connection, INSERT, new)
        execute_each(connection, _FIRE, fired)
        if moves:
            _write_moves(connection, moves)
        if gone:
            connection.execute(_deleting(database), these)
            release(connection, {piece.segment_id for piece in gone})
        execute_each(connection, counting, counts)
        for queue_id, rank in sorted(self._lowest.items()):
            lanes.set_back(connection, queue_id, rank)
        if self._wakes:
            notifications.notify(connection, *self._wakes)

    def _found_sound(self, piece: Slice, rows: Rows) -> None:
        """Undo the counts of the quarantine of these rows, if they are damaged."""
        if piece.damaged and rows:
            self.count(piece, damaged=-len(rows))
            if piece.ticket is not None:
                self.count(piece, reloaded=-len(rows))

    def _leave(self, piece: Slice, rows: Rows, counter: str) -> None:
        self._found_sound(piece, rows)
        self.cut(piece, rows)
        self.count(piece, **{counter: len(rows)})
        if piece.ticket is None:
            # In the counters, a message that has left a shard was fired from it.
            self.fire(piece, rows)
        self.left(piece.queue_id, piece.magazine, moved=False)

    def _fired_rows(self) -> list[dict[str, int]]:
        return [
            _shard(key) | {"by": count, "upto": pointer}
            for key, (count, pointer) in sorted(self._fired.items())
        ]

    def _counted_rows(self) -> tuple[Update, list[dict[str, int]]]:
        # With the same counters for all shards, so that one statement locks them in their order.
        names = tuple(sorted({name for counts in self._counts.values() for name in counts}))
        weights = {name: seals.weight(counters, name) for name in names}
        rows = []
        for key, counts in sorted(self._counts.items()):
            by = {f"by_{name}": counts.get(name, 0) for name in names}
            gain = sum(weights[name] * delta for name, delta in counts.items())
            rows.append(_shard(key) | by | {"gain": gain})
        return _count(names), rows

    def _moves(self, connection: Connection, now: int | None) -> list[_Move]:
        shards: dict[ShardKey, list[tuple[Slice, Rows, dict[str, Any]]]] = defaultdict(list)
        for piece, rows, magazine, values in self._moved:
            shards[piece.queue_id, int(magazine), piece.shard].append((piece, rows, values))
        if not shards:
            return []
        moved_at = dialect.read_clock(connection) if now is None else now
        found = []
        for key, moves in shards.items():
            moves.sort(key=lambda move: (move[0].magazine, _first(*move[:2])))
            offsets, span = _side_by_side([(piece, rows) for piece, rows, _ in moves])
            new = [
                seals.sealed(
                    slices,
                    _columns(piece, rows)
                    | {"magazine": key[1], "position": offset, "state": int(State.LOADED)}
                    | {"consumer_id": None, "ticket": None, "moved_at": moved_at, "due_at": None}
                    | {"rank": None, "pace": None}
                    | values,
                )
                for (piece, rows, values), offset in zip(moves, offsets, strict=True)
            ]
            found.append(_Move(key, Room(span, sum(len(rows) for _, rows, _ in moves)), new))
        return found


class _Move(NamedTuple):
    """Slices that come to a shard, as rows whose positions count from its tail."""

    to: ShardKey
    room: Room
    rows: list[dict[str, Any]]


def _write_moves(connection: Connection, moves: Sequence[_Move]) -> None:
    tails = allocate(connection, {move.to: move.room for move in moves})
    rows = {move.to: move.rows for move in moves}
    new = [
        row
        | {"position": tail + row["position"], "seal": row["seal"] + seals.shift(slices, row, tail)}
        for key, tail in tails.items()
        for row in rows[key]
    ]
    ranked = lanes.rank_returned(connection, new)
    execute_each(
        connection,
        INSERT,
        [
            row if row is before else seals.sealed(slices, row)
            for row, before in zip(ranked, new, strict=True)
        ],
    )


def _frees(settings: QueueSettings) -> bool:
    """Whether a message that leaves main makes room, or lets others be fired."""
    limited = any(limit.in_flight is not None for limit in settings.limits)
    return settings.is_bounded or settings.group is not None or limited


def _key(piece: Slice) -> ShardKey:
    return piece.queue_id, int(piece.magazine), piece.shard


def _at(table: Table) -> list[ColumnElement[bool]]:
    names = {"queue_id": "of_queue", "magazine": "in_magazine", "shard": "at_shard"}
    return [table.c[name] == bindparam(of) for name, of in names.items()]


def _shard(key: ShardKey) -> dict[str, int]:
    return {"of_queue": key[0], "in_magazine": key[1], "at_shard": key[2]}


def _furthest() -> ColumnElement[int]:
    return case(
        (turns.c.fire_pointer < bindparam("upto"), bindparam("upto", type_=BigInteger)),
        else_=turns.c.fire_pointer,
    )


_FIRE = (
    update(turns)
    .where(*_at(turns))
    .values(
        fired=turns.c.fired + bindparam("by"),
        fire_pointer=_furthest(),
        seal=turns.c.seal
        + bindparam("by") * seals.weight(turns, "fired")
        + (_furthest() - turns.c.fire_pointer) * seals.weight(turns, "fire_pointer"),
    )
)
_SHRINK = (
    update(slices)
    .where(slices.c.id == bindparam("slice_id"))
    .values({name: bindparam(name) for name in (*_REMAINDER, "seal")})
)


def _marking(
    database: dialect.Dialect, items: tuple[tuple[str, Any], ...], ids: list[int]
) -> tuple[Update, dict[str, Any]]:
    """Return the statement that gives some slices other values, and its parameters."""
    values = dict(items)
    given = {f"new_{name}": value for name, value in items} | seals.gain(slices, values)
    return _updating(database, tuple(values)), given | {"these": database.listed(ids)}


@lru_cache(maxsize=64)
def _updating(database: dialect.Dialect, names: tuple[str, ...]) -> Update:
    values = {name: bindparam(f"new_{name}", type_=slices.c[name].type) for name in names}
    these = database.one_of_given(slices.c.id, "these")
    return update(slices).where(these).values(values | {"seal": seals.resealing(slices, names)})


@lru_cache(maxsize=2)
def _deleting(database: dialect.Dialect) -> Delete:
    return delete(slices).where(database.one_of_given(slices.c.id, "these"))


@lru_cache(maxsize=64)
def _count(names: tuple[str, ...]) -> Update:
    """Return the statement that adds to some counters of a shard."""
    values = {name: counters.c[name] + bindparam(f"by_{name}") for name in names}
    return (
        update(counters)
        .where(*_at(counters))
        .values(values | {"seal": counters.c.seal + bindparam("gain", type_=BigInteger)})
    )


def _remainder(piece: Slice, rows: Rows) -> dict[str, Any]:
    """Return the new values of a slice that keeps only some rows."""
    state = State.LOADED if piece.ticket is None else State.FIRED
    if piece.damaged:
        state = State.DAMAGED
    row = _columns(piece, rows) | {"position": piece.place_of(rows.start), "state": int(state)}
    changed = {name: row[name] for name in _REMAINDER}
    return changed | {"slice_id": piece.id, "seal": seals.seal(slices, row)}


def _first(piece: Slice, rows: Rows) -> int:
    return piece.place_of(rows.start)


def _side_by_side(moves: Sequence[tuple[Slice, Rows]]) -> tuple[list[int], int]:
    """
    Return the offsets of slices from the tail of their new shard, and how many places they span.

    *moves* are in order of their places. Slices whose rows interleave keep doing so.
    """
    offsets, span = [], 0
    shift, end, magazine = 0, 0, None
    for piece, rows in moves:
        if piece.magazine != magazine or _first(piece, rows) >= end:
            shift, end, magazine = span - _first(piece, rows), 0, piece.magazine
        offsets.append(_first(piece, rows) + shift)
        end = max(end, piece.place_of(rows.stop))
        span = end + shift
    return offsets, span


def _columns(piece: Slice, rows: Rows) -> dict[str, Any]:
    return {
        "queue_id": piece.queue_id,
        "magazine": int(piece.magazine),
        "shard": piece.shard,
        "segment_id": piece.segment_id,
        "row_start": rows.start,
        "row_stop": rows.stop,
        "bitmap": rows.to_bytes(),
        "count": len(rows),
        "bytes": piece.bytes_of(rows),
        "attempts": piece.attempts,
        "deliveries": piece.deliveries,
        "loaded_at": piece.loaded_at,
        "moved_at": piece.moved_at,
        "consumer_id": piece.consumer_id,
        "ticket": piece.ticket,
        "fired_at": piece.fired_at,
        "stats": piece.stats,
        "due_at": piece.due_at,
        "rank": piece.rank_of(rows.start),
        "pace": piece.pace,
        "lost": piece.lost,
        "lost_among": piece.lost_among,
    }
