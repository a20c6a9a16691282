"""Expire: remove waiting messages whose time is over.

Changes: loaded rows of main are removed when they reach the age of the queue's setting
`message_expiry`, or the time in their own expiry column; those of the sideline, only when they
reach the age of `sideline_expiry`. Guard: the locks of their shards, as in a firing, and the row of
the queue, whose settings are still those by which the messages were found. Fired messages are left
alone, and expire if they are loaded again. Many slices are removed in rounds, each of which is
whole in itself. Crash before a commit: that round's messages still wait, and firings no longer take
them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.queues import SettingsChanged, as_it_is, hold_settings
from queue_core.catalog.records import figures, task_log
from queue_core.catalog.slices import amounts, id_map, parts, read_plans, shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import (
    START,
    WAITING,
    Position,
    expired,
    expiry_in,
    in_magazines,
    in_queue,
    of_compacted_segments,
)
from queue_core.catalog.slices.moves import EXPIRED, carry_out
from queue_core.catalog.slices.slices import fetch, fetch_these, first_loaded
from queue_core.catalog.transact import Rounds
from queue_core.segments.reader import read_table
from queue_core.selection.acquire import ROUND_SLICES, acquire, anything, take_batch
from queue_core.selection.candidates import find_candidates
from queue_core.selection.queue_rules import of_expiry
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.selection import Selection
from queue_core.values.model import Magazine, QueueInfo, Slice
from queue_core.values.plan import Taken
from queue_core.values.rows import Numbers, Rows
from queue_core.verbs.take_in import take_in

#: The most messages that one transaction removes.
BATCH = 100_000
#: How many slices of a large queue one search for old messages examines.
PART = 1 << 14


def expire(catalog: Catalog, storage_uri: str, queue: QueueInfo, *, in_parts: bool = False) -> int:
    """
    Remove the expired messages of a queue; return how many.

    With *in_parts*, as in the task, a call looks at a random part of a large queue for a message
    that is too old. If it finds one, it removes all that are too old. Those that others keep
    locked are left to the next call.

    Raises `DamagedSegment`, and `CatalogUnavailable` if the clock may have jumped.
    """
    clock.check(catalog)
    task_log.prepare()
    # A task waits only briefly for a lock: other tasks and queues wait for it.
    seconds = dialect.TASK_LOCK_SECONDS if in_parts else None
    rounds = Rounds(catalog, "expire", seconds=seconds)
    while True:
        with catalog.read() as connection:
            # A process that runs many tasks may have read the queue hours ago.
            queue = as_it_is(connection, queue)
        with suppress(SettingsChanged):
            with suppress(dialect.StillLocked):
                _take_in_old(catalog, storage_uri, queue, seconds)
            with suppress(dialect.StillLocked):
                _expire_by_column(catalog, rounds, storage_uri, queue)
            _expire_by_age(catalog, rounds, storage_uri, queue, in_parts=in_parts)
            return rounds.done


def _take_in_old(
    catalog: Catalog, storage_uri: str, queue: QueueInfo, seconds: float | None
) -> None:
    """Take in what a subscription has in its log that may have expired."""
    expiry = expiry_in(queue, Magazine.MAIN)
    if not queue.log_of or (expiry is None and not of_expiry(queue)):
        return
    # Expiry times in a column of the messages are unknown until the messages are taken in.
    before = None if of_expiry(queue) or expiry is None else catalog.now() - int(expiry * 1e6)
    take_in(catalog, storage_uri, [queue.id], before=before, seconds=seconds)


def expiring(connection: Connection, queues: Sequence[QueueInfo]) -> set[int]:
    """
    Return the ids of the queues that may have expired messages.

    These are all queues whose messages have their own times, those with a slice that is too old,
    and large ones whose messages expire, which `expire` looks at in parts. Queues with the same
    expiry share a statement.
    """
    found = {queue.id for queue in queues if of_expiry(queue)}
    ending = [queue for queue in queues if any(expired(queue, magazine) for magazine in Magazine)]
    if ending:
        found |= parts.large(connection, ending)
    ages = {
        queue.id: expiry_in(queue, Magazine.MAIN)
        for queue in queues
        if queue.log_of and queue.id not in found
    }
    for row in figures.read(connection, [id for id, expiry in ages.items() if expiry is not None]):
        if row.oldest_age is not None and row.oldest_age >= (ages[row.queue_id] or 0) * 1e6:
            found.add(row.queue_id)
    alike: dict[tuple[Magazine, float], list[QueueInfo]] = defaultdict(list)
    for queue in queues:
        for magazine in Magazine:
            expiry = expiry_in(queue, magazine)
            if expiry is not None and queue.id not in found:
                alike[magazine, expiry].append(queue)
    for (magazine, _), some in alike.items():
        old = (*in_magazines([magazine]), *WAITING, *expired(some[0], magazine))
        found |= amounts.queues_with(connection, [queue.id for queue in some], *old)
    return found


def _expire_by_column(catalog: Catalog, rounds: Rounds, storage_uri: str, queue: QueueInfo) -> None:
    """Remove the messages of main whose own expiry time has passed."""
    selection = Selection.parse([queue], eligibility=of_expiry)
    if selection is None:
        return
    request = FireRequest(
        queue_ids=(queue.id,),
        max_messages=BATCH,
        selection=selection,
        queues=(queue,),
        storage=storage_uri,
    )
    while (candidates := find_candidates(catalog, request)) is not None and len(candidates.ids):
        rounds.step(partial(_remove_found, queue=queue, request=request, candidates=candidates))


def _remove_found(
    connection: Connection, queue: QueueInfo, request: FireRequest, candidates: Candidates
) -> int:
    taken = acquire(connection, request, "wait", candidates).taken
    hold_settings(connection, queue)
    removed = carry_out(connection, queue, EXPIRED, taken)
    clock.confirm(connection)
    return removed


def _expire_by_age(
    catalog: Catalog, rounds: Rounds, storage_uri: str, queue: QueueInfo, *, in_parts: bool
) -> None:
    """Remove the messages that were loaded longer ago than their magazine's setting allows."""
    for magazine in Magazine:
        rules = expired(queue, magazine)
        if not rules:
            continue
        request = FireRequest(queue_ids=(queue.id,), magazine=magazine, rules=rules)
        with catalog.read() as connection:
            look = anything
            if in_parts and parts.large(connection, [queue]):
                look = partial(_any_in_part, queue=queue)
            if not look(connection, request):
                continue
        ages = read_ages(catalog, storage_uri, queue, request)
        work = partial(_remove_old, queue=queue, request=request, ages=ages, skips=in_parts)
        with suppress(dialect.StillLocked):
            rounds.through(work, START)


def _any_in_part(connection: Connection, request: FireRequest, queue: QueueInfo) -> bool:
    """Return whether a message is too old at the beginning of a shard, or in a part."""
    # Messages wait in the order of their loads, except for those that came back.
    shards = [(queue.id, int(request.magazine), shard) for shard in range(queue.shards)]
    oldest = first_loaded(connection, shards).get(queue.id)
    expiry = int((expiry_in(queue, request.magazine) or 0) * 1e6)
    before = dialect.read_clock(connection) - expiry
    if oldest is not None and oldest <= before:
        return True
    begin = parts.random_place(connection, queue, request.magazine)
    oldest = parts.oldest_from(connection, queue, request.magazine, begin, PART)
    return oldest is not None and oldest <= before


def _remove_old(
    connection: Connection,
    begin: Position,
    queue: QueueInfo,
    request: FireRequest,
    ages: Mapping[int, LoadTimes],
    skips: bool,
) -> tuple[int, Position | None]:
    """Remove old messages from *begin* on; return how many, and where the next round begins."""
    if skips:
        free = shard_locks.lock_free(connection, *request.where)
        request = replace(request, shards=tuple(shard for _, _, shard in free))
    batch, following = take_batch(connection, request, begin, ROUND_SLICES)
    hold_settings(connection, queue)
    expiry = int((expiry_in(queue, request.magazine) or 0) * 1e6)
    before = dialect.read_clock(connection) - expiry
    compacted = id_map.compacted(connection, np.unique(batch.segment_id).tolist())
    mixed = np.isin(batch.segment_id, list(compacted))
    changes = Changes([queue])
    old: list[Taken] = []
    for piece in fetch_these(connection, batch[mixed].id.tolist()):
        known = ages.get(piece.segment_id)
        if known is None or piece.rows - known.rows:
            # It was just compacted or loaded again: the next call handles it.
            continue
        old.append((piece, piece.rows & known.before(before)))
        younger = piece.rows - old[-1][1]
        if younger:
            changes.mark(piece, younger, loaded_at=known.oldest(younger))
    whole = batch[~mixed]
    removed = carry_out(connection, queue, EXPIRED, old, whole, changes=changes)
    clock.confirm(connection)
    return removed, following


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """
    The times of loading of some rows of a segment.

    A slice has one time of loading. A compacted slice has the time of its oldest message; the times
    of the others are read from the segment, before the transaction that needs them.
    """

    numbers: Numbers
    loaded_at: Numbers

    @property
    def rows(self) -> Rows:
        """The rows whose ages are known."""
        return Rows.of_numbers(self.numbers)

    def before(self, time: int) -> Rows:
        """Return the rows that were loaded by *time*."""
        return Rows.of_numbers(self.numbers[self.loaded_at <= time])

    def oldest(self, rows: Rows) -> int:
        """Return when the first of some of the rows was loaded."""
        return int(self.loaded_at[np.isin(self.numbers, rows.numbers())].min())


def read_ages(
    catalog: Catalog, storage_uri: str, queue: QueueInfo, request: FireRequest
) -> dict[int, LoadTimes]:
    """Return the ages of the compacted slices that meet a request's rules, by segment."""
    with catalog.read() as connection:
        found = fetch(
            connection,
            *in_queue(queue.id, request.magazine),
            *WAITING,
            *of_compacted_segments(queue.id),
            *request.rules,
        )
        by_segment: dict[int, list[Slice]] = {}
        for piece in found:
            by_segment.setdefault(piece.segment_id, []).append(piece)
        plans = {
            segment: read_plans.build(
                connection, [queue], [(s, s.rows) for s in pieces], storage_uri
            )
            for segment, pieces in by_segment.items()
        }
    ages = {}
    for segment, plan in plans.items():
        # A scan task yields its rows in ascending order, whatever the order of its parts.
        numbers = np.concatenate(
            [
                np.sort(np.concatenate([part.rows.numbers() for part in task.parts]))
                for task in plan.tasks
            ]
        )
        times = read_table(plan, ["_loaded_at"]).column("_loaded_at").cast("int64").to_numpy()
        ages[segment] = LoadTimes(numbers.astype(np.int64), times)
    return ages
