"""Read tickets: plan how to read the messages of firings, as often as needed.

Changes: the tickets are marked as planned, after which they cannot be recovered as unseen; a
restarted consumer's tickets count another delivery, or are halved (`abandon`). Damaged messages
leave the tickets, unless their batch is already published: then Spark plans it only to commit it.
Guard: the consumer's epoch. Crash before the commit: the tickets are unseen. The same tickets give
the same rows in the same order, until they are settled, swept, quarantined or abandoned, and with
ack=settle until the next life. Tickets with messages of other queues, or with columns that the
reader does not know, are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.holders.tickets import mark_planned, trial
from queue_core.catalog.slices import read_plans, replay_check
from queue_core.catalog.slices.slices import fetch_of_tickets
from queue_core.selection.fired import Fired
from queue_core.selection.request import FireRequest
from queue_core.values.model import QueueInfo, ReadPlan, Ticket, TicketRange


def read_tickets(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    tickets: TicketRange,
    *,
    committed: int = 0,
    all_columns: bool = False,
) -> ReadPlan:
    """
    Mark tickets as planned, and return how to read their messages.

    *committed* is the newest ticket that Spark has committed. Raises `Unacknowledged` if it is to
    be acknowledged first, `ConsumerFenced`, and `BadOption` if the tickets hold messages of other
    queues than *queues*. With *all_columns*, raises `SchemaMismatch` if they can have values in
    other columns.
    """

    def work(connection: Connection) -> bool:
        consumers.check(connection, tickets.consumer, committed=committed)
        published = False
        if replay_check.check_held(connection, queues, tickets, all_columns=all_columns):
            # Not at the top: a query's start does not wait for this.
            from queue_core.verbs.quarantine import leave_tickets

            published = leave_tickets(connection, tickets) == 0
        again = mark_planned(connection, tickets)
        if again:
            # Not at the top: a query's start does not wait for this.
            from queue_core.segments.storage import Storage
            from queue_core.verbs.abandon import deliver_again

            deliver_again(connection, queues, tickets.consumer.id, again, Storage.open(storage_uri))
        return published

    # Not `transact`: the crash points `source.planning` and `source.planned` are around the call.
    published = catalog.write(work)
    # In a transaction of its own, which sees one state: nothing is settled in the middle of it.
    with catalog.read() as connection:
        held = fetch_of_tickets(connection, tickets)
        shown = [(p, p.rows) for p in held if not (published and p.damaged)]
        plan = read_plans.build(connection, queues, shown, storage_uri)
        return replace(plan, trial=trial(connection, held))


def plan_firing(catalog: Catalog, ticket: Ticket, fired: Fired, request: FireRequest) -> ReadPlan:
    """
    Return how to read the messages of a firing, as its own transaction has planned it if any.

    Damaged messages are planned too: the reader fails if it cannot read them.
    """
    if fired.plan is not None:
        return fired.plan
    with catalog.read() as connection:
        held = fetch_of_tickets(connection, TicketRange.of(ticket))
        taken = [(piece, piece.rows) for piece in held]
        return read_plans.build(connection, request.queues, taken, request.storage)
