"""Take in: make slices of what subscriptions have not taken from the logs that they read.

A firing that may take any message takes in what it needs itself. One that chooses or orders
messages, or ends at a moment, needs all of them as slices before it looks. Before each firing, a
subscription with a selector takes in as many as that needs, and passes by those without a match.

Changes: waiting slices at the tails of the subscriptions, and their cursors. Guard: the locks of
their shards, which firings and `trim` need too. Which messages match is decided outside of the
transaction. The decision holds for rows of the log that the transaction finds unchanged, if the
selector is still the same; other rows are decided again. Crash before the commit: the messages
are still in the log. Crash after it: they wait in the subscriptions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import amounts, intake, logs, shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.transact import Rounds
from queue_core.selection.request import FireRequest
from queue_core.values.model import QueueInfo, Slice, State
from queue_core.values.rows import EMPTY, Rows

#: The most slices that one transaction makes.
ROUND_SLICES = 1000
#: The most messages that are compared with a selector at a time.
ROUND_MESSAGES = 1_000_000


def take_in_for(catalog: Catalog, request: FireRequest, seconds: float | None = None) -> None:
    """
    Take in what a firing needs as slices. Raises `DamagedSegment`.

    *seconds*: the longest wait for a lock; then raises `StillLocked`.
    """
    if request.must_take_in:
        of = (catalog, request.storage, request.queue_ids, request)
        try:
            take_in(*of, seconds=seconds)
        except dialect.StillLocked:
            # At least from free shards: the firing also passes over those that others keep.
            take_in(*of, seconds=seconds, free=True)
            raise


def take_in(
    catalog: Catalog,
    storage: str,
    queue_ids: Collection[int],
    request: FireRequest | None = None,
    unread: Collection[int] = (),
    before: int | None = None,
    seconds: float | None = None,
    free: bool = False,
) -> int:
    """
    Take in all messages that wait in logs for some queues, in rounds; return how many.

    *storage*: its URI, to evaluate selectors. With a *request* that takes any messages, queues with
    a selector take in no more than it needs. *unread*: segments that cannot be read; all of their
    messages are taken in. *before*: only messages that were loaded before this time. *free*: only
    from free shards. Raises `DamagedSegment` for other segments, and as `take_in_for` does.
    """
    # No act counts these messages: they change only their place.
    rounds = Rounds(catalog, "take_in", noted=False, seconds=seconds)
    while True:
        with catalog.read() as connection:
            if not amounts.anything_logged(connection, queue_ids):
                return rounds.done
            found = queues.by_ids(connection, queue_ids)
        plain = {queue.id: queue for queue in found if queue.settings.selector is None}
        # If the settings of one change meanwhile, begin again: it may have a selector now.
        with suppress(queues.SettingsChanged):
            if plain:
                rounds.repeat(partial(_take_in, some=plain, before=before, free=free))
            break
    for queue in found:
        if queue.id not in plain:
            of_queue = request and replace(request, queue_ids=(queue.id,))
            while decided := decide(catalog, storage, queue.id, of_queue, unread, before):
                # After a change of the selector, decide again.
                with suppress(queues.SettingsChanged):
                    if not rounds.step(partial(_enter, decided=decided, free=free)) and free:
                        break
    return rounds.done


def _take_in(
    connection: Connection, some: Mapping[int, QueueInfo], before: int | None, *, free: bool
) -> int:
    backlog = (shard_locks.lock_free if free else shard_locks.lock)(connection, [*some])
    behind = _behind(connection, backlog, before)
    for queue_id in sorted({key[0] for key in behind}):
        queues.hold_settings(connection, some[queue_id])
    most = max(ROUND_SLICES // max(len(behind), 1), 1)
    changes, taken = Changes([]), 0
    for pieces in intake.behind(connection, backlog, behind, most).values():
        for piece in pieces:
            changes.enter(piece, piece.rows, state=int(State.LOADED))
            taken += len(piece.rows)
    changes.apply(connection)
    return taken


def _behind(
    connection: Connection, backlog: Mapping[ShardKey, shard_locks.Backlog], before: int | None
) -> dict[ShardKey, int]:
    """Return how many messages of each shard wait in a log, of those loaded *before* a time."""
    behind = {key: shard.behind for key, shard in backlog.items() if shard.behind}
    if before is None:
        return behind
    for key, count in behind.items():
        shard = backlog[key]
        within = (shard.cursor, shard.cursor + count)
        upto = logs.at_time(connection, shard.log_of, key[2], before, within)
        behind[key] = upto - shard.cursor
    return {key: count for key, count in behind.items() if count}


class _Decided(NamedTuple):
    """Which of the next messages of a log match the selector of a subscription."""

    queue: QueueInfo
    #: How many messages of each shard were looked at, and in how many slices at most.
    wanted: Mapping[ShardKey, int]
    most: int
    #: The slices, with the rows that match, by shard and offset.
    rows: Mapping[tuple[int, int], tuple[Slice, Rows]]


def decide(
    catalog: Catalog,
    storage: str,
    queue_id: int,
    request: FireRequest | None,
    unread: Collection[int],
    before: int | None = None,
) -> _Decided | None:
    """Return what to take in next; None if there is nothing, or a firing needs no more."""
    # Not at the top: they import what evaluates columns, and few subscriptions have a selector.
    from queue_core.selection.fifo_scan import decided_by_stats
    from queue_core.selection.scan import SliceScan
    from queue_core.selector.predicate import parsed_of_log

    with catalog.read() as connection:
        backlog = shard_locks.backlog(connection, [queue_id])
        behind = _behind(connection, backlog, before)
        if not behind or (request is not None and _is_enough(connection, request)):
            return None
        [queue] = queues.by_ids(connection, [queue_id])
        share = max(ROUND_MESSAGES // len(behind), 1)
        wanted = {key: min(count, share) for key, count in behind.items()}
        most = max(ROUND_SLICES // len(behind), 1)
        conditions = (parsed_of_log(queue.settings.selector or "true", queue.schema),)
        scan = SliceScan(connection, [queue], storage, 0)
        rows, unsure = {}, []
        for pieces in intake.behind(connection, backlog, wanted, most).values():
            for piece in pieces:
                known = piece.segment_id in unread or decided_by_stats(scan, piece, conditions)
                if known is None:
                    unsure.append((piece, piece.rows))
                rows[piece.shard, piece.position] = (piece, piece.rows if known else EMPTY)
        for piece, matching in scan.matching(unsure, conditions):
            rows[piece.shard, piece.position] = (piece, matching)
        return _Decided(queue, wanted, most, rows) if rows else None


def _is_enough(connection: Connection, request: FireRequest) -> bool:
    """Return whether as many messages wait in a subscription as a firing takes."""
    most = request.max_messages
    if most is None or request.must_see_all:
        return False
    where, given = eligible(request)
    return amounts.count_upto(connection, where, given, most).messages >= most


def _enter(connection: Connection, decided: _Decided, *, free: bool) -> int:
    backlog = (shard_locks.lock_free if free else shard_locks.lock)(connection, [decided.queue.id])
    queues.hold_settings(connection, decided.queue)
    changes, taken = Changes([]), 0
    # A shard is missing if others have locked it, or if the queue was dropped.
    wanted = {key: count for key, count in decided.wanted.items() if key in backlog}
    found = intake.behind(connection, backlog, wanted, decided.most)
    for key, pieces in found.items():
        for piece in pieces:
            before, rows = decided.rows.get((piece.shard, piece.position), (None, EMPTY))
            if piece != before:
                # Another intake came first, or the log was merged.
                break
            changes.enter(piece, rows, state=int(State.LOADED))
            changes.pass_by(key, len(piece.rows) - len(rows))
            taken += len(rows)
    changes.apply(connection)
    return taken
