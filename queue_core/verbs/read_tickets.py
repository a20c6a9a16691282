"""What tickets hold: how to read the messages of a firing, as often as it takes.

Changes nothing but a note that somebody has been shown the tickets, after which they can no longer
be given back unseen; but for a new life of the consumer, that is one delivery more (`abandon`). The
same tickets give the same rows in the same order, until they are settled, swept or abandoned.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from queue_core.catalog import consumers, read_plans
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import slices
from queue_core.model import QueueInfo, ReadPlan
from queue_core.verbs.abandon import show_again


def held(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    consumer_id: int,
    after: int,
    upto: int,
) -> ReadPlan:
    """How to read what the tickets *after* (exclusive) to *upto* (inclusive) of a consumer hold."""

    def work(connection: Connection) -> None:
        again = consumers.mark_planned(connection, consumer_id, after, upto)
        if again:
            show_again(connection, queues, consumer_id, again)

    catalog.write(work)
    # Afterwards, as one state: what is settled between two looks must not be seen in half.
    with catalog.read() as connection:
        return reading(connection, storage_uri, queues, consumer_id, after, upto)


def reading(
    connection: Connection,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    consumer_id: int,
    after: int,
    upto: int,
) -> ReadPlan:
    """The same within a reading transaction, without the note."""
    found = fetch(
        connection,
        slices.c.consumer_id == consumer_id,
        slices.c.ticket > after,
        slices.c.ticket <= upto,
    )
    return read_plans.build(connection, queues, [(s, s.rows) for s in found], storage_uri)
