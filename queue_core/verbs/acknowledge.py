"""Acknowledge: close the finished tickets of a consumer.

Changes: the slices that these tickets still hold are deleted or, if messages are settled one by
one, left for the sweep. Guard: the consumer's epoch. Spark acknowledges late and more than once,
and the last batch only after a restart of the query; a second call changes nothing. Crash before
the commit: the tickets are open, and the query acknowledges them after its restart.

If the query's sink writes to the same catalog, only messages of tickets that it has recorded are
deleted. The others were published in a state of the catalog that a restore has undone, so their
messages are loaded again. So are messages that were fired before a restore if it is unknown where
their sink writes: delivered twice is better than lost. If messages are settled one by one, those
that were fired before a restore and are still held by a ticket are loaded again, because the
restore has undone their outcomes.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import check
from queue_core.catalog.holders.tickets import close_tickets
from queue_core.catalog.queues import by_id
from queue_core.catalog.records import publications
from queue_core.catalog.records.restored import RESTORE, restored_at
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import IN_FLIGHT, held_by
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import transact
from queue_core.values.failure_kinds import SWEPT
from queue_core.values.model import Consumer, QueueInfo, Slice
from queue_core.values.plan import Taken

_log = logging.getLogger(__name__)


def acknowledge(
    catalog: Catalog,
    consumer: Consumer,
    upto: int,
    *,
    delete: bool,
    settles: bool = False,
    queues: Sequence[QueueInfo] | None = None,
    logged: int | None = None,
) -> int:
    """
    Close all tickets up to *upto*; return how many messages were finished.

    With *delete*, it finishes their messages; with *settles*, the query's sink has settled them.
    *queues* are the queues that the consumer reads; by default, any. If none is bounded, no load
    waits for room in them. *logged* is the newest ticket that Spark has logged; by default, *upto*.
    Tickets up to it that the catalog has not fired are skipped, because the catalog was restored.
    """

    def work(connection: Connection) -> int:
        return acknowledge_within(
            connection, consumer, upto, queues, delete=delete, settles=settles, logged=logged
        )

    return transact(catalog, "acknowledge", work)


def acknowledge_within(
    connection: Connection,
    consumer: Consumer,
    upto: int,
    queues: Sequence[QueueInfo] | None,
    *,
    delete: bool,
    settles: bool = False,
    logged: int | None = None,
) -> int:
    """Do the same as `acknowledge`, within a transaction."""
    ids = [queue.id for queue in queues or ()]
    # Before the tickets are closed.
    doubted = publications.doubted_before(connection, consumer) if delete else None
    if settles:
        _load_unsettled(connection, consumer, upto)
    close_tickets(connection, consumer, upto, logged, ids)
    return _delete_held(connection, consumer, upto, queues, doubted) if delete else 0


def leave(
    connection: Connection, consumer: Consumer, upto: int, queues: Sequence[QueueInfo]
) -> None:
    """Finish tickets whose messages a sink has settled; sideline what it left, as a sweep does."""
    acknowledge_within(connection, consumer, upto, queues, delete=False, settles=True)
    # Not at the top: a query's start does not wait for what few queries use.
    from queue_core.catalog.slices.sidelining import set_aside

    left: dict[int, list[Taken]] = defaultdict(list)
    for piece in fetch(connection, *held_by(consumer.id, upto=upto), *IN_FLIGHT, lock="wait"):
        left[piece.queue_id].append((piece, piece.rows))
    for queue_id, taken in sorted(left.items()):
        queue = by_id(connection, queue_id)
        set_aside(connection, queue, SliceBatch.of(taken), SWEPT, Changes([queue]))


def _delete_held(
    connection: Connection,
    consumer: Consumer,
    upto: int,
    queues: Sequence[QueueInfo] | None,
    doubted: int | None,
) -> int:
    held = fetch(connection, *held_by(consumer.id, upto=upto), lock="wait")
    recorded = publications.newest_ticket(connection, consumer.name) if held else None
    known = {queue.id for queue in queues or ()}
    # A query that was restarted with other queues can still hold messages of the former ones.
    changes = Changes(queues if all(piece.queue_id in known for piece in held) else None)
    lost = []
    for piece in held:
        if recorded is not None:
            is_known = (piece.ticket or 0) <= recorded
        else:
            is_known = doubted is None or (piece.fired_at or 0) > doubted
        if is_known:
            changes.remove(piece, piece.rows, "deleted")
        else:
            lost.append(piece)
            changes.reload(piece, piece.rows)
    changes.apply(connection)
    if lost and recorded is not None:
        # Only once: if the query now has another sink, its tickets are no longer recorded here.
        publications.forget_tickets(connection, consumer)
    if lost:
        _report(connection, consumer, lost)
    return sum(len(piece.rows) for piece in held)


def _load_unsettled(connection: Connection, consumer: Consumer, upto: int) -> None:
    """Load again what was fired before a restore, and is not settled in the restored catalog."""
    since = restored_at(connection)
    if since is None:
        return
    held = held_by(consumer.id, after=check(connection, consumer).acknowledged, upto=upto)
    found = fetch(connection, *held, *IN_FLIGHT, lock="wait")
    lost = [piece for piece in found if (piece.fired_at or 0) <= since]
    changes = Changes()
    for piece in lost:
        changes.reload(piece, piece.rows)
    changes.apply(connection)
    if lost:
        _report(connection, consumer, lost)


def _report(connection: Connection, consumer: Consumer, lost: Sequence[Slice]) -> None:
    """Report messages that come again, because a restore may have lost their publication."""
    moves: dict[int, Moves] = {}
    for piece in lost:
        source = f"ticket {piece.ticket} of consumer {consumer.name!r}"
        target = piece.magazine.name.lower()
        moves.setdefault(piece.queue_id, Moves()).count(
            piece.shard, len(piece.rows), source, target
        )
    for queue_id, moved in sorted(moves.items()):
        moved.record(connection, queue_id, RESTORE)
    _log.warning(
        "consumer %r: Spark has committed batches up to ticket %s, and the catalog does not know "
        "that their sink published or settled them: it was restored, or the query has another sink "
        "now; their %s messages come again",
        consumer.name,
        max(piece.ticket or 0 for piece in lost),
        sum(len(piece.rows) for piece in lost),
    )
