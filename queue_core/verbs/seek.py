"""Seek: move a paused subscription to another place of its log, or back to a snapshot of it.

Changes: all of its slices go, in main and in the sideline, with its failures, and its cursors move.
Slices of the snapshot are copied. A detached subscription is attached again. All is one
transaction: for 100,000 slices, it takes a few seconds. Guard: the queue's row, so that nobody
resumes it; the locks of its shards and slices; and the rows of the log. Messages in flight are
removed only by force: as after a sweep, no later settlement finds them. Crash before the commit:
the subscription is where it was.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import queue_changes, snapshots
from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import names_of
from queue_core.catalog.records import acts
from queue_core.catalog.slices import copying, logs
from queue_core.catalog.slices.slice_batches import NULL, SliceBatch
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.values.model import Extent, QueueInfo
from queue_core.values.names import listed


def seek(
    catalog: Catalog,
    queue: QueueInfo,
    to: int | str,
    *,
    force: bool = False,
    dry_run: bool = False,
) -> Extent:
    """
    Move a subscription to a place, to a time in microseconds, or to a snapshot by its name.

    Returns what it has then, and how many messages are removed. Raises `BadOption`.
    """
    if not queue.log_of:
        raise BadOption(f"queue {queue.name!r} is not a subscription, so it cannot seek")

    def work(connection: Connection) -> Extent:
        back = snapshots.find(connection, queue, to)
        held = copying.hold(connection, [queue.id, *([back.id] if back else [])])
        # The snapshot's time may have ended during the wait for locks.
        back = snapshots.find(connection, queue, to)
        # Lock the root first, as a change of its columns does.
        root = queue_changes.held_root(connection, queue, log=back is None)
        catalog_queues.hold(connection, queue, alone=True)
        info = catalog_queues.present(connection, queue)
        own = held.queue_id == info.id
        _check(connection, info, held[own], force=force)
        if back is not None:
            cursors = logs.cursors(connection, back.id)
        else:
            _check_endless(connection, info)
            cursors = logs.between(connection, root.id, cast("logs.Start", to))
        extent = copying.measure(connection, held[~own], cursors)
        passed = {
            shard: each._replace(cursor_end=cursors[shard].cursor)
            for shard, each in logs.cursors(connection, info.id).items()
            if shard in cursors and each.cursor < cursors[shard].cursor
        }
        removed = held[own].messages + logs.measure(connection, passed).messages
        if not dry_run:
            copying.remove_all(connection, info.id, held[own])
            if back is not None:
                copying.copy(connection, held[~own], back.id, info.id)
            logs.place(connection, info.id, cursors)
            snapshots.attach(connection, info.id, back.detached_at if back else 0)
            acts.note(connection)
        return extent._replace(removed=removed)

    return transact(catalog, "seek", work, grows=True)


def _check(connection: Connection, queue: QueueInfo, held: SliceBatch, *, force: bool) -> None:
    """Raise `BadOption` unless a queue is paused and has nothing in flight."""
    if not queue.is_paused:
        raise BadOption(f"queue {queue.name!r} fires messages; pause it before you seek")
    flying = held[held.ticket != NULL]
    if len(flying) and not force:
        names = names_of(connection, np.unique(flying.consumer_id).tolist())
        raise BadOption(
            f"{flying.messages:,} messages of queue {queue.name!r} are in flight, with "
            f"{listed(sorted(names.values()), spaced=True)}; wait until they are settled, or "
            "use force=True to take them away"
        )


def _check_endless(connection: Connection, queue: QueueInfo) -> None:
    """Raise `BadOption` for a replay or a clone, which have an end."""
    there = logs.cursors(connection, queue.id).values()
    if any(each.cursor_end or not (each.log_of or queue.detached_at) for each in there):
        raise BadOption(
            f"queue {queue.name!r} is a replay or a clone, which has an end; replay the queue again"
        )
