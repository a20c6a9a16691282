"""Retry: move messages of the sideline whose time has come back to main.

Changes: due slices of the sideline become slices at the tail of main, with the time of the move. No
other slice is looked at, however many wait. Messages that could not be fired from main, because
they have expired there or were fired too often, become dead instead. Guard: the turns of their
shards, as in a firing. The messages had their room before, and wait for none: a bounded queue may
then hold more than its bound. Crash before the commit: the transaction's messages are still in the
sideline, and due.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import retries, task_log
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import id_map, turns
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import WAITING, expiry_in, in_magazines, these
from queue_core.catalog.slices.slices import ShardKey, fetch
from queue_core.catalog.transact import transact
from queue_core.selection.candidates import find_candidates
from queue_core.selection.queue_rules import of_moving
from queue_core.selection.request import FireRequest
from queue_core.selection.selection import Selection
from queue_core.values.due import NEVER
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Slice, State
from queue_core.values.plan import Taken
from queue_core.values.rows import EMPTY

#: The most slices that one transaction looks at.
ROUND_SLICES = 1000


@dataclass(frozen=True, slots=True)
class Retried:
    """What a call has done."""

    #: How many messages are back in main.
    moved: int = 0
    #: Whether it stopped before all due messages were moved: others had locked them, or the limit.
    stopped: bool = False


def retry(
    catalog: Catalog, queue: QueueInfo, storage_uri: str, limit: int | None = None
) -> Retried:
    """
    Move the due messages of a queue to main, at most *limit*, in rounds.

    Raises `DamagedSegment` if the queue has an expiry column, and a message cannot be read.
    """
    selection = Selection.parse([queue], storage_uri, eligibility=of_moving)
    request = FireRequest(
        queue_ids=(queue.id,), magazine=Magazine.SIDELINE, max_messages=limit, selection=selection
    )
    moved = 0
    while True:
        with catalog.read() as connection:
            found = retries.find_due(connection, queue.id, ROUND_SLICES)
        if not found:
            return Retried(moved)
        task_log.prepare()
        work = _Round(catalog, queue, found, request)
        count = transact(catalog, "retry", work)
        moved += count
        if not work.complete or moved == limit:
            return Retried(moved, stopped=True)
        if limit is not None:
            request = replace(request, max_messages=limit - moved)


class _Round:
    """One transaction: some due slices, found before."""

    def __init__(
        self,
        catalog: Catalog,
        queue: QueueInfo,
        found: Sequence[tuple[int, int]],
        request: FireRequest,
    ) -> None:
        self._queue = queue
        self._ids = [slice_id for slice_id, _ in found]
        self._shards: list[ShardKey] = sorted(
            {(queue.id, int(Magazine.SIDELINE), shard) for _, shard in found}
        )
        self._request = request
        self._unexpired: IdSet | None = None
        if request.selection is not None:
            # Rows have their own expiry: those of the due slices are read before the transaction.
            here = replace(
                request,
                max_messages=None,
                shards=tuple(shard for _, _, shard in self._shards),
                rules=these(catalog.engine, self._ids),
            )
            candidates = find_candidates(catalog, here)
            self._unexpired = candidates.ids if candidates is not None else None
        #: Whether a due message was found that others had not locked.
        self.complete = True

    def __call__(self, connection: Connection) -> int:
        queue = self._queue
        turns.lock(connection, [queue.id], Magazine.SIDELINE, [s for _, _, s in self._shards])
        now = dialect.read_clock(connection)
        pieces = self._lock(connection, now)
        self.complete = bool(pieces)
        changes, moves = Changes([queue]), Moves()
        left = self._request.max_messages
        for piece, sound in self._sound(connection, pieces, now, changes):
            rows, _ = sound.split(len(sound) if left is None else left)
            left = None if left is None else left - len(rows)
            changes.move(piece, rows, Magazine.MAIN, "shovelled", fired_at=now)
            moves.add(piece, len(rows), Magazine.MAIN)
        changes.apply(connection)
        moves.record(connection, queue.id, "shovel")
        return len(moves)

    def _lock(self, connection: Connection, now: int) -> list[Slice]:
        """Return the slices that are still due, except those that others lock."""
        found = fetch(
            connection,
            *these(connection, self._ids),
            *in_magazines([Magazine.SIDELINE]),
            *WAITING,
            lock="skip",
        )
        return [piece for piece in found if piece.due_at is not None and piece.due_at <= now]

    def _sound(
        self, connection: Connection, pieces: Sequence[Slice], now: int, changes: Changes
    ) -> Iterator[Taken]:
        """Yield the rows that may return to main; the others become dead."""
        unexpired = self._unexpired
        if unexpired is not None:
            unexpired = id_map.located(connection, [self._queue.id], unexpired)
        expiry = expiry_in(self._queue, Magazine.MAIN)
        most = self._queue.settings.max_deliveries
        for piece in pieces:
            rows = piece.rows
            is_old = expiry is not None and piece.loaded_at <= now - int(expiry * 1e6)
            if is_old or (most is not None and piece.deliveries >= most):
                rows = EMPTY
            elif unexpired is not None:
                rows = rows & unexpired.rows(piece.segment_id)
            changes.mark(piece, piece.rows - rows, state=int(State.LOADED), due_at=NEVER)
            if rows:
                yield piece, rows
