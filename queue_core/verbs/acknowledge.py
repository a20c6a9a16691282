"""Acknowledge: a consumer is done with all its tickets up to one.

Changes: what those tickets still hold is deleted, or, where messages are settled one by one, left
for the sweep. Guard: the consumer's epoch. Spark says so late, more than once, and for the last
batch only when the query is started again: acknowledging twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import consumers
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import slices
from queue_core.model import Consumer, QueueInfo
from queue_core.rows import EMPTY


def acknowledge(
    catalog: Catalog,
    consumer: Consumer,
    upto: int,
    *,
    delete: bool,
    queues: Sequence[QueueInfo] | None = None,
) -> int:
    """
    Close all tickets up to *upto*; return how many messages that deleted.

    Those who wait for room in one of the *queues*, by default in any queue, are woken.
    """

    def work(connection: Connection) -> int:
        consumers.close_tickets(connection, consumer, upto)
        deleted = _delete_held(connection, consumer, upto, queues) if delete else 0
        faults.point("acknowledge.before_commit")
        return deleted

    deleted = catalog.write(work)
    faults.point("acknowledge.committed")
    return deleted


def _delete_held(
    connection: Connection, consumer: Consumer, upto: int, queues: Sequence[QueueInfo] | None
) -> int:
    changes = Changes(queues)
    deleted = 0
    held = (slices.c.consumer_id == consumer.id) & (slices.c.ticket <= upto)
    for piece in fetch(connection, held, lock="wait"):
        changes.keep(piece, EMPTY)
        changes.count(piece, deleted=len(piece.rows))
        deleted += len(piece.rows)
    changes.apply(connection)
    return deleted
