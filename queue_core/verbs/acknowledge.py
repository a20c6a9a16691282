"""Acknowledge: close the tickets of a consumer that it has finished.

Changes: the slices that those tickets still hold are deleted or, where messages are settled one by
one, left for the sweep. Guard: the consumer's epoch. Spark acknowledges late, more than once, and
the last batch only when the query is started again: a second time changes nothing. Crash before
the commit: the tickets are open, and the query acknowledges them when it is started again.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from queue_core.catalog import consumers
from queue_core.catalog.changes import Changes
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import slices
from queue_core.catalog.transact import transact
from queue_core.model import Consumer, QueueInfo


def acknowledge(
    catalog: Catalog,
    consumer: Consumer,
    upto: int,
    *,
    delete: bool,
    queues: Sequence[QueueInfo] | None = None,
    logged: int | None = None,
) -> int:
    """
    Close all tickets up to *upto*; return how many messages that deleted.

    *queues* are those of the messages, by default any: where none is bounded, no load waits for
    room. *logged* is the newest ticket that Spark has logged, by default *upto*; tickets up to it
    that the catalog has not fired are skipped, since the catalog was restored.
    """

    def work(connection: Connection) -> int:
        ids = [queue.id for queue in queues or ()]
        consumers.close_tickets(connection, consumer, upto, logged, ids)
        return _delete_held(connection, consumer, upto, queues) if delete else 0

    return transact(catalog, "acknowledge", work)


def _delete_held(
    connection: Connection, consumer: Consumer, upto: int, queues: Sequence[QueueInfo] | None
) -> int:
    mine = (slices.c.consumer_id == consumer.id) & (slices.c.ticket <= upto)
    held = fetch(connection, mine, lock="wait")
    changes = Changes(queues)
    for piece in held:
        changes.remove(piece, piece.rows, "deleted")
    changes.apply(connection)
    return sum(len(piece.rows) for piece in held)
