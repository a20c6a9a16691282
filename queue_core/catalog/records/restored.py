"""Report what a restored catalog has lost."""

from __future__ import annotations

import logging

from sqlalchemy import Connection, select

from queue_core.catalog.damage import decoding
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.tables import facts, publications
from queue_core.values.model import Batch, QueueInfo

#: The task name in the view of reports for all that a restore has undone.
RESTORE = "restore"
#: The fact that says when the catalog was restored, or adopted after a restore by other means.
RESTORED_AT = "restored_at"

#: The fact that changes whenever a catalog takes over a storage, as it must after each restore.
ADOPTED = "adopted"

_log = logging.getLogger(__name__)


def last_restore(connection: Connection) -> str | None:
    """Return when the catalog was last restored; None if it never was."""
    return _fact(connection, RESTORED_AT)


def generation(connection: Connection) -> str | None:
    """Return what changes with each `ignis adopt`; None before the first."""
    return _fact(connection, ADOPTED)


def _fact(connection: Connection, name: str) -> str | None:
    return connection.scalar(select(facts.c.value).where(facts.c.name == name))


def report_batches(connection: Connection, queue: QueueInfo, batch: Batch) -> None:
    """
    Report the batches of a query that were published after the backup, and are lost with it.

    They are the batches between the last one that the catalog has recorded and the first one after
    the restore.
    """
    restored_at = last_restore(connection)
    if restored_at is None:
        return
    row = connection.execute(
        select(publications.c.batch_id, publications.c.published_at).where(
            publications.c.queue_id == queue.id, publications.c.query_id == batch.query_id
        )
    ).first()
    with decoding(facts, f"name {RESTORED_AT!r}"):
        since = int(restored_at)
    if row is not None and row.published_at >= since:
        return
    first, last = 0 if row is None else row.batch_id + 1, batch.number - 1
    if first > last:
        return
    lost = f"batch {first}" if first == last else f"batches {first} to {last}"
    moves = Moves()
    moves.count(None, last - first + 1, f"{lost} of query {batch.query_id}", None)
    moves.record(connection, queue.id, RESTORE)
    _log.warning(
        "queue %r: the catalog was restored, and does not know %s of query %s; if they had rows, "
        "these are lost",
        queue.name,
        lost,
        batch.query_id,
    )
