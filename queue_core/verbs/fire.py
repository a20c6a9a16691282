"""Fire: acquire the next eligible messages of main or the sideline.

Changes: the slices that are taken become the ticket's; one that a limit cuts through is split.
Guard: the consumer's epoch is checked, and one firing at a time takes from a shard, or a later
message could be fired before an earlier one. Firings pass over shards that others fire from, and
wait, for the length of a transaction, only when those are all there are.
The catalog alone says who holds what. Crash before the commit: nothing was fired.
Crash after it: the ticket holds its messages; the consumer finds it when it comes back, and when it
does not, the messages are given back if nobody has seen them (`recover`) or swept (`sweep`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import consumers, interests, waiters
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes
from queue_core.model import Consumer, State, Ticket
from queue_core.selection.acquire import acquire, anything
from queue_core.selection.candidates import find_candidates
from queue_core.selection.request import Candidates, FireRequest


def fire(
    catalog: Catalog,
    consumer: Consumer,
    wanted: FireRequest,
    *,
    seen: bool = True,
    waiter: int | None = None,
) -> Ticket | None:
    """
    Fire the next messages as one ticket; None when there are none.

    With *waiter*, the number under which the firing waits in line (`lines.LAST` if it does not
    yet), it is also None while others wait before it. *seen* False means that the messages are only
    planned: until `planned`, they can be given back.
    Nothing is fired from queues in which others go first (`interests`). Raises `ConsumerFenced`,
    `QueueDeactivated`, `QueueTaken`.
    """
    with catalog.read() as connection:
        open_to = interests.open_to(connection, consumer, wanted.queue_ids)
        wanted = replace(wanted, queue_ids=tuple(open_to))
        if not open_to or not anything(connection, wanted):
            return None
        if waiter is not None and waiters.ahead(connection, open_to[0], waiters.FIRE, waiter):
            return None
    while True:
        picked = find_candidates(catalog, wanted)
        if picked is not None and not len(picked.ids):
            return None
        take = partial(_take, consumer, wanted, picked, seen, waiter)
        # Nothing may mean that others fire from every shard: they may leave something. Who waits
        # for them holds no turns yet, which would come out of order.
        ticket = catalog.write(partial(take, "skip")) or catalog.write(partial(take, "wait"))
        faults.point("fire.committed")
        if ticket is not None or picked is None:
            return ticket
        # Others were faster, and have what was picked: look for more.


def _take(
    consumer: Consumer,
    wanted: FireRequest,
    picked: Candidates | None,
    seen: bool,
    waiter: int | None,
    lock: str,
    connection: Connection,
) -> Ticket | None:
    consumers.check(connection, consumer)
    taken = acquire(connection, wanted, lock, picked)
    if not taken:
        return None
    number, fired_at = consumers.new_ticket(connection, consumer, seen=seen)
    changes = Changes()
    for piece, rows in taken:
        changes.mark(
            piece,
            rows,
            state=int(State.FIRED),
            consumer_id=consumer.id,
            ticket=number,
            fired_at=fired_at,
            deliveries=piece.deliveries + 1,
        )
        changes.fire(piece, rows)
    changes.apply(connection)
    if waiter is not None and waiter != waiters.LAST:
        waiters.leave(connection, waiter)
    faults.point("fire.before_commit")
    messages = sum(len(rows) for _, rows in taken)
    return Ticket(consumer=consumer, number=number, fired_at=fired_at, messages=messages)
