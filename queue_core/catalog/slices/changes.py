"""Changes to slices, written together.

A verb records what happens to which rows of which slices; `Changes.apply` writes it with a fixed
number of statements, whatever the number of messages, and wakes the threads that wait for it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from sqlalchemy import Connection, Update, bindparam, delete, update

from queue_core.catalog import dialect, notifications, seals
from queue_core.catalog.records import shared_limits
from queue_core.catalog.slices import flows, id_map, moving, shard_rows
from queue_core.catalog.slices.moving import MovingRows, MovingSlices
from queue_core.catalog.slices.segments import release
from queue_core.catalog.slices.shard_rows import of_shard
from queue_core.catalog.slices.slice_batches import NULL, SliceBatch
from queue_core.catalog.slices.slices import ShardKey, add, columns_of, execute_each
from queue_core.catalog.slices.tails import Room, allocate
from queue_core.catalog.tables import slices
from queue_core.values.model import Magazine, QueueInfo, Slice, State
from queue_core.values.rows import EMPTY, Numbers, Rows
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
        #: The names of limits of messages in flight, of which others may wait for room.
        self._shared = {
            each.name
            for queue in queues or ()
            for each in queue.settings.limits
            if each.name is not None and each.in_flight is not None
        }
        #: The queues whose waiting threads `apply` notifies.
        self._wakes: set[int] = set()
        #: Slices that lose rows, by id, and the rows that they keep.
        self._kept: dict[int, tuple[Slice, Rows]] = {}
        self._new: list[dict[str, Any]] = []
        #: Slices that are removed whole: their ids, and their segments.
        self._gone: list[tuple[Numbers, Numbers]] = []
        self._moved: dict[Magazine, list[MovingRows]] = defaultdict(list)
        self._moves: list[MovingSlices] = []
        self._updated: dict[tuple[tuple[str, Any], ...], list[int]] = defaultdict(list)
        self._counts: dict[ShardKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._fired: dict[ShardKey, tuple[int, int]] = {}
        #: Shards whose heads are to be found: from which place on, and how many were released.
        self._heads: dict[ShardKey, tuple[int, int]] = {}
        #: Rows of a log that become slices, by shard.
        self._entered: dict[ShardKey, list[dict[str, Any]]] = defaultdict(list)
        #: Their segments whose maps of ids are yet to be copied, by the queue that takes them.
        self._unmapped: dict[int, set[int]] = defaultdict(set)
        #: How many messages of a log are taken in or passed by, by shard.
        self._passed: dict[ShardKey, int] = defaultdict(int)
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
            self.count(piece, released=len(rows))
            self._wakes.add(piece.queue_id)
            rank = piece.rank_of(rows.start)
            if rank is not None:
                self._lowest[piece.queue_id] = min(rank, self._lowest.get(piece.queue_id, rank))

    def reload(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """Load these rows again as `release` does, and count them as reloaded."""
        if rows:
            self.release(piece, rows, **values)
            self.count(piece, reloaded=len(rows))

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
            self.cut(piece, rows)

    def remove_all(self, batch: SliceBatch, counter: str) -> None:
        """Remove whole slices for good; *counter* counts them."""
        self._leave_all(batch, counter)
        self._gone.append((batch.id, batch.segment_id))

    def move(
        self,
        piece: Slice,
        rows: Rows,
        to: Magazine,
        counter: str,
        new: Slice | None = None,
        /,
        **values: int | None,
    ) -> None:
        """
        Move these rows, loaded, to the tail of their shard in a magazine; *counter* counts.

        With *new*, as that slice, which is not in the catalog. *values* are those of other columns.
        """
        if not rows:
            return
        self._leave(piece, rows, counter)
        if to is Magazine.MAIN and piece.magazine is Magazine.SIDELINE:
            self.count(piece, returned=len(rows))
        if new is not None or len(rows) < len(piece.rows):
            self.cut(piece, rows)
        moved = (piece, rows) if new is None else (new, new.rows)
        self._moved[to].append(MovingRows(*moved, new is not None, values))
        self._wakes.add(piece.queue_id)

    def move_all(
        self, batch: SliceBatch, to: Magazine, counter: str, **values: Numbers | int | None
    ) -> None:
        """
        Move slices, or rows of them, as `move` does.

        *values* of other columns: one for all slices, or one for each, with `NULL` for none.
        """
        self._leave_all(batch, counter)
        for key, range in batch.by_shard() if to is Magazine.MAIN else ():
            if key[1] == Magazine.SIDELINE:
                self.count_at(key, returned=batch[range].messages)
        for pair in filter(None, batch.part):
            self.cut(*pair)
        self._moves.append(MovingSlices(batch, to, values))
        self._wakes.update(np.unique(batch.queue_id).tolist())

    def put(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """Add a slice with these rows at their places: a copy of *piece* with other *values*."""
        if rows:
            self._new.append(columns_of(piece, rows) | values)

    def enter(self, piece: Slice, rows: Rows, **values: Any) -> None:
        """
        Take these rows in from a log, at the tail of the shard; its lock is held.

        They are the next ones of the log after those that were taken in or passed by before.
        """
        if rows:
            self._entered[piece.shard_key].append(columns_of(piece, rows) | values)
            self._passed[piece.shard_key] += len(rows)
            if piece.unmapped:
                self._unmapped[piece.queue_id].add(piece.segment_id)

    def pass_by(self, key: ShardKey, messages: int) -> None:
        """Leave out messages of a log that a shard would take in; its lock is held."""
        self._passed[key] += messages

    def cut(self, piece: Slice, rows: Rows) -> None:
        """Take these rows out of a slice; counts nothing."""
        if rows:
            _, kept = self._kept.get(piece.id, (piece, piece.rows))
            self._kept[piece.id] = (piece, EMPTY if len(rows) == len(kept) else kept - rows)

    def fire(self, piece: Slice, rows: Rows) -> None:
        """Count rows as fired, and advance the shard's fire pointer past them."""
        self._fire(piece.shard_key, len(rows), piece.place_of(rows.stop))

    def find_head(self, key: ShardKey, head: int, released: int) -> None:
        """
        Find the first place at which a message of a shard waits, from *head* on.

        The caller holds the lock of the shard, which had released that many messages before.
        """
        self._heads[key] = (head, released)

    def unfire(self, piece: Slice, rows: Rows) -> None:
        """Count rows as never fired; the caller holds the lock of their shard."""
        count, pointer = self._fired.get(piece.shard_key, (0, 0))
        self._fired[piece.shard_key] = (count - len(rows), pointer)

    def count(self, piece: Slice, **deltas: int) -> None:
        """Add to the counters of a slice's shard."""
        self.count_at(piece.shard_key, **deltas)

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
        marks = [_marking(items, ids) for items, ids in self._updated.items()]
        remainders = [_remainder(piece, rows) for piece, rows in self._kept.values() if rows]
        moves = [*self._moves, *(moving.together(to, moved) for to, moved in self._moved.items())]
        moved_at = dialect.read_clock(connection) if now is None and moves else now
        wanted: dict[ShardKey, Room] = {}
        offsets = [moving.side_by_side(move.batch, move.to, wanted) for move in moves]
        empty = [piece for piece, rows in self._kept.values() if not rows]
        gone = [piece.id for piece in empty]
        segments = {piece.segment_id for piece in empty}
        for ids, of_segments in self._gone:
            gone += ids.tolist()
            segments.update(np.unique(of_segments).tolist())
        counting, counts = self._counted_rows()
        database.take(connection)
        self._write_entered(connection)
        fired = self._fired_rows()
        for statement, given in marks:
            connection.execute(statement, given)
        execute_each(connection, _SHRINK, remainders)
        add(connection, self._new)
        execute_each(connection, shard_rows.FIRE, fired)
        heads = [
            of_shard(key) | {"from_head": head, "released": released}
            for key, (head, released) in sorted(self._heads.items())
        ]
        execute_each(connection, shard_rows.FIND_HEAD, heads)
        tails = allocate(connection, wanted)
        for move, places in zip(moves, offsets, strict=True):
            moving.write(connection, move, places, tails, moved_at)
        if gone:
            connection.execute(_REMOVE, {"these": gone})
            release(connection, segments)
        execute_each(connection, counting, counts)
        for queue_id, rank in sorted(self._lowest.items()):
            flows.set_back(connection, queue_id, rank)
        if self._wakes:
            sharing = shared_limits.sharing(connection, self._shared) if self._shared else ()
            notifications.notify(connection, *self._wakes, *sharing)

    def _write_entered(self, connection: Connection) -> None:
        """Give the rows of logs their places; those that are in flight are counted as fired."""
        if not self._passed:
            return
        wanted = {
            key: Room(
                sum(row["row_stop"] - row["row_start"] for row in rows),
                sum(row["count"] for row in rows),
            )
            for key, rows in self._entered.items()
        }
        for key, place in allocate(connection, wanted).items():
            for row in self._entered[key]:
                row["position"], place = place, place + row["row_stop"] - row["row_start"]
                if row["state"] == State.FIRED:
                    self._fire(key, row["count"], place)
            self._new += self._entered[key]
        rows = [of_shard(key) | {"by": by} for key, by in sorted(self._passed.items()) if by]
        execute_each(connection, shard_rows.ENTER, rows)
        for queue_id, segments in sorted(self._unmapped.items()):
            id_map.copy(connection, queue_id, segments)

    def _found_sound(self, piece: Slice, rows: Rows) -> None:
        """Undo the counts of the quarantine of these rows, if they are damaged."""
        if piece.damaged:
            held = 0 if piece.ticket is None else len(rows)
            self.count(piece, damaged=-len(rows), reloaded=-held)

    def _leave(self, piece: Slice, rows: Rows, counter: str) -> None:
        self._found_sound(piece, rows)
        free = len(rows) if piece.ticket is None else 0
        self._left(piece.shard_key, counter, len(rows), free, piece.place_of(rows.stop))

    def _leave_all(self, batch: SliceBatch, counter: str) -> None:
        free = batch.ticket == NULL
        for key, range in batch.by_shard():
            here, waiting = batch[range], batch[range][free[range]]
            end = int(waiting.end.max(initial=0))
            self._left(key, counter, here.messages, waiting.messages, end)
            damaged = here[here.state == int(State.DAMAGED)]
            if damaged:
                held = damaged[damaged.ticket != NULL].messages
                self.count_at(key, damaged=-damaged.messages, reloaded=-held)

    def _left(self, key: ShardKey, counter: str, messages: int, free: int, end: int) -> None:
        """Count messages that leave a shard: some of them *free*, which no ticket holds."""
        self.count_at(key, **{counter: messages})
        if free:
            # In the counters, a message that has left a shard was fired from it.
            self._fire(key, free, end)
        if self._frees and key[1] == Magazine.MAIN:
            self._wakes.add(key[0])

    def _fire(self, key: ShardKey, messages: int, end: int) -> None:
        count, pointer = self._fired.get(key, (0, 0))
        self._fired[key] = (count + messages, max(pointer, end))

    def _fired_rows(self) -> list[dict[str, int]]:
        return [
            of_shard(key) | {"by": count, "upto": pointer}
            for key, (count, pointer) in sorted(self._fired.items())
        ]

    def _counted_rows(self) -> tuple[Update, list[dict[str, int]]]:
        # With the same counters for all shards, so that one statement locks them in their order.
        names = tuple(sorted({name for counts in self._counts.values() for name in counts}))
        rows = [
            of_shard(key) | {f"by_{name}": counts.get(name, 0) for name in names}
            for key, counts in sorted(self._counts.items())
        ]
        return shard_rows.counting(names), rows


def _frees(settings: QueueSettings) -> bool:
    """Whether a message that leaves main makes room, or lets others be fired."""
    limited = any(limit.in_flight is not None for limit in settings.limits)
    return settings.is_bounded or settings.group is not None or limited


_REMOVE = delete(slices).where(dialect.one_of_given(slices.c.id, "these"))
_SHRINK = (
    update(slices)
    .where(slices.c.id == bindparam("slice_id"))
    .values({name: bindparam(name) for name in (*_REMAINDER, "seal")})
)


def _marking(items: tuple[tuple[str, Any], ...], ids: list[int]) -> tuple[Update, dict[str, Any]]:
    """Return the statement that gives some slices other values, and its parameters."""
    values = dict(items)
    given = {f"new_{name}": value for name, value in items} | seals.gain(slices, values)
    return _updating(tuple(values)), given | {"these": ids}


@lru_cache(maxsize=64)
def _updating(names: tuple[str, ...]) -> Update:
    values = {name: bindparam(f"new_{name}", type_=slices.c[name].type) for name in names}
    these = dialect.one_of_given(slices.c.id, "these")
    return update(slices).where(these).values(values | {"seal": seals.resealing(slices, names)})


def _remainder(piece: Slice, rows: Rows) -> dict[str, Any]:
    """Return the new values of a slice that keeps only some rows."""
    row = columns_of(piece, rows)
    changed = {name: row[name] for name in _REMAINDER}
    return changed | {"slice_id": piece.id, "seal": seals.seal(slices, row)}
