"""Shovel: move sidelined messages back to main.

Changes: slices of the sideline become slices at the tail of main, with the time of the move. No
payload is read unless a selector needs it, and a message is always in exactly one magazine. Guard:
the turns of the sideline's shards, as in a firing. Only messages that were in the sideline at the
beginning are moved, so that a shovel ends even if they fail again at once. Messages for which a
bounded queue has no room stay. Many slices are moved in rounds, each of which is whole in itself.
Crash before a commit: the round's messages are still in the sideline.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import progress, retries, task_log
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import amounts, bunches
from queue_core.catalog.slices.bunches import Bunch
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import (
    START,
    Position,
    Rules,
    eligible,
    movable,
    retriable,
)
from queue_core.catalog.slices.slices import fetch_these
from queue_core.catalog.transact import transact
from queue_core.selection.acquire import (
    ROUND_SLICES,
    acquire,
    by_shard,
    take_bunch,
)
from queue_core.selection.candidates import find_candidates
from queue_core.selection.queue_rules import of_moving
from queue_core.selection.request import Candidates, FireRequest, Horizon
from queue_core.selection.rounds import are_brief, in_parts, part_slices, still_there
from queue_core.selection.selection import Selection
from queue_core.selection.shares import by_horizon
from queue_core.values.model import Magazine, QueueInfo
from queue_core.values.plan import Taken
from queue_core.verbs.capacity.bounds import limit_to_capacity, within_byte_limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Shovelful:
    """Which messages a shovel moves, and how fast."""

    #: The most messages; None: all.
    limit: int | None = None
    #: The most messages per second; None: no limit.
    rate: float | None = None
    #: Only messages that match.
    selection: Selection | None = None
    #: Also messages whose time has not come, as a person wants it.
    early: bool = True
    #: Also dead messages, and messages that were fired too often.
    force: bool = False
    #: The most slices of a round that moves them whole; None: as usual.
    round_slices: int | None = None

    @staticmethod
    def of(queue: QueueInfo, storage_uri: str, selector: str | None = None) -> Shovelful:
        """Return the shovelful of a queue's settings; raises `BadSelector`."""
        return Shovelful(
            limit=queue.settings.shovel_limit,
            rate=queue.settings.shovel_rate,
            selection=Selection.parse([queue], storage_uri, selector, eligibility=of_moving),
        )


def shovel(
    catalog: Catalog,
    queue: QueueInfo,
    shovelful: Shovelful,
    pause: Callable[[float], object] = time.sleep,
) -> int:
    """
    Move messages back to main, each shard in its order; return how many.

    If the catalog has parallel writers, the shards are divided among `shovel_concurrency` threads.
    A limit or a rate needs one count, and so one thread.
    """
    request = FireRequest(
        queue_ids=(queue.id,),
        magazine=Magazine.SIDELINE,
        max_messages=shovelful.limit,
        selection=shovelful.selection,
        rules=_rules(queue, shovelful),
    )
    most = min(shovelful.round_slices or ROUND_SLICES, ROUND_SLICES)
    threads = _threads(catalog, queue, shovelful)
    with catalog.read() as connection:
        horizon = Horizon.of(connection, request.queue_ids, Magazine.SIDELINE)
        request = replace(request, horizon=horizon)
        look = (most if threads > 1 else shovelful.limit or 0) + 1
        waiting = amounts.count_upto(connection, *eligible(connection, request), look)
    if not waiting.slices:
        return 0
    task_log.prepare()
    candidates = find_candidates(catalog, request)
    all_fit = request.takes_all or waiting.messages <= (shovelful.limit or 0)
    chosen = candidates is not None or shovelful.rate is not None or queue.settings.is_bounded
    whole = all_fit and not chosen
    if threads == 1 or (whole and waiting.slices <= most):
        # One round, if they are moved whole: more threads would have more transactions.
        rate = shovelful.rate
        return _move_all(catalog, queue, request, candidates, rate, pause, most, whole=whole)
    parts = [
        replace(request, shards=tuple(range(n, queue.shards, threads))) for n in range(threads)
    ]
    with ThreadPoolExecutor(threads, "ignis-shovel") as pool:
        moves = [
            pool.submit(
                # Each thread tells its progress.
                copy_context().run,
                _move_all,
                catalog,
                queue,
                part,
                candidates,
                None,
                pause,
                most,
                whole=whole,
            )
            for part in parts
        ]
        return sum(move.result() for move in moves)


def _threads(catalog: Catalog, queue: QueueInfo, shovelful: Shovelful) -> int:
    if shovelful.limit or shovelful.rate or not dialect.of(catalog.engine).writes_in_parallel:
        return 1
    return min(queue.settings.shovel_concurrency, queue.shards)


def _rules(queue: QueueInfo, shovelful: Shovelful) -> Rules:
    if shovelful.force:
        return movable(queue)
    return retriable(queue) if shovelful.early else (*retriable(queue), retries.ready())


def _move_all(
    catalog: Catalog,
    queue: QueueInfo,
    request: FireRequest,
    candidates: Candidates | None,
    rate: float | None,
    pause: Callable[[float], object],
    most_slices: int,
    *,
    whole: bool,
) -> int:
    """
    Move until no message is left; each transaction moves at most one second's messages.

    *whole*: nothing chooses among the messages, so all of their slices are moved whole.
    """
    moved = 0
    if whole:
        moved, is_complete = _move_whole(catalog, queue, request, most_slices)
        if is_complete:
            return moved
    if candidates is not None and rate is None:
        return _move_candidates(catalog, queue, request, candidates)
    limit = inf if request.max_messages is None else request.max_messages
    second = inf if rate is None else max(int(rate), 1)
    while moved < limit:
        most = min(limit - moved, second)
        step = replace(request, max_messages=None if most == inf else int(most))
        count = _move(catalog, queue, step, candidates)
        if count == 0:
            break
        moved += count
        progress.add(count)
        catalog.give_way()
        if rate is not None and moved < limit:
            pause(count / rate)
    return moved


def _move_whole(
    catalog: Catalog, queue: QueueInfo, request: FireRequest, most: int
) -> tuple[int, bool]:
    """
    Move all messages, at most *most* slices in a round.

    Return how many messages were moved, and whether these are all: some may have been put back
    meanwhile, which are more than the limit allows.
    """
    limit = inf if request.max_messages is None else request.max_messages
    request = replace(request, max_messages=None)
    moved, begin = 0, START

    def work(connection: Connection) -> tuple[int, Position | None]:
        bunch, following = take_bunch(connection, request, begin, most)
        now = dialect.read_clock(connection)
        changes, moves = Changes([queue]), Moves()
        bunch, cut = _before_horizon(connection, request, bunch)
        if moved + bunch.messages + sum(len(rows) for _, rows in cut) > limit:
            return 0, begin
        for piece, rows in cut:
            changes.move(piece, rows, Magazine.MAIN, "shovelled", fired_at=now)
            moves.add(piece, len(rows), Magazine.MAIN)
        to = (Magazine.SIDELINE, Magazine.MAIN)
        moves.add_bunch(bunch, *to)
        # Packed before the first write, for which others may have to wait.
        moves.packed()
        bunches.move(connection, queue, bunch, to, "shovelled", changes, fired_at=now, now=now)
        changes.apply(connection)
        moves.record(connection, queue.id, "shovel", now)
        return len(moves), following

    while True:
        count, following = transact(catalog, "shovel", work, late=are_brief())
        moved += count
        progress.add(count)
        if following is None or following == begin:
            return moved, following is None
        begin = following
        catalog.give_way()


def _move_candidates(
    catalog: Catalog, queue: QueueInfo, request: FireRequest, candidates: Candidates
) -> int:
    """Move the messages that a selector has found, part by part."""
    with catalog.read() as connection:
        found = still_there(connection, request, candidates.ids)
        parts = in_parts(connection, found, part_slices())
    moved = 0
    for part in parts:
        step = replace(request, within=part.within, shards=part.shards)
        if request.max_messages is not None:
            step = replace(step, max_messages=request.max_messages - moved)
        count = _move(catalog, queue, step, candidates._replace(ids=part.ids))
        progress.add(count)
        moved += count
        if moved == request.max_messages:
            break
        catalog.give_way()
    return moved


def _before_horizon(
    connection: Connection, request: FireRequest, bunch: Bunch
) -> tuple[Bunch, list[Taken]]:
    """Return the slices of a bunch before the horizon; as objects, all if some are to be cut."""
    assert request.horizon is not None, "a shovel has one"
    pointers = np.zeros(len(bunch), np.int64)
    for shard, range in bunch.by_shard():
        key = (request.queue_ids[0], int(request.magazine), shard)
        pointers[range] = request.horizon.pointers.get(key, 0)
    bunch, pointers = bunch[bunch.position < pointers], pointers[bunch.position < pointers]
    if (bunch.end <= pointers).all():
        return bunch, []
    pieces = by_shard(fetch_these(connection, bunch.id.tolist()))
    cut = [
        taken
        for key, of_shard in pieces.items()
        for taken in by_horizon([(piece, piece.rows) for piece in of_shard], request, key)
    ]
    return bunch[:0], cut


def _move(
    catalog: Catalog, queue: QueueInfo, request: FireRequest, candidates: Candidates | None
) -> int:
    def work(connection: Connection) -> int:
        fitting = limit_to_capacity(connection, queue, request)
        if fitting is not None:
            fitting = replace(fitting, max_slices=part_slices())
        taken = [] if fitting is None else acquire(connection, fitting, "wait", candidates).taken
        if fitting is not None and not within_byte_limit(fitting, taken):
            # A firing takes one message that is larger than its limit; a full queue does not.
            taken = []
        now = dialect.read_clock(connection)
        changes, moves = Changes([queue]), Moves()
        for piece, rows in taken:
            changes.move(piece, rows, Magazine.MAIN, "shovelled", fired_at=now)
            moves.add(piece, len(rows), Magazine.MAIN)
        moves.packed()
        changes.apply(connection)
        moves.record(connection, queue.id, "shovel", now)
        return len(moves)

    return transact(catalog, "shovel", work, late=are_brief())
