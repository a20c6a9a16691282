"""Fair rules: which queues of a firing are fair, and what it notes for later loads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from queue_core.catalog.slices import lanes
from queue_core.catalog.slices.conditions import eligible_slices
from queue_core.catalog.slices.slices import lowest_rank
from queue_core.errors import BadOption
from queue_core.selection.request import FireRequest
from queue_core.values.model import GLOBAL, Magazine, QueueInfo
from queue_core.values.plan import Taken


def fair_queues(
    queues: Sequence[QueueInfo], magazine: Magazine, order_by: str | None, order: str
) -> frozenset[int]:
    """
    Return the ids of the queues that fire by turns; only in main.

    Raises `BadOption` for a firing with an order of its own.
    """
    if magazine is not Magazine.MAIN:
        return frozenset()
    fair = [queue for queue in queues if queue.settings.fair_by is not None]
    for queue in fair:
        if order_by is not None or order == GLOBAL:
            given = f"order_by={order_by!r}" if order_by is not None else f"order={order!r}"
            raise BadOption(
                f"{given} cannot be combined with fair_by={queue.settings.fair_by!r} of queue "
                f"{queue.name!r}, which says whose message is next; leave it out, or set fair_by "
                "to none"
            )
    return frozenset(queue.id for queue in fair)


def advance(connection: Connection, request: FireRequest, taken: Sequence[Taken]) -> None:
    """Note the highest rank that a firing has taken from each fair queue, once it is written."""
    highest: dict[int, int] = {}
    for piece, rows in taken:
        rank = piece.rank_of(rows.stop - 1)
        if rank is not None and piece.queue_id in request.fair:
            highest[piece.queue_id] = max(highest.get(piece.queue_id, rank), rank)
    for queue_id, rank in sorted(highest.items()):
        if request.selection is not None and request.selection.selector is not None:
            # Otherwise, all that the selector has left would come before later messages.
            of_queue = replace(request, queue_ids=(queue_id,))
            lowest = lowest_rank(connection, eligible_slices(connection, of_queue))
            rank = rank if lowest is None else min(rank, lowest)
        lanes.advance(connection, queue_id, rank)
