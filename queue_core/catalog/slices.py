"""Slices in the catalog: read, and changed together in one go.

A verb decides what becomes of which rows and tells a `Changes`; `Changes.apply` writes it with a
fixed number of statements, whatever the number of messages. All verbs lock in the same order, so
that they cannot deadlock: leases, room, files, consumers, tickets, turns, slices, queues,
interests, load pointers, counters.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Table,
    bindparam,
    delete,
    insert,
    select,
    update,
)

from queue_core.catalog import dialect, notifications
from queue_core.catalog.queues import check_in_use
from queue_core.catalog.segments import release
from queue_core.catalog.tables import counters, queues, shards, slices, turns
from queue_core.errors import Conflict
from queue_core.model import Magazine, QueueInfo, Slice, State
from queue_core.rows import Rows

#: (queue, magazine, shard)
ShardKey = tuple[int, int, int]

# Built once: to build a statement takes several times as long as SQLite needs to run it.
_INSERT = insert(slices)
_ALLOCATE = (
    update(shards)
    .where(
        shards.c.queue_id == bindparam("queue"),
        shards.c.magazine == bindparam("in"),
        shards.c.shard == bindparam("at"),
    )
    .values(
        load_pointer=shards.c.load_pointer + bindparam("span"),
        loaded=shards.c.loaded + bindparam("count"),
    )
    .returning(shards.c.load_pointer)
)
# Locks the queue's row for reading, so that no queue is given up between this and the commit.
_ALLOCATE_IN_USE = _ALLOCATE.where(
    select(queues.c.id)
    .where(queues.c.id == bindparam("queue"), queues.c.deactivated_at.is_(None))
    .with_for_update(read=True)
    .exists()
)


def fetch(
    connection: Connection,
    *where: ColumnElement[bool],
    limit: int | None = None,
    lock: str | None = None,
) -> list[Slice]:
    """
    Slices in order of queue, magazine, shard and position.

    *lock* ``"skip"`` passes over those that other transactions hold, ``"wait"`` waits for them.
    Slices are as they are once they are locked, which may differ from when they were looked for.
    """
    query = select(slices).where(*where).limit(limit)
    if lock == "wait":
        # By their ids, since places change, and two that wait in different orders deadlock.
        query = dialect.locked(connection, query.order_by(slices.c.id))
    else:
        in_order = (slices.c.queue_id, slices.c.magazine, slices.c.shard, slices.c.position)
        query = query.order_by(*in_order)
        if lock == "skip":
            query = dialect.skip_locked(connection, query)
    found = [_slice(row) for row in connection.execute(query)]
    if lock is not None:
        found.sort(key=lambda s: (s.queue_id, s.magazine, s.shard, s.position))
    return found


def allocate(
    connection: Connection, place: ShardKey, span: int, count: int, *, new: bool = False
) -> int:
    """
    Take *span* places at the tail of a shard for *count* messages; return the first.

    Raises `Conflict` where the queue has no such shard, as one that was dropped and made anew, and
    for *new* messages `QueueDeactivated`.
    """
    taken = {"queue": place[0], "in": place[1], "at": place[2], "span": span, "count": count}
    end = connection.execute(_ALLOCATE_IN_USE if new else _ALLOCATE, taken).scalar()
    if end is None:
        check_in_use(connection, [place[0]])
        raise Conflict(f"the queue has no shard {place[2]} any more; open it again")
    return int(end) - span


def add(connection: Connection, new: Sequence[dict[str, Any]]) -> None:
    """Insert slices given as rows of the table."""
    if new:
        connection.execute(_INSERT, new if len(new) > 1 else new[0])


#: Counters of messages that have left their magazine.
LEFT = ("deleted", "sidelined", "shovelled", "swept", "expired", "replaced", "dropped")


class Changes:
    """
    Changes to some slices, written together by `apply`.

    Wakes those who wait for messages when some became loaded, and those who wait for room when
    some left main.
    """

    def __init__(self, queues: Sequence[QueueInfo] | None = None) -> None:
        """*queues*: those of the slices; where none is bounded, nobody waits for room."""
        self._may_be_bounded = queues is None or any(q.settings.is_bounded for q in queues)
        self._loaded = False
        self._gone: list[Slice] = []
        self._shrunk: list[tuple[Slice, Rows]] = []
        self._put: list[dict[str, Any]] = []
        self._moved: list[tuple[Slice, Rows, Magazine, dict[str, Any]]] = []
        self._updated: dict[tuple[tuple[str, Any], ...], list[int]] = defaultdict(list)
        self._counts: dict[ShardKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._fired: dict[ShardKey, tuple[int, int]] = {}

    def keep(self, piece: Slice, rows: Rows) -> None:
        """Only these of the slice's rows stay as they are."""
        if not rows:
            self._gone.append(piece)
        elif rows is not piece.rows:
            self._shrunk.append((piece, rows))

    def mark(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """These rows get other values and stay at their place; the others are left alone."""
        if rows is piece.rows or len(rows) == len(piece.rows):
            self._updated[tuple(values.items())].append(piece.id)
        else:
            self.keep(piece, piece.rows - rows)
            self.put(piece, rows, **values)

    def put(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """These rows are a slice of their own, at their place, with other values."""
        if rows:
            place = piece.place_of(rows.start)
            self._put.append(_columns(piece, rows) | {"position": place} | values)

    def release(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """These rows leave their ticket and wait again at their place, with other values."""
        values |= {"state": int(State.LOADED), "consumer_id": None, "ticket": None}
        if len(rows) == len(piece.rows):
            self.mark(piece, rows, **values)
        else:
            self.put(piece, rows, **values)
        self._loaded = self._loaded or bool(rows)

    def move(self, piece: Slice, rows: Rows, to: Magazine, **values: Any) -> None:
        """These rows go to the tail of the same shard of a magazine, loaded."""
        if rows:
            self._moved.append((piece, rows, to, values))
            self._loaded = True

    def count(self, piece: Slice, **deltas: int) -> None:
        """Add to the counters of the shard in which a slice is."""
        self.count_at((piece.queue_id, piece.magazine, piece.shard), **deltas)

    def count_at(self, place: ShardKey, **deltas: int) -> None:
        """Add to the counters of a shard."""
        for name, delta in deltas.items():
            self._counts[place][name] += delta

    def remove(self, piece: Slice, rows: Rows, counter: str) -> None:
        """These waiting rows are gone; by the counters, what leaves a shard has been fired."""
        self.keep(piece, piece.rows - rows)
        self.count(piece, **{counter: len(rows)})
        self.fire(piece, rows)

    def fire(self, piece: Slice, rows: Rows) -> None:
        """Count rows as fired; the shard's fire pointer goes behind them."""
        place = (piece.queue_id, int(piece.magazine), piece.shard)
        count, pointer = self._fired.get(place, (0, 0))
        self._fired[place] = (count + len(rows), max(pointer, piece.place_of(rows.stop)))

    def apply(self, connection: Connection) -> None:
        """Write everything; the locks that others wait for longest come last."""
        self._write_marks(connection)
        self._write_remainders(connection)
        add(connection, self._put)
        self._write_fired(connection)
        self._write_moves(connection)
        self._write_counts(connection)
        if self._loaded or (self._may_be_bounded and self._left_main()):
            notifications.notify(connection)

    def _left_main(self) -> bool:
        return any(
            deltas.get(name)
            for (_, magazine, _), deltas in self._counts.items()
            if magazine == Magazine.MAIN
            for name in LEFT
        )

    def _write_marks(self, connection: Connection) -> None:
        for values, ids in self._updated.items():
            connection.execute(
                update(slices)
                .where(dialect.one_of(connection, slices.c.id, ids))
                .values(dict(values))
            )

    def _write_remainders(self, connection: Connection) -> None:
        if self._shrunk:
            connection.execute(
                update(slices)
                .where(slices.c.id == bindparam("slice_id"))
                .values({name: bindparam(name) for name in _REMAINDER}),
                [
                    {"slice_id": piece.id, "position": piece.place_of(rows.start)}
                    | {name: _columns(piece, rows)[name] for name in _REMAINDER[1:]}
                    for piece, rows in self._shrunk
                ],
            )

    def _write_moves(self, connection: Connection) -> None:
        tails: dict[ShardKey, list[tuple[Slice, Rows, dict[str, Any]]]] = defaultdict(list)
        for piece, rows, magazine, values in self._moved:
            place = (piece.queue_id, int(magazine), piece.shard)
            tails[place].append((piece, rows, values))
        new = []
        now = dialect.read_clock(connection) if tails else None
        for place in sorted(tails):
            moves = sorted(tails[place], key=lambda move: (move[0].magazine, _first(*move[:2])))
            offsets, span = _side_by_side([(piece, rows) for piece, rows, _ in moves])
            tail = allocate(connection, place, span, sum(len(rows) for _, rows, _ in moves))
            for (piece, rows, values), offset in zip(moves, offsets, strict=True):
                new.append(
                    _columns(piece, rows)
                    | {"magazine": place[1], "position": tail + offset, "state": State.LOADED}
                    | {"consumer_id": None, "ticket": None, "moved_at": now}
                    | values
                )
        add(connection, new)
        if self._gone:
            gone = dialect.one_of(connection, slices.c.id, [piece.id for piece in self._gone])
            connection.execute(delete(slices).where(gone))
            release(connection, {piece.segment_id for piece in self._gone})

    def _write_fired(self, connection: Connection) -> None:
        for place in sorted(self._fired):
            count, pointer = self._fired[place]
            connection.execute(
                update(turns)
                .where(*_at(turns, place))
                .values(
                    fired=turns.c.fired + count,
                    fire_pointer=dialect.greatest(connection, turns.c.fire_pointer, pointer),
                )
            )

    def _write_counts(self, connection: Connection) -> None:
        for place in sorted(self._counts):
            values = {name: counters.c[name] + by for name, by in self._counts[place].items()}
            connection.execute(update(counters).where(*_at(counters, place)).values(values))


def _at(table: Table, place: ShardKey) -> list[ColumnElement[bool]]:
    return [table.c.queue_id == place[0], table.c.magazine == place[1], table.c.shard == place[2]]


def _first(piece: Slice, rows: Rows) -> int:
    return piece.place_of(rows.start)


def _side_by_side(moves: Sequence[tuple[Slice, Rows]]) -> tuple[list[int], int]:
    """
    Where slices stand in their new shard, from its tail on, and how many places they take.

    *moves* come in order of their places. Those whose rows interleave still do so afterwards.
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


_REMAINDER = ("position", "row_start", "row_stop", "bitmap", "count", "bytes")


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
    }


def _slice(row: Row[Any]) -> Slice:
    return Slice(
        id=row.id,
        queue_id=row.queue_id,
        magazine=Magazine(row.magazine),
        shard=row.shard,
        position=row.position,
        segment_id=row.segment_id,
        rows=Rows.from_bytes(row.row_start, row.row_stop, row.bitmap),
        bytes=row.bytes,
        attempts=row.attempts,
        deliveries=row.deliveries,
        loaded_at=row.loaded_at,
        moved_at=row.moved_at,
        fired_at=row.fired_at,
        consumer_id=row.consumer_id,
        ticket=row.ticket,
        stats=row.stats,
    )
