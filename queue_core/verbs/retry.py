"""Retry: move messages of the sideline whose time has come back to main.

Changes: due slices of the sideline become slices at the tail of main, with the time of the move. No
other slice is looked at, however many wait. Messages that could not be fired from main, because
they have expired there or were fired too often, become dead instead; while the clock is in doubt,
those that seem to have expired wait. Guard: the locks of their shards, as in a firing. Those of
shards that others have locked wait for a later call. The messages had their room before, and wait
for none: a bounded queue may then hold more than its bound. Crash before the commit: the
transaction's messages are still in the sideline, and due.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.records import retries, task_log
from queue_core.catalog.slices import id_map, shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import WAITING, expiry_in, in_magazines, in_shards, these
from queue_core.catalog.slices.moves import SHOVELLED, carry_out
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Rounds
from queue_core.selection.candidates import find_candidates
from queue_core.selection.queue_rules import of_expiry
from queue_core.selection.request import FireRequest
from queue_core.selection.selection import Selection
from queue_core.values.due import NEVER
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.plan import Taken
from queue_core.values.rows import EMPTY
from queue_core.verbs.expire import LoadTimes, read_ages

#: The most slices that one transaction looks at.
ROUND_SLICES = 1000


def retry(
    catalog: Catalog, queue: QueueInfo, storage_uri: str, limit: int | None = None
) -> tuple[int, bool]:
    """
    Move the due messages of a queue to main, at most *limit*, in rounds; return how many.

    Also return whether it stopped before all were moved, because of locks, the limit, or the clock.
    Raises `DamagedSegment` if messages may have expired, and one of them cannot be read.
    """
    selection = Selection.parse([queue], eligibility=of_expiry)
    rounds = Rounds(catalog, "retry", limit=limit, seconds=dialect.TASK_LOCK_SECONDS)
    # The shards whose other messages are left to a later call.
    shut: set[int] = set()
    while True:
        with catalog.read() as connection:
            found = retries.find_due(connection, queue.id, ROUND_SLICES, shut)
        if not found:
            return rounds.done, bool(shut)
        task_log.prepare()
        ids, shards = [slice_id for slice_id, _ in found], sorted({shard for _, shard in found})
        request = FireRequest(
            queue_ids=(queue.id,),
            magazine=Magazine.SIDELINE,
            shards=tuple(shards),
            rules=these(ids),
            selection=selection,
            queues=(queue,),
            storage=storage_uri,
        )
        # Rows may have their own expiry: those of the due slices are read before the transaction.
        candidates = find_candidates(catalog, request)
        expired = IdSet() if candidates is None else candidates.ids
        # A compacted slice has the time of its oldest message.
        may_expire = expiry_in(queue, Magazine.MAIN) is not None
        ages = read_ages(catalog, storage_uri, queue, request) if may_expire else {}
        work = partial(
            _move_due,
            queue=queue,
            ids=ids,
            shards=shards,
            expired=expired,
            ages=ages,
            most=rounds.left,
        )
        try:
            _, free = rounds.run(work)
        except dialect.StillLocked:
            return rounds.done, True
        shut.update({*shards} - free)
        if rounds.left == 0:
            return rounds.done, True


def _move_due(
    connection: Connection,
    queue: QueueInfo,
    ids: Sequence[int],
    shards: Sequence[int],
    expired: IdSet,
    ages: Mapping[int, LoadTimes],
    most: int | None,
) -> tuple[int, set[int]]:
    """
    Move those of some slices that are still due, at most *most* messages.

    Messages that may not return to main become dead. Return how many were moved, and the shards
    that are worth another look: all that was free there was moved, none waits for the clock.
    """
    own = shard_locks.lock_free(connection, [queue.id], Magazine.SIDELINE, shards)
    now = dialect.read_clock(connection)
    there = (*these(ids), *in_magazines([Magazine.SIDELINE]), *WAITING)
    found = fetch(connection, *there, *in_shards([key[2] for key in own]), lock="skip")
    due = [piece for piece in found if piece.due_at is not None and piece.due_at <= now]
    expiry = expiry_in(queue, Magazine.MAIN)
    # After a jump of the clock, messages that seem to have expired wait, and do not become dead.
    may_expire = expiry is not None or len(expired) > 0
    doubts = may_expire and clock.look(connection) is not None
    free = {piece.shard for piece in due}
    expired = id_map.located(connection, [queue.id], expired)
    times = queue.settings.max_deliveries
    changes = Changes([queue])
    taken: list[Taken] = []
    loaded_at: dict[int, int] = {}
    for piece in due:
        known = None
        # Messages that others held during the search may have expired too: main removes them.
        rows = piece.rows - expired.rows(piece.segment_id)
        before = None if expiry is None else now - int(expiry * 1e6)
        too_often = times is not None and piece.deliveries >= times
        if too_often:
            rows = EMPTY
        elif before is not None and piece.loaded_at <= before:
            known = ages.get(piece.segment_id)
            rows = EMPTY if known is None else rows - known.before(before)
        if too_often or not doubts:
            changes.mark(piece, piece.rows - rows, due_at=NEVER)
        elif len(rows) < len(piece.rows):
            free.discard(piece.shard)
        rows, _ = rows.split(len(rows) if most is None else most)
        if rows:
            most = None if most is None else most - len(rows)
            taken.append((piece, rows))
            if known is not None and not rows - known.rows:
                # Or they would seem to have expired in main, by the oldest message of the slice.
                loaded_at[piece.id] = known.oldest(rows)
    moved = carry_out(connection, queue, SHOVELLED, taken, changes=changes, loaded_at=loaded_at)
    return moved, free
