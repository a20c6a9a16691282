"""Snapshot: keep the state of a subscription, to go back to it.

Changes: a hidden queue, with copies of the subscription's slices, and its cursors. What was in
flight waits in it. So the log, and the segments, are kept for it. `trim` removes it at its end, and
`drop` with its subscription. Guard: the locks of the subscription's shards and slices. Crash before
the commit: there is no snapshot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, select

from queue_core.catalog import dialect, queue_changes
from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import copying, logs
from queue_core.catalog.tables import queues, slices
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.values.model import Extent, QueueInfo
from queue_core.values.names import nearest, of_snapshot


def snapshot(
    catalog: Catalog, queue: QueueInfo, name: str, keep: float, *, dry_run: bool = False
) -> Extent:
    """
    Keep the state of a subscription for some seconds; return how much it is.

    Raises `BadOption` for another queue, `BadName` and `QueueExists`.
    """
    whole = of_snapshot(queue.name, name)

    def work(connection: Connection) -> Extent:
        held = copying.hold(connection, [queue.id])
        info = catalog_queues.present(connection, queue)
        if not info.log_of:
            raise BadOption(f"queue {info.name!r} is no subscription, so that it has no snapshots")
        cursors = logs.cursors(connection, info.id)
        extent = copying.measure(connection, held, cursors)
        if not dry_run:
            of = {"snapshot_of": info.id, "detached_at": info.detached_at}
            of["ends_at"] = dialect.read_clock(connection) + int(keep * 1e6)
            made = queue_changes.subscribe(connection, whole, info, cursors, info.settings, **of)
            copying.copy(connection, held, info.id, made.id)
        return extent

    return transact(catalog, "snapshot", work, grows=True)


def listed(connection: Connection, queue_id: int) -> Sequence[Row[Any]]:
    """Return the snapshots of a subscription, the oldest first."""
    messages = select(func.sum(slices.c.count)).where(slices.c.queue_id == queues.c.id)
    query = select(queues, func.coalesce(messages.scalar_subquery(), 0).label("messages"))
    mine = queues.c.snapshot_of == queue_id
    return connection.execute(query.where(mine).order_by(queues.c.created_at, queues.c.id)).all()


def name_of(row: Row[Any]) -> str:
    """Return the name of a snapshot."""
    return str(row.name.partition("@")[2])


def find(connection: Connection, queue: QueueInfo, name: str) -> Row[Any]:
    """Return the row of a snapshot; raises `BadOption`."""
    found = {name_of(row): row for row in listed(connection, queue.id)}
    if name not in found:
        raise BadOption(f"queue {queue.name!r} has no snapshot {name!r}{nearest(name, found)}")
    return found[name]


def ended(connection: Connection, queue_id: int) -> list[int]:
    """Return the snapshots of subscriptions to a queue whose time is over."""
    over = queues.c.ends_at.between(1, dialect.now())
    query = select(queues.c.id).where(queues.c.root_id == queue_id, queues.c.snapshot_of != 0, over)
    return list(connection.scalars(query))
