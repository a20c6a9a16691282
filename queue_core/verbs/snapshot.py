"""Snapshot: keep the state of a subscription, to go back to it.

Changes: a hidden queue, with copies of the subscription's slices, and its cursors. Messages in
flight wait in the copy. The log and the segments are kept for it. `trim` removes it at its end, and
`drop` with its subscription. Guard: the locks of the subscription's shards and slices. Crash before
the commit: there is no snapshot.
"""

from __future__ import annotations

from sqlalchemy import Connection

from queue_core.catalog import dialect, queue_changes
from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import copying, logs
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.values.model import Extent, QueueInfo
from queue_core.values.names import of_snapshot

#: For how many seconds a snapshot may be kept: 100 years.
LONGEST = 100 * 365 * 86_400


def snapshot(
    catalog: Catalog, queue: QueueInfo, name: str, keep: float, *, dry_run: bool = False
) -> Extent:
    """
    Keep the state of a subscription for some seconds; return how much it is.

    Raises `BadOption` for another queue, or for more than `LONGEST` seconds, `BadName` and
    `QueueExists`.
    """
    whole = of_snapshot(queue.name, name)
    if keep > LONGEST:
        raise BadOption(f"keep={keep} seconds: keep a snapshot for at most 100 years")
    if not queue.log_of:
        raise BadOption(f"queue {queue.name!r} is not a subscription, so it has no snapshots")

    def work(connection: Connection) -> Extent:
        held = copying.hold(connection, [queue.id])
        info = catalog_queues.present(connection, queue)
        cursors = logs.cursors(connection, info.id)
        extent = copying.measure(connection, held, cursors)
        if dry_run:
            queue_changes.check_new(connection, whole)
        else:
            of = {"snapshot_of": info.id, "detached_at": info.detached_at}
            of["ends_at"] = dialect.read_clock(connection) + int(keep * 1e6)
            made = queue_changes.subscribe(connection, whole, info, cursors, info.settings, **of)
            copying.copy(connection, held, info.id, made.id)
        return extent

    return transact(catalog, "snapshot", work, grows=True)
