"""Shovel: move sidelined messages back to main.

Changes: slices of the sideline become slices at the tail of main, with the time of the move. No
payload is read unless a selector needs it, and a message is always in exactly one magazine. Guard:
the locks of the sideline's shards, as in a firing. Only messages that were in the sideline at the
beginning are moved, so that a shovel ends even if they fail again at once. Messages for which a
bounded queue has no room stay. Many slices are moved in rounds, each of which is whole in itself.
Crash before a commit: the round's messages are still in the sideline.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.records import schedule, task_log
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.conditions import (
    READY,
    START,
    Position,
    eligible,
    movable,
    retriable,
)
from queue_core.catalog.slices.moves import SHOVELLED, carry_out
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.catalog.slices.slices import fetch_these
from queue_core.catalog.transact import Rounds
from queue_core.selection.acquire import ROUND_SLICES, take_batch
from queue_core.selection.candidates import find_candidates
from queue_core.selection.queue_rules import of_moving
from queue_core.selection.quotas import by_horizon
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.rounds import are_brief, in_parts, part_slices, still_there
from queue_core.selection.selection import Selection
from queue_core.values.limits import MANY
from queue_core.values.model import Magazine, QueueInfo
from queue_core.verbs.capacity.bounds import least, take_fitting

#: Seconds after which the task runs again, for messages that others have locked.
_LOCKED_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shovelful:
    """Which messages a shovel moves, and how fast."""

    #: The most messages; None: all.
    limit: int | None = None
    #: The most messages per second; None: no limit.
    rate: float | None = None
    #: Only messages that match.
    selection: Selection | None = None
    #: URI of the storage, in which it reads them; it can have credentials.
    storage: str = field(default="", repr=False)
    #: Also messages whose time has not come, as a person wants it.
    early: bool = True
    #: Also dead messages, and messages that were fired too often.
    force: bool = False
    #: The most slices of a round that moves them whole; None: as usual.
    round_slices: int | None = None
    #: Only from these shards; None: from all.
    shards: tuple[int, ...] | None = None

    @staticmethod
    def of(queue: QueueInfo, storage_uri: str, selector: str | None = None) -> Shovelful:
        """Return the shovelful of a queue's settings; raises `BadSelector`."""
        return Shovelful(
            limit=queue.settings.shovel_limit,
            rate=queue.settings.shovel_rate,
            selection=Selection.parse([queue], selector, eligibility=of_moving),
            storage=storage_uri,
        )

    @property
    def per_second(self) -> int | None:
        """The most messages of one round: those of one second at the rate; None: no limit."""
        return None if self.rate is None else max(int(self.rate), 1)

    def request(self, queue: QueueInfo) -> FireRequest:
        """Return the request for the messages."""
        rules = movable(queue) if self.force else retriable(queue)
        return FireRequest(
            queue_ids=(queue.id,),
            magazine=Magazine.SIDELINE,
            max_messages=self.limit and min(self.limit, MANY),
            selection=self.selection,
            rules=rules if self.force or self.early else (*rules, *READY),
            shards=self.shards,
            queues=(queue,),
            storage=self.storage,
        )


def shovel(catalog: Catalog, queue: QueueInfo, shovelful: Shovelful) -> int:
    """
    Move messages back to main, each shard in its order; return how many.

    If the catalog has parallel writers, the shards are divided among `shovel_concurrency` threads.
    A limit or a rate needs one count, and so one thread.
    """
    limit, rate = shovelful.limit, shovelful.rate
    request = shovelful.request(queue)
    most = min(shovelful.round_slices or ROUND_SLICES, ROUND_SLICES)
    threads = 1 if shovelful.shards is not None else workers(catalog, queue, shovelful)
    with catalog.read() as connection:
        horizon = Horizon.of(connection, request.queue_ids, Magazine.SIDELINE)
        request = replace(request, horizon=horizon)
        look = (most if threads > 1 else min(limit or 0, MANY)) + 1
        waiting = amounts.count_upto(connection, *eligible(request), look)
    if not waiting.slices:
        return 0
    task_log.prepare()
    candidates = find_candidates(catalog, request)
    request = replace(request, max_slices=part_slices())
    chosen = candidates is not None or shovelful.rate is not None or queue.settings.is_bounded
    whole = not chosen and (limit is None or waiting.messages <= limit)

    def move(request: FireRequest) -> int:
        # A task waits only briefly for a lock: other tasks and queues wait for it.
        seconds = None if shovelful.early else dialect.TASK_LOCK_SECONDS
        rounds = Rounds(
            catalog, "shovel", limit=limit, rate=rate, late=are_brief(), seconds=seconds
        )

        def move_part(connection: Connection) -> int:
            # At a rate, it may take hours, and a bound or expiry may change meanwhile.
            now = queues.as_it_is(connection, queue) if shovelful.rate is not None else queue
            part = replace(request, rules=shovelful.request(now).rules)
            most = least(rounds.left, shovelful.per_second)
            return move_some(connection, now, part, candidates, most) or 0

        try:
            if whole and _move_whole(rounds, queue, request, most):
                return rounds.done
            if candidates is not None and shovelful.rate is None:
                return _move_candidates(catalog, rounds, queue, request, candidates)
            rounds.repeat(move_part)
        except dialect.StillLocked:
            catalog.write(lambda c: schedule.hasten(c, queue.id, "shovel", _LOCKED_SECONDS))
        return rounds.done

    if threads == 1 or (whole and waiting.slices <= most):
        # One round, if they are moved whole: more threads would have more transactions.
        return move(request)
    parts = [
        replace(request, shards=tuple(range(n, queue.shards, threads))) for n in range(threads)
    ]
    with ThreadPoolExecutor(threads, "ignis-shovel") as pool:
        # The context has the listener of the progress.
        moves = [pool.submit(copy_context().run, move, part) for part in parts]
        return sum(each.result() for each in moves)


def move_some(
    connection: Connection,
    queue: QueueInfo,
    request: FireRequest,
    candidates: Candidates | None,
    most: int | None,
) -> int | None:
    """Move at most *most* messages; return how many, or None if main has no room for any."""
    taken = take_fitting(connection, queue, replace(request, max_messages=most), candidates)
    return None if taken is None else carry_out(connection, queue, SHOVELLED, taken)


def workers(catalog: Catalog, queue: QueueInfo, shovelful: Shovelful) -> int:
    """Return how many threads or processes can divide the shards of a shovel among them."""
    if shovelful.limit or shovelful.rate or not dialect.of(catalog.engine).writes_in_parallel:
        return 1
    return min(queue.settings.shovel_concurrency, queue.shards)


def _move_whole(rounds: Rounds, queue: QueueInfo, request: FireRequest, most: int) -> bool:
    """
    Move all messages as whole slices, at most *most* slices in a round.

    Return whether all were moved: with messages that came back meanwhile, they may be more than the
    limit allows.
    """
    limit = inf if rounds.left is None else rounds.left
    request = replace(request, max_messages=None, max_slices=None)

    def work(connection: Connection, begin: Position) -> tuple[int, Position | None]:
        batch, following = take_batch(connection, request, begin, most)
        batch = _before_horizon(connection, request, batch)
        if rounds.done + batch.messages > limit:
            return 0, begin
        return carry_out(connection, queue, SHOVELLED, [], batch), following

    return rounds.through(work, START)


def _move_candidates(
    catalog: Catalog,
    rounds: Rounds,
    queue: QueueInfo,
    request: FireRequest,
    candidates: Candidates,
) -> int:
    """Move the messages that a selector has found, part by part."""
    with catalog.read() as connection:
        found = still_there(connection, request, candidates.ids)
        parts = in_parts(connection, found, part_slices())
    for part in parts:
        step = replace(request, within=part.within, shards=part.shards)
        these = candidates._replace(ids=part.ids)
        rounds.step(
            lambda connection: move_some(connection, queue, step, these, rounds.left) or 0  # noqa: B023
        )
        if rounds.left == 0:
            break
    return rounds.done


def _before_horizon(connection: Connection, request: FireRequest, batch: SliceBatch) -> SliceBatch:
    """Return the slices of a batch before the horizon, with some of their rows where it cuts."""
    assert request.horizon is not None, "a shovel has one"
    pointers = np.zeros(len(batch), np.int64)
    for key, range in batch.by_shard():
        pointers[range] = request.horizon.pointers.get(key, 0)
    batch, pointers = batch[batch.position < pointers], pointers[batch.position < pointers]
    if (batch.end <= pointers).all():
        return batch
    pieces = fetch_these(connection, batch.id.tolist())
    return SliceBatch.of(by_horizon([(piece, piece.rows) for piece in pieces], request))
