"""Load: publish messages at the tail of main.

Changes: adds slices at the shards' load pointers, in one transaction, for segments that are durable
already. Guard: a load pointer is advanced under its row's lock, so places are given out in order of
commits; the location of a file is a primary key that its removal takes too. Crash before the
commit: files that no slice names, for vacuum. Crash after it: the messages are loaded.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection

from queue_core.capacity.bounds import find_room
from queue_core.capacity.eviction import drop_oldest
from queue_core.catalog import notifications, segments, slices, waiters
from queue_core.catalog.publications import claim
from queue_core.ids import first_id
from queue_core.model import Magazine, QueueInfo, Run, Staged, State
from queue_core.segments.storage import Storage


def load(
    connection: Connection,
    storage: Storage,
    queue: QueueInfo,
    staged: Sequence[Staged],
    waiter: int | None = None,
    overflow: str | None = None,
) -> list[int]:
    """
    Add the slices of staged segments, within a transaction.

    *waiter* and *overflow* are for `find_room`. Raises `NoRoom`.
    """
    excess = find_room(connection, queue, staged, waiter, overflow)
    claim(connection, storage, staged)
    first_ids = []
    runs: dict[int, list[tuple[Run, dict[str, Any]]]] = defaultdict(list)
    for segment in staged:
        segment_id, loaded_at = segments.publish(connection, queue.id, segment)
        first_ids.append(first_id(segment_id))
        for run in segment.runs:
            assert run.shard is not None, "the caller has seen to it"
            runs[run.shard].append((run, _new_slice(queue, segment_id, loaded_at, segment, run)))
    for shard in sorted(runs):
        count = sum(len(run) for run, _ in runs[shard])
        offsets, span = _offsets(runs[shard])
        place = (queue.id, Magazine.MAIN, shard)
        tail = slices.allocate(connection, place, span, count, new=True)
        slices.add(
            connection,
            [
                values | {"position": tail + offset}
                for (_, values), offset in zip(runs[shard], offsets, strict=True)
            ],
        )
    if excess is not None:
        drop_oldest(connection, queue, excess)
    if waiter is not None and not queue.settings.is_rendezvous:
        waiters.leave(connection, waiter)
    notifications.notify(connection)
    return first_ids


def _offsets(runs: Sequence[tuple[Run, dict[str, Any]]]) -> tuple[list[int], int]:
    """Where runs of one shard stand, from its tail on, and how many places they take."""
    offsets: list[int] = []
    segment, begin, end, base, span = None, 0, 0, 0, 0
    for run, values in runs:
        if values["segment_id"] != segment or run.start >= end:
            segment, begin, end, base = values["segment_id"], run.start, 0, span
        # Rows of categories lie between each other, and their places do as well.
        offsets.append(base + run.start - begin)
        end = max(end, run.stop)
        span = base + end - begin
    return offsets, span


def _new_slice(
    queue: QueueInfo, segment_id: int, loaded_at: int, segment: Staged, run: Run
) -> dict[str, Any]:
    """A slice of the table, but for its position."""
    count = len(run)
    return {
        "queue_id": queue.id,
        "magazine": int(Magazine.MAIN),
        "shard": run.shard,
        "state": int(State.LOADED),
        "segment_id": segment_id,
        "row_start": run.start,
        "row_stop": run.stop,
        "bitmap": None if run.rows is None else run.rows.to_bytes(),
        "count": count,
        "bytes": segment.bytes * count // max(segment.rows, 1),
        "attempts": 0,
        "deliveries": 0,
        "loaded_at": loaded_at,
        "moved_at": loaded_at,
        "stats": run.stats,
    }
