"""Recover: put back messages that were fired and never seen.

A query that dies after a firing, but before Spark has logged the offset, leaves a ticket without a
reference. Changes: if the ticket's consumer is dead, its slices are loaded again at their old
places, without counting a delivery, and the ticket is removed. Many messages come back in rounds,
each of which is whole in itself. Guard: only tickets that were never planned; a consumer that locks
its own row is not dead. Crash before a commit: nothing of its round was changed.

A query that settles its messages one by one, and that nobody will start again, gives back all that
it holds, seen or not. Guard: a new life of its consumer, in which nobody fires or plans.

A firing in Python that cannot read its messages, because the storage is unavailable, recovers its
own ticket, and the counters then do not show the firing. If that fails, or if a firing fails while
it commits or is planned, the next firing of the process does so. It finds the ticket by its time
too, because its number may be that of another one. Guard: the locks of the shards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import partial

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, tickets
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.identity import clock
from queue_core.catalog.records import progress
from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import IN_FLIGHT, Rules, held_by, of_firing
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Rounds, transact
from queue_core.errors import CatalogUnavailable
from queue_core.values.model import Magazine, Ticket

#: A transaction ends with the ticket that reaches this number of messages.
ROUND_MESSAGES = 10_000
#: The most tickets of a transaction.
ROUND_TICKETS = 100


def recover(catalog: Catalog, dead_after: float = DEAD_AFTER_SECONDS) -> int:
    """Load the messages of dead consumers' unseen tickets again; return how many."""
    with catalog.read() as connection:
        parts = _parts(connection, dead_after)
    if not parts:
        return 0
    clock.check(catalog)
    rounds = Rounds(catalog, "recover")
    for part in parts:
        rounds.step(partial(_recover_some, dead_after=dead_after, some=part))
    return rounds.done


def _parts(connection: Connection, dead_after: float) -> list[dict[int, list[int]]]:
    """Return the numbers of the unseen tickets of each round, by consumer; a ticket is not cut."""
    parts: list[dict[int, list[int]]] = []
    left = 0
    for consumer_id, number, count in tickets.find(connection, dead_after):
        if left <= 0:
            parts.append(defaultdict(list))
            left = ROUND_MESSAGES
        parts[-1][consumer_id].append(number)
        left -= max(count, ROUND_MESSAGES // ROUND_TICKETS)
        progress.add(expected=count)
    return parts


def _recover_some(connection: Connection, dead_after: float, some: Mapping[int, list[int]]) -> int:
    """Load the messages of some tickets again, if they are still unseen; return how many."""
    numbers = tickets.lock(connection, dead_after, some)
    recovered = _put_back(connection, tickets.held_in(numbers), was_seen=True)
    tickets.remove(connection, numbers)
    clock.confirm(connection)
    return recovered


def give_back(catalog: Catalog, name: str) -> int:
    """
    Load again all messages of a consumer whose query settles them one by one, and end its life.

    They do not count as lost, because the query was not started again. Return how many.
    """

    def work(connection: Connection) -> int:
        life = consumers.enlist(connection, name, beats=True, ack=consumers.SETTLES)
        return _put_back(connection, (*held_by(life.id), *IN_FLIGHT), was_seen=True)

    return transact(catalog, "recover", work)


def recover_unread(catalog: Catalog) -> None:
    """Load again the messages of firings whose callers did not get them; see `Catalog.unread`."""
    while True:
        try:
            ticket = catalog.unread.pop()
        except IndexError:
            # Also if another thread was faster.
            return
        try:
            recover_ticket(catalog, ticket)
        except (CatalogUnavailable, KeyboardInterrupt):
            catalog.unread.append(ticket)
            raise


def recover_ticket(catalog: Catalog, ticket: Ticket) -> int:
    """Load again the messages of a ticket that its own process could not read; return how many."""
    held = of_firing(ticket)

    def work(connection: Connection) -> int:
        shards: dict[tuple[int, Magazine], set[int]] = defaultdict(set)
        for piece in fetch(connection, *held):
            shards[piece.queue_id, piece.magazine].add(piece.shard)
        for (queue_id, magazine), numbers in sorted(shards.items()):
            shard_locks.lock(connection, [queue_id], magazine, numbers)
        return _put_back(connection, held, was_seen=False)

    return transact(catalog, "recover", work)


def _put_back(connection: Connection, held: Rules, *, was_seen: bool) -> int:
    """
    Load slices of tickets again at their old places, without counting a delivery.

    *was_seen*: others may have seen the firing, so the counters must show it and its end. Return
    how many messages came back.
    """
    changes, recovered = Changes(), 0
    for piece in fetch(connection, *held, lock="wait"):
        if piece.damaged:
            changes.leave_ticket(piece, piece.rows)
            continue
        # Messages that were lost with an earlier life have no delivery.
        before = max(piece.deliveries - 1, 0)
        if was_seen:
            changes.reload(piece, piece.rows, deliveries=before)
        else:
            # The time of an earlier firing is not known any more. Without one, there is no time.
            never = {} if before else {"fired_at": None}
            changes.release(piece, piece.rows, deliveries=before, **never)
            changes.unfire(piece, piece.rows)
        recovered += len(piece.rows)
    changes.apply(connection)
    return recovered
