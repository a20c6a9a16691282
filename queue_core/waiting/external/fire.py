"""Fire within the caller's transaction: a rollback puts the messages back, as if never fired.

Changes: those of a firing, and the caller's connection becomes a consumer. Guard: as for a firing.
Its locks last until the caller commits. It locks as few shards as it can: other firings take from
the other shards, and wait for these half a second (`verbs.fire`). With limits, it also locks the
buckets of the queue, and other firings find no message until then. Crash or rollback: nothing was
fired.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from weakref import WeakKeyDictionary

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.callers import CallersCatalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.slices import turns
from queue_core.errors import DamagedCatalog
from queue_core.segments.reader import read_table
from queue_core.selection.fired import Fired
from queue_core.selection.reading import Reading
from queue_core.selection.request import FireRequest
from queue_core.values.model import Consumer, QueueInfo
from queue_core.values.names import of_process
from queue_core.values.schema import output_schema
from queue_core.verbs.fire import fire as fire_ticket
from queue_core.verbs.read_tickets import plan_firing
from queue_core.waiting.firing import Firing, of_plan

#: Attempts to read while others remove what a selection is about to look at.
TRIES = 4

#: The consumers of this process that fire in transactions of callers, by connection or catalog.
_consumers: WeakKeyDictionary[object, Consumer] = WeakKeyDictionary()
# A forked child is another process.
os.register_at_fork(after_in_child=_consumers.clear)


def fire(
    catalog: CallersCatalog,
    storage_uri: str,
    queue: QueueInfo,
    request: FireRequest,
    consumer: Consumer | None,
) -> Firing:
    """Fire and read the next messages at once; raises as `verbs.fire` and `read_table` do."""
    reading = Reading(storage_uri, (queue,))
    consumer = consumer or catalog.write(lambda connection: _consumer(catalog, connection))
    for attempt in range(TRIES):
        try:
            fired = _fire(catalog, consumer, request, reading)
            break
        except DamagedCatalog:
            # Each statement of a selection sees a newer state, where slices or segments may be gone
            # that an earlier one has seen. Real damage stays.
            if attempt == TRIES - 1:
                raise
    ticket = fired.ticket
    if ticket is None:
        return Firing(None, output_schema(queue.schema).empty_table())
    plan = plan_firing(catalog, ticket, fired, reading)
    messages = read_table(plan)
    if request.selection is not None and request.selection.ordered:
        messages = request.selection.sorted(messages, ticket.fired_at)
    return of_plan(fired, messages, plan)


def _fire(
    catalog: CallersCatalog, consumer: Consumer, request: FireRequest, reading: Reading
) -> Fired:
    """
    Fire from one shard if that is enough, and wait for other firings only if there is no free one.

    The turn of a shard is locked until the caller commits. With those of all shards, this firing
    would keep every other one waiting.
    """
    with catalog.read() as connection:
        parallel = dialect.of(connection).writes_in_parallel and not request.terms.fair
        if parallel and request.selection is None and request.max_messages is not None:
            backlog = turns.backlog(connection, request.queue_ids, request.magazine)
            shards = [key[2] for key, shard in backlog.items() if shard.waiting > 0]
            # Transactions that begin at the same time take different ones.
            random.shuffle(shards)
            for shard in shards:
                of_one = replace(request, shards=(shard,))
                fired = fire_ticket(catalog, consumer, of_one, waits=False, reading=reading)
                if fired.ticket is not None:
                    return fired
    return fire_ticket(catalog, consumer, request, reading=reading)


def _consumer(catalog: CallersCatalog, connection: Connection) -> Consumer:
    """
    Return the consumer of the caller's connection, and make it if there is none.

    A firing locks its consumer until the commit. So the transactions of two connections need two.
    Where only one transaction writes at a time, the process has one.
    """
    parallel = dialect.of(connection).writes_in_parallel
    of = catalog.driver if parallel else catalog.own
    known = _consumers.get(of)
    # It was made in a transaction of the caller, who may have rolled back.
    if known is None or consumers.by_name(connection, known.name) != known:
        known = consumers.enlist(connection, f"python:{of_process()}", beats=False)
        _consumers[of] = known
    return known
