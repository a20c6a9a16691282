"""Rendezvous: a load of a queue that keeps no message waits until its messages are fired.

Changes: the first in line publishes its messages, one load at a time, and withdraws those that
nobody has fired when its time is up, in one transaction. Guard: the line, and for the withdrawal
the turns of the shards. Crash while it waits to be met: its messages are loaded, as after any load
of which the caller does not know, and the next in line does not wait for them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from sqlalchemy import Connection

from queue_core import faults
from queue_core.capacity.bounds import amount, full
from queue_core.capacity.wait_line import WaitLine
from queue_core.catalog import dialect, id_map, turns, usage, waiters
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes, fetch
from queue_core.catalog.tables import slices
from queue_core.errors import QueueFull
from queue_core.ids import IdSet, ids_from
from queue_core.model import Magazine, QueueInfo, Staged, State
from queue_core.plan import Taken


def meet(
    catalog: Catalog,
    queue: QueueInfo,
    staged: Sequence[Staged],
    publish: Callable[[int | None], list[int]],
    timeout: float | None,
) -> list[int]:
    """
    Publish, and wait until somebody has fired all of it; return what *publish* does.

    Raises `QueueFull` when nobody does within *timeout* seconds: what was not fired by then is
    withdrawn, and what was is with whoever fired it. With 0 seconds it is not even tried.
    """

    def look(connection: Connection) -> tuple[Hashable, bool]:
        usage.look(connection, queue)
        return None, True

    def met(connection: Connection) -> tuple[Hashable, bool]:
        left = sum(len(rows) for _, rows in _waiting(connection, queue, offered, None))
        return left, not left

    with WaitLine(catalog, queue, waiters.LOAD, timeout) as line:
        faults.point("load.waiting")
        if timeout != 0 and line.wait(look):
            first_ids = publish(line.waiter)
            faults.point("load.offered")
            offered = IdSet.of(ids_from(first_ids, staged))
            if line.wait(met, first=False):
                return first_ids
            withdrawn = catalog.write(lambda c: _withdraw(c, queue, offered))
            faults.point("load.withdrawn")
            if not withdrawn:
                return first_ids
            taken = len(offered) - withdrawn
        else:
            taken = 0
    with catalog.read() as connection:
        told = full(queue, usage.look(connection, queue), amount(staged))
    some = f"; {taken} of the messages were fired, and are loaded" if taken else ""
    raise QueueFull(told + some)


def _withdraw(connection: Connection, queue: QueueInfo, offered: IdSet) -> int:
    turns.lock(connection, [queue.id])
    changes = Changes()
    withdrawn = 0
    for piece, rows in _waiting(connection, queue, offered, "wait"):
        changes.remove(piece, rows, "dropped")
        withdrawn += len(rows)
    changes.apply(connection)
    faults.point("load.before_withdrawal")
    return withdrawn


def _waiting(
    connection: Connection, queue: QueueInfo, offered: IdSet, lock: str | None
) -> list[Taken]:
    """Those of the messages that nobody has fired, wherever compaction has put them."""
    now = id_map.located(connection, [queue.id], offered)
    found = fetch(
        connection,
        dialect.one_of(connection, slices.c.segment_id, now.segments),
        slices.c.queue_id == queue.id,
        slices.c.magazine == int(Magazine.MAIN),
        slices.c.state == int(State.LOADED),
        lock=lock,
    )
    taken = ((piece, piece.rows & now.rows(piece.segment_id)) for piece in found)
    return [(piece, rows) for piece, rows in taken if rows]
