"""Compaction of a log: merge its small rows, before subscriptions take them.

Changes: messages of a log move to a new segment, one for each row that others become. Ids, offsets
and the slices of all queues stay the same. Guard: `log_merging`. Crash before the commit: a file
that nothing names, which vacuum removes. Crash after it: the log names the new segment.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog import queue_changes, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import acts, progress
from queue_core.catalog.records.publications import claim
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import intake, log_merging, read_plans
from queue_core.catalog.slices import segments as segment_rows
from queue_core.catalog.slices.log_merging import Neighbours
from queue_core.catalog.transact import transact
from queue_core.errors import DamagedSegment
from queue_core.segments.reader import read_table
from queue_core.segments.rewriter import Repacked, RewriteGroup, kept_columns, repack
from queue_core.segments.stager import removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.upkeep.tasks.compaction_plan import AGE, SMALL_BYTES, UNIT_BYTES
from queue_core.upkeep.tasks.task import Share
from queue_core.values.model import Magazine, QueueInfo, Staged
from queue_core.values.rows import Rows


def find(connection: Connection, queue: QueueInfo, shards: Iterable[int]) -> list[Neighbours]:
    """Return rows of a queue's log, if it has one, that are worth merging."""
    if queue.settings.log is None:
        return []
    readers = queue_changes.subscriptions(connection, queue.id)
    settings = [queues.by_id(connection, reader).settings for reader in readers]
    # What a reader takes from a row expires with the oldest message.
    expiries = [each.shortest_expiry for each in settings if each.shortest_expiry is not None]
    age = min((int(expiry * 1e6 * AGE) for expiry in expiries), default=log_merging.MINUTE)
    return [
        rows
        for shard in shards
        for rows in log_merging.find(connection, queue.id, shard, SMALL_BYTES, UNIT_BYTES, age)
    ]


def merge(
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
            each = find(connection, queue, share.shards(queue))
        found = False
        for rows in each:
            try:
                count = _merge(catalog, storage, queue, rows)
            except DamagedSegment as error:
                count, damage = 0, error
            progress.add(count)
            rewritten += count
            looked += len(rows)
            found = found or count > 0
    if damage is not None:
        raise damage
    return rewritten


def _merge(catalog: Catalog, storage: Storage, queue: QueueInfo, rows: Neighbours) -> int:
    """Let neighbouring rows of a log become one; return how many messages they have."""
    key = (queue.id, int(Magazine.MAIN), rows[0].shard)
    pieces = [intake.as_slice(key, row, 0) for row in rows]
    with catalog.read() as connection:
        if {row.segment_id for row in rows} - segment_rows.present(
            connection, [row.segment_id for row in rows]
        ):
            # They were trimmed.
            return 0
        # The present queue, because messages with newer columns must keep them.
        current = queues.still_there(connection, queue)
        pairs = ((piece, piece.rows) for piece in pieces)
        reading = read_plans.build(connection, [current], pairs, storage.uri)
    messages = read_table(reading, kept_columns(current))
    # Row numbers have gaps, and offsets have none.
    all_rows, oldest = Rows.span(0, messages.num_rows), min(piece.loaded_at for piece in pieces)
    whole = replace(pieces[0], rows=all_rows, loaded_at=oldest)
    staged, (repacked,) = repack(storage, current, [RewriteGroup((whole,))], messages)
    faults.point("merge.written")
    work = partial(_put_in_place, storage, current, rows, staged, repacked)
    with removed_if_refused(storage, [staged]):
        return transact(catalog, "merge", work, grows=True)


def _put_in_place(
    storage: Storage,
    queue: QueueInfo,
    rows: Neighbours,
    staged: Staged,
    repacked: Repacked,
    connection: Connection,
) -> int:
    claim(connection, storage, [staged])
    if not log_merging.merge(connection, queue, rows, staged, repacked):
        if staged.location is not None:
            segment_rows.discard(connection, [staged.location])
        return 0
    count = len(repacked.rows)
    moves = Moves()
    moves.count(rows[0].shard, count, f"{len(rows)} rows of the log", "1 row of the log")
    moves.record(connection, queue.id, "compact")
    acts.note(connection, count)
    return count
