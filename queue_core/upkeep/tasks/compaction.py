"""Compaction: merge many small segments, and rewrite segments that are mostly dead.

Changes: waiting messages move to a new segment, and their slices become one slice at the same
places. Ids, order, attempts, times and statistics stay the same, and messages in flight are left
alone. Guard: the new segment is written outside of any transaction. The transaction that puts it in
place takes the locks of the shards, and only slices that are exactly as they were read. Messages
that were fired meanwhile stay as they are. Crash before the commit: a file that no slice names,
which vacuum removes. Crash after it: the catalog names the messages in their new segment.

Of a log, small rows become one before subscriptions take them, each with a new segment. Ids,
offsets and the slices of all queues stay the same. Guard: `log_merging`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import acts, progress
from queue_core.catalog.records.publications import claim
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import (
    id_map,
    intake,
    log_merging,
    parts,
    read_plans,
    rewritable,
    shard_locks,
)
from queue_core.catalog.slices import segments as segment_rows
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import WAITING, in_queue, in_shards, these
from queue_core.catalog.slices.log_merging import Neighbours
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import transact
from queue_core.errors import DamagedSegment
from queue_core.segments.reader import read_table
from queue_core.segments.rewriter import Repacked, RewriteGroup, kept_columns, repack
from queue_core.segments.stager import removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.upkeep.tasks.compaction_plan import AGE, UNIT_BYTES, Unit, units
from queue_core.upkeep.tasks.task import Share, TaskContext
from queue_core.values.model import Magazine, QueueInfo, Staged, State
from queue_core.values.rows import Rows

#: A run of the task ends once it has looked at this many slices; the next run continues.
ROUND_SLICES = 1 << 16
#: Shards are looked at together until they have this many small slices: a limit of memory.
TOGETHER = 1 << 14


def run(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many messages were rewritten."""
    if not context.asked_for:
        with context.catalog.read() as connection:
            is_large = bool(parts.large(connection, [queue]))
        if is_large:
            merged = merge_log(context.catalog, context.storage, queue, ROUND_SLICES, context.share)
            return merged + _compact_parts(context.catalog, context.storage, queue, context.share)
    return compact(context.catalog, context.storage, queue, ROUND_SLICES, context.share)


def shares(context: TaskContext, queue: QueueInfo) -> int:
    """Return how many processes can divide the shards of a large queue among them."""
    with context.catalog.read() as connection:
        return queue.shards if parts.large(connection, [queue]) else 1


def with_work(catalog: Catalog, some: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the queues that may have slices worth compacting; of large ones, all."""
    with catalog.read() as connection:
        found = parts.large(connection, some)
        if ids := [queue.id for queue in some if queue.id not in found]:
            found |= rewritable.promising(connection, ids).keys()
        left = [queue for queue in some if queue.id not in found]
        found |= {each.id for each in left if any(_mergeable(connection, each, range(each.shards)))}
    return [queue for queue in some if queue.id in found]


def compact(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    most: int | None = None,
    share: Share = Share(),  # noqa: B008 - it cannot change
) -> int:
    """
    Compact both magazines of a queue, and its log, where it pays; return how many were rewritten.

    It ends once it has looked at *most* slices, by default never, in the shards of *share*. Each
    segment has its own transaction. Raises `DamagedSegment`, and `PublicationRefused` if a new
    segment was removed before it was in place.
    """
    with catalog.read() as connection:
        places = rewritable.promising(connection, [queue.id]).get(queue.id, {})
    rewritten, _ = _compact_places(catalog, storage, queue, places, share, most)
    return rewritten + merge_log(catalog, storage, queue, most, share)


def _compact_parts(catalog: Catalog, storage: Storage, queue: QueueInfo, share: Share) -> int:
    """Compact a large queue part by part, until nothing is rewritten in one; as `compact`."""
    rewritten = looked = 0
    while looked < ROUND_SLICES:
        with catalog.read() as connection:
            places = rewritable.promising_in_parts(connection, queue, share.shards(queue))
        left = ROUND_SLICES - looked
        count, slices_there = _compact_places(catalog, storage, queue, places, share, left)
        rewritten += count
        looked += slices_there
        if not count:
            break
    return rewritten


def _compact_places(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    places: Mapping[tuple[Magazine, int], int],
    share: Share,
    most: int | None,
) -> tuple[int, int]:
    """Return how many messages were rewritten, and at how many slices it has looked."""
    own = {place: n for place, n in places.items() if place[1] % share.of == share.number}
    rewritten = looked = 0
    for magazine, shards in _together(own):
        if most is not None and looked >= most:
            break
        found, slices_there = _worth_it(catalog, queue, magazine, shards)
        looked += slices_there
        progress.add(expected=sum(group.messages for unit in found for group in unit))
        for unit in found:
            try:
                count = _rewrite(catalog, storage, queue, unit)
            except dialect.StillLocked:
                # A caller's own transaction may take long: the next compaction goes on.
                return rewritten, looked
            progress.add(count)
            rewritten += count
    return rewritten, looked


def _together(
    places: Mapping[tuple[Magazine, int], int],
) -> Iterator[tuple[Magazine, list[int]]]:
    """Yield shards that are looked at together, because one segment can have several shards."""
    parts: list[tuple[Magazine, list[int]]] = []
    for magazine in Magazine:
        here, small = [], 0
        for _, shard in sorted(place for place in places if place[0] is magazine):
            here.append(shard)
            small += places[magazine, shard]
            if small >= TOGETHER:
                parts.append((magazine, here))
                here, small = [], 0
        if here:
            parts.append((magazine, here))
    # Otherwise, shards in which nothing can be merged could keep others from their turn.
    random.shuffle(parts)
    yield from parts


def _worth_it(
    catalog: Catalog, queue: QueueInfo, magazine: Magazine, shards: Sequence[int]
) -> tuple[list[Unit], int]:
    """Return the units to rewrite in some shards, and how many slices these have."""
    with catalog.read() as connection:
        here = (*in_queue(queue.id, magazine), *in_shards(shards))
        pieces = fetch(connection, *here)
        conditions = rewritable.fullness(connection, here)
    loaded = {piece.id for piece in pieces if piece.ticket is None and not piece.damaged}
    expiry = queue.settings.shortest_expiry
    age = None if expiry is None else int(expiry * 1e6 * AGE)
    return units(pieces, loaded, conditions, age), len(pieces)


def _rewrite(catalog: Catalog, storage: Storage, queue: QueueInfo, unit: Unit) -> int:
    with catalog.read() as connection:
        groups = _intact(connection, unit)
        if not groups:
            return 0
        # The present queue, because messages with newer columns must keep them.
        current = queues.find(connection, queue.name)
        pieces = ((piece, piece.rows) for group in groups for piece in group.pieces)
        reading = read_plans.build(connection, [current], pieces, storage.uri)
    messages = read_table(reading, kept_columns(current))
    staged, repacked = repack(storage, current, groups, messages)
    faults.point("compact.written")

    def work(connection: Connection) -> int:
        claim(connection, storage, [staged])
        # Block firings from the shards meanwhile, because they would skip locked slices.
        first = groups[0].pieces[0]
        shards = {group.pieces[0].shard for group in groups}
        shard_locks.lock(connection, [first.queue_id], first.magazine, shards)
        intact = {id(group) for group in _intact(connection, groups, lock="skip")}
        left = [one for one in repacked if id(one.group) in intact]
        if left:
            _put_in_place(connection, current, staged, left)
        elif staged.location is not None:
            segment_rows.discard(connection, [staged.location])
        rewritten = sum(one.group.messages for one in left)
        acts.note(connection, rewritten)
        return rewritten

    with removed_if_refused(storage, [staged], dialect.StillLocked):
        return transact(catalog, "compact", work, grows=True, seconds=dialect.TASK_LOCK_SECONDS)


def _intact(
    connection: Connection, groups: Iterable[RewriteGroup], lock: str | None = None
) -> list[RewriteGroup]:
    """Return the groups whose slices are all unchanged."""
    ids = [piece.id for group in groups for piece in group.pieces]
    there = {piece.id: piece for piece in fetch(connection, *these(ids), *WAITING, lock=lock)}
    return [
        group for group in groups if all(there.get(piece.id) == piece for piece in group.pieces)
    ]


def _put_in_place(
    connection: Connection, queue: QueueInfo, staged: Staged, repacked: list[Repacked]
) -> None:
    segment_id, _ = segment_rows.publish(connection, queue.root, staged)
    ids = np.concatenate([one.ids for one in repacked])
    id_map.record(
        connection, queue.id, segment_id, ids, np.concatenate([one.rows for one in repacked])
    )
    changes, moves = Changes(), Moves()
    for one in repacked:
        changes.put(one.piece, one.piece.rows, segment_id=segment_id, state=int(State.LOADED))
        for piece in one.group.pieces:
            changes.cut(piece, piece.rows)
        if queue.settings.group is not None:
            # Scans for heads may have passed the place to which it comes (`KnownGroups`).
            changes.count(one.piece, released=one.group.messages)
        moves.count(
            one.piece.shard,
            one.group.messages,
            f"{len(one.group.pieces)} slices of {one.piece.magazine.name.lower()}",
            f"1 slice of {one.piece.magazine.name.lower()}",
        )
    changes.apply(connection)
    moves.record(connection, queue.id, "compact")


def _mergeable(
    connection: Connection, queue: QueueInfo, shards: Iterable[int]
) -> Iterator[Neighbours]:
    """Yield rows of a queue's log, if it has one, that are worth merging."""
    if queue.settings.log is None:
        return
    readers = queues.subscriptions_to(connection, queue.id)
    # What a reader takes from a row expires with the oldest message.
    expiries = [reader.settings.shortest_expiry for reader in readers]
    ages = (int(each * 1e6 * AGE) for each in expiries if each is not None)
    age = min(ages, default=log_merging.MINUTE)
    for shard in shards:
        yield from log_merging.find(connection, queue.id, shard, UNIT_BYTES, age)


def merge_log(
    catalog: Catalog, storage: Storage, queue: QueueInfo, most: int | None, share: Share
) -> int:
    """
    Merge the small rows of a queue's log; return how many messages were rewritten.

    It ends once it has merged *most* rows, by default never, in the shards of *share*. Each new row
    has its own transaction. Raises `DamagedSegment`, once all others are merged.
    """
    rewritten = looked = 0
    found, damage = True, None
    while found and (most is None or looked < most):
        with catalog.read() as connection:
            each = list(_mergeable(connection, queue, share.shards(queue)))
        found = False
        for rows in each:
            try:
                count = _merge_rows(catalog, storage, queue, rows)
            except DamagedSegment as error:
                count, damage = 0, error
            except dialect.StillLocked:
                # As in a trim: the next compaction goes on.
                found = False
                break
            progress.add(count)
            rewritten += count
            looked += len(rows)
            found = found or count > 0
    if damage is not None:
        raise damage
    return rewritten


def _merge_rows(catalog: Catalog, storage: Storage, queue: QueueInfo, rows: Neighbours) -> int:
    """Let neighbouring rows of a log become one; return how many messages they have."""
    key = (queue.id, int(Magazine.MAIN), rows[0].shard)
    pieces = [intake.as_slice(key, row, 0) for row in rows]
    with catalog.read() as connection:
        named = {row.segment_id for row in rows}
        if named - segment_rows.present(connection, named):
            # They were trimmed.
            return 0
        # The present queue, because messages with newer columns must keep them.
        current = queues.still_there(connection, queue)
        pairs = ((piece, piece.rows) for piece in pieces)
        reading = read_plans.build(connection, [current], pairs, storage.uri)
    messages = read_table(reading, kept_columns(current))
    # Row numbers have gaps, and offsets have none.
    all_rows, oldest = Rows(0, messages.num_rows), min(piece.loaded_at for piece in pieces)
    whole = replace(pieces[0], rows=all_rows, loaded_at=oldest)
    staged, (repacked,) = repack(storage, current, [RewriteGroup((whole,))], messages)
    faults.point("merge.written")

    def work(connection: Connection) -> int:
        claim(connection, storage, [staged])
        if not log_merging.merge(connection, current, rows, staged, repacked):
            if staged.location is not None:
                segment_rows.discard(connection, [staged.location])
            return 0
        count = len(repacked.rows)
        moves = Moves()
        moves.count(rows[0].shard, count, f"{len(rows)} rows of the log", "1 row of the log")
        moves.record(connection, queue.id, "compact")
        acts.note(connection, count)
        return count

    with removed_if_refused(storage, [staged], dialect.StillLocked):
        return transact(catalog, "merge", work, grows=True, seconds=dialect.TASK_LOCK_SECONDS)
