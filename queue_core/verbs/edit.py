"""Edit: give a message of the sideline other values, and move it to the tail of main.

Changes: the message becomes a row of a new segment, under its id, as in a compaction. Its slice of
the sideline loses it, and a new slice at the tail of main names it in the new segment. Its attempts
stay as they are. Guard: the lock of its shard. The segment is written before the transaction, which
looks whether the message is still where it was read; if it has moved, it is read again. Crash
before the commit: a file that no slice names, which vacuum removes; the message is unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records.acts import noting
from queue_core.catalog.records.publications import claim
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import id_map, read_plans, segment_lookup, shard_locks
from queue_core.catalog.slices import segments as segment_rows
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import expiry_in, unexpired
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption, Conflict, QueueFull, SchemaMismatch
from queue_core.policies.inputs import Overwritten
from queue_core.segments.reader import read_table
from queue_core.segments.rewriter import Repacked, RewriteGroup, kept_columns, repack
from queue_core.segments.stager import removed_if_refused
from queue_core.segments.storage import Storage
from queue_core.selection.queue_rules import of_moving
from queue_core.selection.request import FireRequest
from queue_core.selection.rounds import still_there
from queue_core.selection.scan import mask, with_moment
from queue_core.selection.selection import Selection
from queue_core.values.column_roles import expiring
from queue_core.values.failure_kinds import BY_HAND
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Slice, Staged
from queue_core.values.names import nearest
from queue_core.values.rows import Rows
from queue_core.values.schema import conform
from queue_core.verbs.capacity.bounds import limit_to_capacity, within_byte_limit

#: How often a message is read while others keep moving it.
_TRIES = 4


class _Moved(Exception):
    """The message is not where it was read."""


def edit(
    catalog: Catalog,
    storage: Storage,
    queue: QueueInfo,
    message_id: int,
    values: Mapping[str, Any],
) -> None:
    """
    Change columns of a message that waits in the sideline, and move it to main.

    Raises `BadOption` if it does not wait there or would expire in main, or for another key;
    `SchemaMismatch` for values that do not fit; `QueueFull`; and `Conflict` if others keep moving
    it.
    """
    ids = IdSet.of([message_id])
    new = _conformed(queue, values)
    with catalog.read() as connection:
        segment_lookup.check(connection, [queue], id_map.located(connection, [queue.id], ids))
    for _ in range(_TRIES):
        with catalog.read() as connection:
            # With all columns that the message can have.
            queue = queues.still_there(connection, queue)
            piece, rows = _waiting(connection, queue, ids)
            plan = read_plans.build(connection, [queue], [(piece, rows)], storage.uri)
            now = dialect.read_clock(connection)
        messages = read_table(plan, kept_columns(queue))
        _check_key(queue, messages, new)
        messages = Overwritten(rows=np.array([0]), values=new).applied_to(messages)
        _check_time(queue, messages, now)
        part = piece.narrowed(rows)
        staged, (repacked,) = repack(storage, queue, [RewriteGroup((part,))], messages)

        work = partial(_replace, storage, queue, ids, part, staged, repacked)
        with suppress(_Moved), removed_if_refused(storage, [staged], _Moved):
            transact(catalog, "edit", noting(work), grows=True)
            return
    raise Conflict(
        f"message {message_id} of queue {queue.name!r} was moved while it was edited; edit it again"
    )


def _replace(
    storage: Storage,
    queue: QueueInfo,
    ids: IdSet,
    was: Slice,
    staged: Staged,
    repacked: Repacked,
    connection: Connection,
) -> None:
    """Move the message to main, in its new segment; raises `_Moved` if it is elsewhere."""
    _check_room(connection, queue, repacked)
    claim(connection, storage, [staged])
    shard_locks.lock(connection, [queue.id], Magazine.SIDELINE, [was.shard])
    piece, rows = _waiting(connection, queue, ids, lock="wait")
    if (piece.segment_id, rows.start) != (was.segment_id, was.rows.start):
        raise _Moved
    segment_id, _ = segment_rows.publish(connection, queue.root, staged)
    id_map.record(connection, queue.id, segment_id, repacked.ids, repacked.rows)
    new = replace(
        piece,
        segment_id=segment_id,
        rows=repacked.piece.rows,
        bytes=repacked.piece.bytes,
        stats=repacked.piece.stats,
    )
    changes, moves = Changes([queue]), Moves()
    now = dialect.read_clock(connection)
    changes.move(piece, rows, Magazine.MAIN, "shovelled", new, fired_at=now)
    moves.count(piece.shard, 1, piece.magazine.name.lower(), "main")
    changes.apply(connection)
    moves.record(connection, queue.id, BY_HAND)


def _conformed(queue: QueueInfo, values: Mapping[str, Any]) -> dict[str, pa.Array]:
    """Return the new values as columns of one row; raises `SchemaMismatch` and `BadOption`."""
    if not values:
        raise BadOption("edit: give at least one column and its new value")
    for name in values:
        # Metadata columns, such as `_attempt`, cannot be edited.
        if name not in queue.schema.names:
            names = queue.schema.names
            hint = nearest(name, names) or f"; its columns are {', '.join(names)}"
            raise SchemaMismatch(f"queue {queue.name!r} has no column {name!r}{hint}")
    known = pa.schema([field for field in queue.schema if field.name in values])
    row = conform([dict(values)], known, queue.name)
    return {name: row.column(name).combine_chunks() for name in row.column_names}


def _check_key(queue: QueueInfo, messages: pa.Table, new: Mapping[str, pa.Array]) -> None:
    """Refuse another key: a message keeps its shard for life."""
    key = queue.key
    if (
        key is not None
        and key in new
        and not new[key].equals(messages.column(key).combine_chunks())
    ):
        raise BadOption(
            f"column {key!r} is the key of queue {queue.name!r}, which cannot be edited; load a "
            "new message, and delete this one"
        )


def _check_time(queue: QueueInfo, messages: pa.Table, now: int) -> None:
    """Refuse an edited message that its own expiry column would remove from main at once."""
    rule = Selection.parse([queue], eligibility=of_moving)
    condition = None if rule is None else rule.rules[queue.id].condition
    if condition is not None:
        rows = with_moment(messages, condition.columns, now)
        if not mask(rows, [condition]).all():
            message = messages.column("_message_id")[0]
            column = expiring(queue.settings, queue.schema)
            raise BadOption(
                f"message {message} of queue {queue.name!r} would expire in main: give its column "
                f"{column!r} a later time too"
            )


def _waiting(
    connection: Connection, queue: QueueInfo, ids: IdSet, lock: str | None = None
) -> tuple[Slice, Rows]:
    """Return the slice of the sideline with a message, and its row; raises `BadOption`."""
    here = unexpired(queue, Magazine.SIDELINE)
    request = FireRequest(queue_ids=(queue.id,), magazine=Magazine.SIDELINE, rules=here)
    why = "does not wait in the sideline: only messages there can be edited; sideline it first"
    for piece, rows in still_there(connection, request, ids, lock):
        expiry = expiry_in(queue, Magazine.MAIN)
        if expiry is None or piece.loaded_at > dialect.read_clock(connection) - expiry * 1e6:
            return piece, rows
        why = "would expire in main: set message_expiry longer or none first"
    raise BadOption(f"message {int(ids.numbers()[0])} of queue {queue.name!r} {why}")


def _check_room(connection: Connection, queue: QueueInfo, repacked: Repacked) -> None:
    """Take the lock of a bounded queue's room; raises `QueueFull`."""
    request = FireRequest(queue_ids=(queue.id,), max_messages=1)
    fitting = limit_to_capacity(connection, queue, request)
    piece = repacked.piece
    if fitting is None or not within_byte_limit(fitting, [(piece, piece.rows)]):
        raise QueueFull(
            f"queue {queue.name!r} has no room for the edited message; fire and delete messages, "
            "or raise the bound"
        )
