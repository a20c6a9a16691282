"""Abandon: sideline for good the messages that were fired too often (setting `max_deliveries`).

A message that kills its consumer each time never fails, and would be fired forever. Changes: loaded
slices of main, or slices of a ticket that is about to be handed to a restarted consumer, become
slices of the sideline, and shovels leave them there. Guard: the locks of their shards, or the
ticket. Crash before the commit: the slices are unchanged, and the next call abandons them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import SETTLES, ack_of
from queue_core.catalog.holders.tickets import held_in, trial
from queue_core.catalog.queues import as_it_is
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import eligible, overdelivered
from queue_core.catalog.slices.sidelining import set_aside
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Guard, Rounds
from queue_core.segments.storage import Storage
from queue_core.selection.acquire import acquire, anything
from queue_core.selection.request import FireRequest
from queue_core.values.failure_kinds import DELIVERIES
from queue_core.values.model import QueueInfo
from queue_core.verbs.lose import count_losses, first_half


def abandon(
    catalog: Catalog, queue: QueueInfo, guard: Guard | None = None, limit: int | None = None
) -> int:
    """
    Sideline loaded messages of main that were fired too often, at most *limit*; return how many.

    Raises `NotLeading` when *guard* does.
    """
    with catalog.read() as connection:
        # The leader may have read the queue long ago, together with all others.
        queue = as_it_is(connection, queue)
        request = FireRequest(queue_ids=(queue.id,), rules=overdelivered(queue))
        if not request.rules or not anything(connection, request):
            return 0

    # Wait only briefly for a lock in a leader, whose other tasks and queues wait for this one.
    seconds = None if guard is None else dialect.TASK_LOCK_SECONDS
    rounds = Rounds(catalog, "abandon", guard, limit=limit, seconds=seconds)

    def work(connection: Connection) -> int:
        taken = acquire(connection, replace(request, max_messages=rounds.left), "wait").taken
        return set_aside(connection, queue, SliceBatch.of(taken), DELIVERIES, Changes([queue]))

    with suppress(dialect.StillLocked):
        rounds.repeat(work)
    return rounds.done


def count(catalog: Catalog, queue: QueueInfo) -> int:
    """Return how many messages `abandon` would move now."""
    request = FireRequest(queue_ids=(queue.id,), rules=overdelivered(queue))
    if not request.rules:
        return 0
    with catalog.read() as connection:
        where, given = eligible(request)
        return amounts.messages(connection, *where, given=given)


def deliver_again(
    connection: Connection,
    queues: Sequence[QueueInfo],
    consumer_id: int,
    numbers: Sequence[int],
    storage: Storage,
) -> None:
    """
    Count another delivery for tickets that are handed to a restarted consumer.

    Messages that were delivered too often leave the tickets. If the consumer's messages are settled
    one by one, they count as lost instead, and half of them leave the tickets (`lose`). Suspects
    count only if the *storage* notes that an executor has read them. Runs within a transaction.
    """
    held = fetch(connection, *held_in({consumer_id: numbers}), lock="wait")
    if ack_of(connection, consumer_id) == SETTLES:
        fired = [piece for piece in held if not piece.damaged]
        before = trial(connection, fired, lives_ago=1)
        if before is not None and not storage.has_trial(before):
            return
        count_losses(connection, fired, first_half(fired))
        return
    for queue in queues:
        most = queue.settings.max_deliveries
        changes, spent = Changes([queue]), []
        for piece in (piece for piece in held if piece.queue_id == queue.id):
            if most is not None and piece.deliveries >= most:
                spent.append((piece, piece.rows))
            else:
                changes.mark(piece, piece.rows, deliveries=piece.deliveries + 1)
        set_aside(connection, queue, SliceBatch.of(spent), DELIVERIES, changes)
