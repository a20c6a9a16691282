"""Load: publish messages at the tail of main.

Changes: adds slices at the shards' load pointers, in one transaction, for durable segments; in a
queue with a log, it writes them there too. Guard: a load pointer advances under its row's lock, so
positions follow the order of commits. The location of a file is a primary key, which the removal of
the file inserts too. Crash before the commit: files that no slice names, which vacuum removes.
Crash after it: the messages are loaded. The callers do more in the same transaction, and place its
crash points, so this is not a `transact`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from queue_core.catalog import notifications
from queue_core.catalog.queues import dropped
from queue_core.catalog.records.publications import claim
from queue_core.catalog.slices import flows, logs, segments, slices
from queue_core.catalog.slices.tails import Room, ShardGone, Tail, allocate_new
from queue_core.segments.storage import Storage
from queue_core.values.ids import first_id
from queue_core.values.model import Magazine, QueueInfo, Run, Staged, State, check_loads

#: The runs of one shard, each with the columns of its slice except the position.
_Runs = list[tuple[Run, dict[str, Any]]]


def load(
    connection: Connection, storage: Storage, queue: QueueInfo, staged: Sequence[Staged]
) -> list[int]:
    """
    Add the slices of staged segments, within a transaction; each run must have a shard.

    Returns the id of the first message of each segment. Raises `BadOption` for a subscription,
    `PublicationRefused`, `QueueDeactivated`, `NoSuchQueue`, and `SettingsChanged` if the queue's
    settings are no longer those of *queue*; they stay the same until the transaction ends.
    """
    check_loads(queue)
    claim(connection, storage, staged)
    first_ids, published, log_rows = [], {}, {}
    runs: dict[int, _Runs] = defaultdict(list)
    for segment in staged:
        named = len({run.shard for run in segment.runs}) if queue.settings.log is not None else 0
        segment_id, loaded_at = segments.publish(connection, queue.id, segment, named)
        log_rows[segment_id] = named
        first_ids.append(first_id(segment_id))
        published[segment_id] = segment
        for run in segment.runs:
            assert run.shard is not None, "the caller has assigned a shard"
            runs[run.shard].append((run, _new_slice(queue, segment_id, loaded_at, segment, run)))
    new, tails = _at_tails(connection, queue, runs)
    logged = {key: [columns for _, columns in runs[key[2]]] for key in tails}
    # The queue may have got a log, or lost it, since its settings were read.
    logs.correct(connection, logs.add(connection, logged, tails), log_rows)
    if queue.settings.fair_by is not None:
        new = flows.rank_loaded(connection, queue.id, published, new)
    slices.add(connection, new)
    notifications.notify(connection, queue.id)
    return first_ids


def _at_tails(
    connection: Connection, queue: QueueInfo, runs: Mapping[int, _Runs]
) -> tuple[list[dict[str, Any]], dict[slices.ShardKey, Tail]]:
    """Reserve the places of all shards; return their slices, and where these begin."""
    offsets, wanted = {}, {}
    for shard, of_shard in runs.items():
        offsets[shard], places = _offsets(of_shard)
        messages = sum([columns["count"] for _, columns in of_shard])
        size = sum([columns["bytes"] for _, columns in of_shard])
        wanted[queue.id, int(Magazine.MAIN), shard] = Room(places, messages, size)
    try:
        tails = allocate_new(connection, queue, wanted)
    except ShardGone:
        raise dropped(queue) from None
    new = [
        columns | {"position": tail.place + offset}
        for (_, _, shard), tail in tails.items()
        for (_, columns), offset in zip(runs[shard], offsets[shard], strict=True)
    ]
    return new, tails


def _offsets(runs: _Runs) -> tuple[list[int], int]:
    """Return the offset of each run from the shard's tail, and the places that all runs need."""
    offsets: list[int] = []
    segment, begin, end, base, span = None, 0, 0, 0, 0
    for run, columns in runs:
        if columns["segment_id"] != segment or run.start >= end:
            segment, begin, end, base = columns["segment_id"], run.start, 0, span
        # The rows of categories interleave, and so do their places.
        offsets.append(base + run.start - begin)
        end = max(end, run.stop)
        span = base + end - begin
    return offsets, span


def _new_slice(
    queue: QueueInfo, segment_id: int, loaded_at: int, segment: Staged, run: Run
) -> dict[str, Any]:
    """Return the columns of a slice except the position."""
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
        "lost": 0,
        "lost_among": 0,
    }
