"""Browse: show each message once, and take none.

A browser's ticket holds no slices. It records a window of places in each shard, from the end of the
browser's last ticket to the load pointer. The windows of shards that it does not show are empty:
they say where the browser continues in its other queues. Changes: only the ticket. Guard: the
consumer's epoch, and its row's lock. Crash before the commit: there is no ticket. The browser does
not see messages that are deleted after the ticket and before it is read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.holders.tickets import Window, new_ticket, of_tickets, packed
from queue_core.catalog.queues import states
from queue_core.catalog.slices import read_plans, replay_check
from queue_core.catalog.slices.conditions import SOUND, in_queues
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.slices.slices import ShardKey, fetch
from queue_core.selection.request import FireRequest
from queue_core.values.model import (
    Consumer,
    Magazine,
    QueueInfo,
    ReadPlan,
    Slice,
    Ticket,
    TicketRange,
)
from queue_core.values.plan import share
from queue_core.values.rows import Rows
from queue_core.verbs.take_in import take_in


def browse(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    window: Window | None = None,
) -> ReadPlan:
    """
    Return the plan to read a magazine or a window of it: loaded and fired messages.

    A subscription takes in what the log has for it (`take_in`).
    """
    subscriptions = [queue.id for queue in queues if queue.log_of]
    if subscriptions and magazine is Magazine.MAIN:
        take_in(catalog, storage_uri, subscriptions)
    with catalog.read() as connection:
        return browse_within(connection, storage_uri, queues, magazine, window)


def browse_within(
    connection: Connection,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    window: Window | None,
) -> ReadPlan:
    """Do the same as `browse`, within a transaction."""
    found = fetch(
        connection,
        *in_queues([queue.id for queue in queues], magazine),
        *SOUND,
    )
    shown = [(piece, _rows_within(piece, window)) for piece in found]
    return read_plans.build(
        connection, queues, [(piece, rows) for piece, rows in shown if rows], storage_uri
    )


def browse_next(
    catalog: Catalog,
    consumer: Consumer,
    request: FireRequest,
    seen: dict[ShardKey, int] | None = None,
) -> tuple[Ticket, Window] | None:
    """
    Return a ticket for places that the consumer has not seen; None if there are none.

    *seen*: where the last returned window of each shard ended; this function updates it. So if the
    answer to a commit was lost, the next ticket shows the places of that one again.
    """
    seen = {} if seen is None else seen
    if request.terms.logged:
        # Messages that a caller's transaction keeps locked come in a later window.
        with suppress(dialect.StillLocked):
            where = (request.storage, request.queue_ids)
            take_in(catalog, *where, seconds=dialect.TASK_LOCK_SECONDS)
    horizon = request.horizon or Horizon.now(catalog, request.queue_ids, request.magazine)

    def unseen(connection: Connection) -> tuple[Window, int]:
        """Return the next windows, and the number of their places."""
        noted = of_tickets(connection, TicketRange(consumer, 0, sys.maxsize))
        ends = {key: end for key, (_, end) in noted.items()}
        begins = dict.fromkeys(horizon.pointers, 0) | ends | seen
        left = {key: end - begins[key] for key, end in horizon.pointers.items()}
        places = sum(count for count in left.values() if count > 0)
        shares = share(left, min(request.max_messages or places, places))
        windows = {key: (begin, begin + shares.get(key, 0)) for key, begin in begins.items()}
        return windows, sum(shares.values())

    def work(connection: Connection) -> tuple[Ticket, Window]:
        consumers.check(connection, consumer, request.after, request.queue_ids)
        # Again, because the consumer may browse several queues at the same time.
        windows, count = unseen(connection)
        exist = {queue.id for queue in states(connection, {key[0] for key in windows})}
        text = packed({key: window for key, window in windows.items() if key[0] in exist})
        number, fired_at = new_ticket(connection, consumer, seen=False, browsed=text)
        ticket = Ticket(consumer=consumer, number=number, fired_at=fired_at, messages=count)
        return ticket, windows

    with catalog.read() as connection:
        windows, count = unseen(connection)
    if not count:
        return None
    seen |= {key: windows[key][0] for key in horizon.pointers}
    # Not `transact`: the crash points `source.before_fire` and `source.fired` are around the call.
    ticket, windows = catalog.write(work)
    seen |= {key: windows[key][1] for key in horizon.pointers}
    return ticket, windows


def browsed(
    catalog: Catalog,
    storage_uri: str,
    queues: Sequence[QueueInfo],
    magazine: Magazine,
    tickets: TicketRange,
    *,
    all_columns: bool = False,
) -> ReadPlan:
    """
    Return the plan to read the messages of a browser's tickets.

    Raises `ConsumerFenced`, and `BadOption` if the tickets also show other queues or another
    magazine; with *all_columns*, `SchemaMismatch` if messages can have values in columns that
    *queues* lack.
    """
    with catalog.read() as connection:
        consumers.check_life(connection, tickets.consumer)
        windows = of_tickets(connection, tickets)
        shown = [key for key, (begin, end) in windows.items() if begin < end]
        replay_check.check_browsed(connection, queues, magazine, shown, tickets)
        plan = browse_within(connection, storage_uri, queues, magazine, windows)
        if all_columns:
            ids = {queue.name: queue.id for queue in queues}
            written = ((ids[task.queue], task.segment.schema_version) for task in plan.tasks)
            replay_check.check_columns(connection, queues, written)
        return plan


def _rows_within(piece: Slice, window: Window | None) -> Rows:
    if window is None:
        return piece.rows
    start, stop = window.get(piece.shard_key, (0, 0))
    first = piece.rows.start - piece.position
    return piece.rows.between(max(start + first, 0), max(stop + first, 0))
