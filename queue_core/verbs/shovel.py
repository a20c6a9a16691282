"""Shovel: sidelined messages go back to main.

Changes: slices of the sideline become slices of main, at its tail, stamped with the time. Guard: it
takes turns with those who fire from the sideline, and takes only what was there when it began, so
that it ends although what it brings back may fail again at once, and what a bounded queue has no
room for stays. No payload is read, unless a
selector asks for it, and there is no moment at which a message is in both magazines or in none.
Crash before the commit: all of the transaction's messages are in the sideline still.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from math import inf

from sqlalchemy import Connection

from queue_core import faults
from queue_core.capacity.bounds import limit_to_capacity, within_byte_limit
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import Changes
from queue_core.catalog.task_log import Moves
from queue_core.model import Magazine, QueueInfo
from queue_core.rows import EMPTY
from queue_core.selection.acquire import acquire, anything, horizon
from queue_core.selection.candidates import find_candidates
from queue_core.selection.conditions import retriable
from queue_core.selection.queue_rules import of_moving
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.selection import Selection


@dataclass(frozen=True, slots=True, kw_only=True)
class Shovelful:
    """What a shovel brings back, and how fast."""

    #: Messages at most; None: all.
    limit: int | None = None
    #: Messages a second at most; None: as fast as it goes.
    rate: float | None = None
    #: Only rows that a selector lets through.
    selection: Selection | None = None
    #: Also what has failed or been fired too often, or has not rested yet.
    force: bool = False

    @staticmethod
    def of(queue: QueueInfo, storage_uri: str, selector: str | None = None) -> Shovelful:
        """As the settings of a queue say: nothing that is expired. Raises `BadSelector`."""
        return Shovelful(
            limit=queue.settings.shovel_limit,
            rate=queue.settings.shovel_rate,
            selection=Selection.parse([queue], storage_uri, selector, eligibility=of_moving),
        )


def shovel(
    catalog: Catalog,
    queue: QueueInfo,
    what: Shovelful,
    pause: Callable[[float], object] = time.sleep,
) -> int:
    """
    Bring messages back, each shard in order; return how many were moved.

    Where neither a limit nor a rate asks for one count of all, and the catalog lets writers work
    side by side, the shards are dealt to threads, as many as `shovel_concurrency`.
    """
    wanted = FireRequest(
        queue_ids=(queue.id,),
        magazine=Magazine.SIDELINE,
        max_messages=what.limit,
        selection=what.selection,
        rules=() if what.force else retriable(queue),
    )
    with catalog.read() as connection:
        if not anything(connection, wanted):
            return 0
    wanted = replace(wanted, horizon=horizon(catalog, [queue.id], Magazine.SIDELINE))
    picked = find_candidates(catalog, wanted)
    threads = min(queue.settings.shovel_concurrency, queue.shards)
    if what.limit or what.rate or threads == 1 or not dialect.writes_in_parallel(catalog.engine):
        return _by_and_by(catalog, queue, wanted, picked, what.rate, pause)
    deals = [replace(wanted, shards=tuple(range(n, queue.shards, threads))) for n in range(threads)]
    with ThreadPoolExecutor(threads, "ignis-shovel") as pool:
        return sum(
            pool.map(lambda deal: _by_and_by(catalog, queue, deal, picked, None, pause), deals)
        )


def _by_and_by(
    catalog: Catalog,
    queue: QueueInfo,
    wanted: FireRequest,
    picked: Candidates | None,
    rate: float | None,
    pause: Callable[[float], object],
) -> int:
    """Transaction after transaction until nothing is left, each of at most a second's messages."""
    limit = inf if wanted.max_messages is None else wanted.max_messages
    second = inf if rate is None else max(int(rate), 1)
    moved = 0
    while moved < limit:
        most = min(limit - moved, second)
        step = _move(
            catalog,
            queue,
            replace(wanted, max_messages=None if most == inf else int(most)),
            picked,
        )
        if step == 0:
            break
        moved += step
        if rate is not None and moved < limit:
            pause(step / rate)
    return moved


def _move(
    catalog: Catalog, queue: QueueInfo, wanted: FireRequest, picked: Candidates | None
) -> int:
    def work(connection: Connection) -> int:
        room = limit_to_capacity(connection, queue, wanted)
        taken = [] if room is None else acquire(connection, room, "wait", picked)
        if room is not None and not within_byte_limit(room, taken):
            # A firing takes one message that is larger than its limit; a full queue does not.
            taken = []
        now = dialect.read_clock(connection)
        changes, moves = Changes(), Moves()
        for piece, rows in taken:
            changes.keep(piece, piece.rows - rows if rows is not piece.rows else EMPTY)
            changes.move(piece, rows, Magazine.MAIN, fired_at=now)
            changes.count(piece, shovelled=len(rows))
            changes.fire(piece, rows)
            moves.add(piece, len(rows), Magazine.MAIN)
        changes.apply(connection)
        moves.record(connection, queue.id, "shovel")
        faults.point("shovel.before_commit")
        return len(moves)

    moved = catalog.write(work)
    faults.point("shovel.committed")
    return moved
