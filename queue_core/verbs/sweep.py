"""Sweep: sideline messages that were fired too long ago and never finished.

Changes: fired slices become slices of the sideline, a batch in each transaction, and the shard's
sweep pointer moves past them. So an interrupted sweep continues where it stopped. It ends after one
round through all shards. Guard: the unacknowledged tickets of a living consumer are left alone. So
are those of a dead query that requests them again after its restart, unless the caller names the
query. Messages that the named query has published to this catalog are finished, and deleted. Slices
that others have locked are skipped, and loaded slices are not touched. With a leader, transactions
of other processes are refused. Crash before a commit: that batch is still fired.
Before the first batch, the messages of dead consumers count as lost (`lose`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import abandoned
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS, DELETES_ON_COMMIT, ack_of
from queue_core.catalog.identity import clock
from queue_core.catalog.queues import as_it_is
from queue_core.catalog.records import publications, task_log
from queue_core.catalog.slices import amounts, shard_rows, slice_batches
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import IN_FLIGHT, START, Position, Rules, before, in_queue
from queue_core.catalog.slices.sidelining import set_aside
from queue_core.catalog.slices.slice_batches import SliceBatch
from queue_core.catalog.transact import Guard, Rounds
from queue_core.selection.rounds import PART_MESSAGES, are_brief, whole_slices
from queue_core.values.failure_kinds import SWEPT
from queue_core.values.model import Magazine, QueueInfo
from queue_core.verbs.lose import lose

#: The most slices that one transaction of a sweep moves.
BATCH_SLICES = 1000
#: A transaction ends with the slice that reaches this number of messages: the reasons for their
#: failures are one row of the catalog, and are held in memory.
BATCH_MESSAGES = 100_000


class _Stretch(NamedTuple):
    """A part of a magazine, from one position (inclusive) to another (exclusive)."""

    magazine: Magazine
    begin: Position = START
    end: Position | None = None


def sweep(
    catalog: Catalog,
    queue: QueueInfo,
    older_than: float | None = None,
    dead_after: float = DEAD_AFTER_SECONDS,
    guard: Guard | None = None,
    consumer: str | None = None,
    *,
    by_hand: bool = False,
    limit: int | None = None,
) -> int:
    """
    Sideline messages that were fired more than *older_than* seconds ago; return how many.

    By default, the queue's settings give the age, which is higher for the sideline than for main.
    With *consumer*, only its messages are swept; by default, at any age. Those that its query has
    published to this store are deleted, and counted too. *by_hand*: smaller batches than those of
    the task, and brief ones if the context asks for them (`rounds.brief`). *limit*: the most
    messages; it ends before the slice that would exceed them. Raises `NotLeading` when *guard*
    does; messages that were swept by then stay swept.
    """
    clock.check(catalog)
    task_log.prepare()
    slices, messages = BATCH_SLICES, BATCH_MESSAGES
    if by_hand:
        slices, messages = min(whole_slices(), slices), min(PART_MESSAGES, messages)
    with catalog.read() as connection:
        # The leader may have read it long ago, with all others.
        queue = as_it_is(connection, queue)
        stuck = _stuck(queue, older_than, dead_after, consumer)
        dead = abandoned.dead_holders(connection, queue.id, dead_after, stuck[Magazine.MAIN])
    # Losses are counted first: after a batch, fewer messages would seem lost together. At most one
    # message of each consumer is sidelined for it.
    lost = sum(lose(catalog, consumer_id, dead_after, guard) for consumer_id in dead[:limit])
    left = None if limit is None else limit - lost
    rounds = Rounds(catalog, "sweep", guard, limit=left, late=are_brief())

    def work(
        connection: Connection, begin: Position, magazine: Magazine, where: Rules
    ) -> tuple[int, Position | None]:
        found = slice_batches.read_given(connection, where, slices + 1, begin, {})
        size = _batch_size(found, slices, messages, rounds.left)
        following = None
        if size < len(found):
            following = (int(found.shard[size]), int(found.position[size]))
        swept = _sweep_batch(connection, queue, found[:size], consumer)
        shard_rows.advance_sweep(connection, queue.id, magazine, begin, following)
        clock.confirm(connection)
        return swept, following if swept or following is None else begin

    for magazine, begin, end in _round(catalog, queue):
        upto = () if end is None else before(end)
        # Built once: this takes longer than to read a batch.
        where = (*in_queue(queue.id, magazine), *stuck[magazine], *upto)
        if not rounds.through(partial(work, magazine=magazine, where=where), begin):
            break
    return lost + rounds.done


def count(
    catalog: Catalog,
    queue: QueueInfo,
    older_than: float | None = None,
    dead_after: float = DEAD_AFTER_SECONDS,
    consumer: str | None = None,
) -> int:
    """Return how many messages `sweep` would move now with the same arguments."""
    stuck = _stuck(queue, older_than, dead_after, consumer)
    with catalog.read() as connection:
        return sum(
            amounts.messages(connection, *in_queue(queue.id, magazine), *stuck[magazine])
            for magazine in Magazine
        )


def _stuck(
    queue: QueueInfo, older_than: float | None, dead_after: float, consumer: str | None
) -> dict[Magazine, Rules]:
    """Return the conditions on stuck slices of each magazine."""
    main, sideline = queue.settings.sweep_after, queue.settings.sideline_sweep_after
    if older_than is not None or consumer is not None:
        main = sideline = older_than or 0.0
    if consumer is None:
        holder = abandoned.unattended(dead_after)
    else:
        holder = abandoned.of_dead(consumer, dead_after)
    return {
        # Without an age, even messages whose time of firing is in the future.
        magazine: (*IN_FLIGHT, *(abandoned.fired_before(age) if age > 0 else ()), *holder)
        for magazine, age in ((Magazine.MAIN, main), (Magazine.SIDELINE, sideline))
    }


def _round(catalog: Catalog, queue: QueueInfo) -> Iterator[_Stretch]:
    """Yield all magazines once, beginning where the last sweep was interrupted."""
    with catalog.read() as connection:
        interrupted = shard_rows.interrupted_sweep(connection, queue.id)
    if interrupted is None:
        yield from map(_Stretch, Magazine)
        return
    first, position = interrupted
    yield _Stretch(first, position)
    yield from (_Stretch(magazine) for magazine in Magazine if magazine > first)
    yield from (_Stretch(magazine) for magazine in Magazine if magazine < first)
    yield _Stretch(first, end=position)


def _sweep_batch(
    connection: Connection,
    queue: QueueInfo,
    batch: SliceBatch,
    consumer: str | None,
) -> int:
    """Delete the messages of a batch that *consumer* has published, and sideline the others."""
    published = _published(connection, consumer)
    done = (batch.ticket != slice_batches.NULL) & (batch.ticket <= published)
    changes = Changes([queue])
    changes.remove_all(batch[done], "deleted")
    set_aside(connection, queue, batch[~done], SWEPT, changes)
    return batch.messages


def _published(connection: Connection, consumer: str | None) -> int:
    """Return the newest ticket of a consumer whose messages its query has published here, or 0."""
    if consumer is None:
        return 0
    # A query that settles its messages one by one has not settled those that it still holds.
    deletes = ack_of(connection, consumer) == DELETES_ON_COMMIT
    return publications.newest_ticket(connection, consumer) or 0 if deletes else 0


def _batch_size(found: SliceBatch, slices: int, messages: int, left: int | None) -> int:
    """
    Return how many of the first slices make a batch; a slice is never split.

    At most *slices*; the one that reaches *messages* is the last; with *left*, none exceeds these.
    """
    sums = np.cumsum(found.count)
    size = min(int(np.searchsorted(sums, messages)) + 1, len(found), slices)
    return size if left is None else min(size, int(np.searchsorted(sums, left, "right")))
