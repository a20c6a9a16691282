"""What a catalog knows of its restore: its origin, and what it has lost."""

from __future__ import annotations

import logging
import uuid

from sqlalchemy import Connection, delete, insert, select

from queue_core.catalog import dialect
from queue_core.catalog.damage import decoding
from queue_core.catalog.holder_tables import leases, waiters
from queue_core.catalog.record_tables import publications
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.tables import IDS_OF, clocks, facts, locks
from queue_core.values.model import Batch, Place, QueueInfo
from queue_core.values.names import WRITER

#: The task name in the view of reports for all that a restore has undone.
RESTORE = "restore"
#: The fact that says when the catalog was restored, or adopted after a restore by other means.
RESTORED_AT = "restored_at"

#: The fact that names the store of the backup.
ORIGIN = "origin"

#: The fact that changes whenever a catalog takes over a storage, as it must after each restore.
ADOPTED = "adopted"

#: Facts that are not restored, because each catalog has its own.
_IDENTITY = ("store", "tokens", "place", "storage", ORIGIN, RESTORED_AT, ADOPTED)

_log = logging.getLogger(__name__)


def fact(connection: Connection, name: str) -> str | None:
    """Return a fact about the store; None if it is not known."""
    return connection.scalar(select(facts.c.value).where(facts.c.name == name))


def restored_at(connection: Connection) -> int | None:
    """Return when the catalog was restored or adopted, by its clock; None: never."""
    value = fact(connection, RESTORED_AT)
    with decoding(facts, f"name {RESTORED_AT!r}"):
        return None if value is None else int(value)


def take_identity(connection: Connection, store: str, origin: str) -> None:
    """Make a restored catalog that of a store; *origin* is the store of its backup."""
    connection.execute(delete(facts).where(facts.c.name.in_(_IDENTITY)))
    now = str(dialect.read_clock(connection))
    values = {"store": store, ORIGIN: origin, RESTORED_AT: now, ADOPTED: uuid.uuid4().hex}
    connection.execute(
        insert(facts), [{"name": name, "value": value} for name, value in values.items()]
    )


def forget_processes(connection: Connection, taken_at: int) -> None:
    """Remove the marks of the processes and the server when the backup was taken."""
    for table in (leases, waiters, clocks):
        connection.execute(delete(table))
    # Another server has timelines of its own.
    connection.execute(delete(locks).where(locks.c.name.startswith(IDS_OF)))
    seen = {"host": RESTORE, "catalog_at": taken_at}
    connection.execute(insert(clocks).values(seen | {"host_at": 0, "steady_at": 0}))


def report_batches(connection: Connection, queue: QueueInfo | Place, batch: Batch) -> None:
    """
    Report the batches of a query that were published after the backup, and are lost with it.

    They are the batches between the last one that the catalog has recorded and the first one after
    the restore. Without a record, they begin with batch 0, if they can have been here at all.
    """
    since = restored_at(connection)
    if since is None:
        return
    row = connection.execute(
        select(publications.c.batch_id, publications.c.published_at).where(
            publications.c.queue_id == queue.id, publications.c.query_id == batch.query_id
        )
    ).first()
    if row is not None and row.published_at >= since:
        return
    is_newer = isinstance(queue, QueueInfo) and queue.created_at >= since
    if row is None and (is_newer or batch.query_id.startswith(WRITER)):
        # Nothing was published before the restore, or the writer may begin with any number.
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
