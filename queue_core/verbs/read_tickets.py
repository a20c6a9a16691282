"""Read tickets: plan how to read the messages of firings, as often as needed.

Changes: the tickets are marked as planned, after which they cannot be recovered as unseen; a
restarted consumer's tickets count another delivery (`abandon`). Guard: the tickets' rows. Crash
before the commit: the tickets are unseen. The same tickets give the same rows in the same order,
until they are settled, swept or abandoned. Tickets with messages of other queues are refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from queue_core.catalog import consumers, read_plans, whole_batches
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import fetch
from queue_core.catalog.tables import slices
from queue_core.model import QueueInfo, ReadPlan, TicketRange


def read_tickets(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    tickets: TicketRange,
    *,
    committed: int = 0,
) -> ReadPlan:
    """
    Mark tickets as planned, and return how to read their messages.

    *committed* is the newest ticket that Spark has committed. Raises `Unacknowledged` if it is to
    be acknowledged first, and `BadOption` if the tickets hold messages of other queues than
    *queues*.
    """

    def work(connection: Connection) -> None:
        consumer_id = tickets.consumer_id
        consumers.check_committed(connection, consumer_id, committed)
        whole_batches.check_held(connection, queues, tickets)
        again = consumers.mark_planned(connection, consumer_id, tickets.after, tickets.upto)
        if again:
            # Not at the top: a query's start does not wait for this.
            from queue_core.verbs.abandon import deliver_again

            deliver_again(connection, queues, consumer_id, again)

    # Not `transact`: the crash points `source.planning` and `source.planned` are around the call.
    catalog.write(work)
    # In a transaction of its own, which sees one state: nothing is settled in the middle of it.
    with catalog.read() as connection:
        return plan_tickets(connection, storage_uri, queues, tickets)


def plan_tickets(
    connection: Connection, storage_uri: str, queues: Sequence[QueueInfo], tickets: TicketRange
) -> ReadPlan:
    """Return how to read the messages of tickets, within a transaction; mark nothing."""
    found = fetch(
        connection,
        slices.c.consumer_id == tickets.consumer_id,
        slices.c.ticket > tickets.after,
        slices.c.ticket <= tickets.upto,
    )
    return read_plans.build(connection, queues, [(s, s.rows) for s in found], storage_uri)
