"""Recover: put back messages that were fired and never seen.

A query that dies after a firing, but before Spark has logged the offset, leaves a ticket without a
reference. Changes: if the ticket's consumer is dead, its slices are loaded again at their old
places, without counting a delivery, and the ticket is removed. Many messages come back in rounds,
each of which is whole in itself. Guard: only tickets that were never planned; a consumer that locks
its own row is not dead. Crash before a commit: nothing of its round was changed.

A firing in Python that cannot read its messages, because the storage is unavailable, recovers its
own ticket. Then the counters do not show the firing either. Guard: the turns of the shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    and_,
    delete,
    false,
    func,
    or_,
    select,
)

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.identity import clock
from queue_core.catalog.records import progress
from queue_core.catalog.slices import turns
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.tables import consumers, slices, tickets
from queue_core.catalog.transact import transact
from queue_core.values.model import Magazine, Ticket

#: The ticket with which a transaction reaches this number of messages is its last one.
ROUND_MESSAGES = 10_000
#: The most tickets of a transaction.
ROUND_TICKETS = 100


def recover(catalog: Catalog, dead_after: float = DEAD_AFTER_SECONDS) -> int:
    """Load the messages of dead consumers' unseen tickets again; return how many."""
    with catalog.read() as connection:
        if not connection.execute(_unseen(connection, dead_after).limit(1)).first():
            return 0
        rounds = _rounds(connection, dead_after)
    clock.check(catalog)
    recovered = 0
    for some in rounds:
        count = _recover_some(catalog, dead_after, some)
        progress.add(count)
        recovered += count
        if some is not rounds[-1]:
            catalog.give_way()
    return recovered


def _rounds(connection: Connection, dead_after: float) -> list[dict[int, list[int]]]:
    """Return the numbers of the unseen tickets of each round, by consumer; a ticket is not cut."""
    held = (slices.c.consumer_id == tickets.c.consumer_id) & (slices.c.ticket == tickets.c.number)
    messages = select(func.coalesce(func.sum(slices.c.count), 0)).where(held).scalar_subquery()
    query = _unseen(connection, dead_after).add_columns(messages)
    rounds: list[dict[int, list[int]]] = []
    left = 0
    for consumer_id, number, count in connection.execute(query).all():
        if left <= 0:
            rounds.append(defaultdict(list))
            left = ROUND_MESSAGES
        rounds[-1][consumer_id].append(number)
        left -= max(int(count), ROUND_MESSAGES // ROUND_TICKETS)
        progress.expect(int(count))
    return rounds


def _recover_some(catalog: Catalog, dead_after: float, some: Mapping[int, list[int]]) -> int:
    """Load the messages of some tickets again, if they are still unseen; return how many."""

    def work(connection: Connection) -> int:
        # A consumer that is at work locks its own row, and is not dead.
        these = _of(connection, tickets, some, "number")
        unseen = dialect.of(connection).skip_locked(
            _unseen(connection, dead_after).where(these), tickets, consumers
        )
        numbers: dict[int, list[int]] = defaultdict(list)
        for consumer_id, number in connection.execute(unseen):
            numbers[consumer_id].append(number)
        changes = Changes()
        recovered = 0
        for piece in fetch(connection, _of(connection, slices, numbers, "ticket"), lock="wait"):
            if piece.damaged:
                changes.leave_ticket(piece, piece.rows)
                continue
            changes.release(piece, piece.rows, deliveries=piece.deliveries - 1)
            changes.count(piece, reloaded=len(piece.rows))
            recovered += len(piece.rows)
        changes.apply(connection)
        connection.execute(delete(tickets).where(_of(connection, tickets, numbers, "number")))
        clock.confirm(connection)
        return recovered

    return transact(catalog, "recover", work)


def recover_ticket(catalog: Catalog, ticket: Ticket) -> int:
    """Load the messages of a ticket again that its own process could not read; return how many."""
    held = (
        slices.c.consumer_id == ticket.consumer.id,
        slices.c.ticket == ticket.number,
    )

    def work(connection: Connection) -> int:
        shards: dict[tuple[int, Magazine], set[int]] = defaultdict(set)
        for piece in fetch(connection, *held):
            shards[piece.queue_id, piece.magazine].add(piece.shard)
        for (queue_id, magazine), numbers in sorted(shards.items()):
            turns.lock(connection, [queue_id], magazine, numbers)
        changes, recovered = Changes(), 0
        for piece in fetch(connection, *held, lock="wait"):
            if piece.damaged:
                changes.leave_ticket(piece, piece.rows)
                continue
            before = piece.deliveries - 1
            # The time of the firing before this one is lost; without one, there was none.
            never = {} if before else {"fired_at": None}
            changes.release(piece, piece.rows, deliveries=before, **never)
            changes.unfire(piece, piece.rows)
            recovered += len(piece.rows)
        changes.apply(connection)
        return recovered

    return transact(catalog, "recover", work)


def _unseen(connection: Connection, dead_after: float) -> Select[tuple[int, int]]:
    """Select the unseen tickets of dead consumers."""
    dead = dialect.now() - int(dead_after * 1e6)
    return (
        select(tickets.c.consumer_id, tickets.c.number)
        .join(consumers, consumers.c.id == tickets.c.consumer_id)
        .where(
            tickets.c.planned_at.is_(None),
            # A browser's ticket holds no messages; it records where its consumer continues.
            tickets.c.browsed.is_(None),
            consumers.c.heartbeat_at < dead,
        )
    )


def _of(
    connection: Connection, table: Table, numbers: Mapping[int, list[int]], column: str
) -> ColumnElement[bool]:
    """Return the condition on rows of these tickets; *numbers* are theirs, by consumer."""
    return or_(
        false(),
        *(
            and_(
                table.c.consumer_id == consumer, dialect.of(connection).one_of(table.c[column], of)
            )
            for consumer, of in numbers.items()
        ),
    )
