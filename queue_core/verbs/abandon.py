"""Abandon: what has been handed out too often is set aside for good (setting `max_deliveries`).

A message that kills its consumer each time never fails, and would go on for ever. Changes: waiting
slices of main, or those of a ticket that is about to be shown to one life more of its consumer,
become slices of the sideline, where shovels leave them. Guard: the turns of their shards, or the
ticket. Crash before the commit: they are where they were, and are abandoned the next time.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from queue_core import faults
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import slices
from queue_core.failure_kinds import DELIVERIES
from queue_core.model import QueueInfo
from queue_core.selection.acquire import acquire, anything
from queue_core.selection.conditions import overdelivered
from queue_core.selection.request import FireRequest
from queue_core.verbs.sweep import Guard, put_aside


def abandon(catalog: Catalog, queue: QueueInfo, leads: Guard | None = None) -> int:
    """
    Set aside what waits in main and was fired too often; return how many messages.

    Raises `NotLeading` when *leads* does.
    """
    wanted = FireRequest(queue_ids=(queue.id,), rules=overdelivered(queue))
    if not wanted.rules:
        return 0
    with catalog.read() as connection:
        if not anything(connection, wanted):
            return 0

    def work(connection: Connection) -> int:
        if leads is not None:
            leads(connection)
        taken = acquire(connection, wanted, "wait")
        changes = Changes()
        for piece, rows in taken:
            changes.fire(piece, rows)
        moved = put_aside(connection, queue, taken, DELIVERIES, changes)
        faults.point("abandon.before_commit")
        return moved

    total = 0
    while moved := catalog.write(work):
        total += moved
        faults.point("abandon.committed")
    return total


def show_again(
    connection: Connection,
    queues: Sequence[QueueInfo],
    consumer_id: int,
    numbers: Sequence[int],
) -> None:
    """
    Tickets are shown to one life more of their consumer, which is one delivery more.

    What has had too many of them is taken from the tickets. Within a transaction.
    """
    held = fetch(
        connection,
        slices.c.consumer_id == consumer_id,
        dialect.one_of(connection, slices.c.ticket, numbers),
        lock="wait",
    )
    for queue in queues:
        most = queue.settings.max_deliveries
        changes, spent = Changes(), []
        for piece in (piece for piece in held if piece.queue_id == queue.id):
            if most is not None and piece.deliveries >= most:
                spent.append((piece, piece.rows))
            else:
                changes.mark(piece, piece.rows, deliveries=piece.deliveries + 1)
        put_aside(connection, queue, spent, DELIVERIES, changes)
