"""Snapshot: the queued messages of some shards of main, for a policy.

It reads one state of the catalog and changes nothing. Before a load acts on it, `validate` checks
that the relevant part is unchanged.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.slices import read_plans, shard_locks
from queue_core.catalog.slices.conditions import in_queue, in_shards, in_state, unexpired
from queue_core.catalog.slices.slices import ShardKey, fetch
from queue_core.policies.inputs import BoundPolicy, Flags
from queue_core.segments.reader import read_columns
from queue_core.values.column_roles import expiring
from queue_core.values.ids import IdSet, first_id
from queue_core.values.model import Magazine, QueueInfo, Slice, State
from queue_core.values.plan import Taken
from queue_core.values.rows import Numbers


@dataclass(frozen=True, kw_only=True)
class QueuedMessages:
    """Messages of a snapshot in order of shards and places, without expired ones."""

    slices: tuple[Slice, ...]
    #: The load pointers of the shards, at that time.
    pointers: Mapping[ShardKey, int]
    #: For each message: the number of its slice, its row in the segment, and its shard.
    piece: Numbers
    row: Numbers
    shard: Numbers
    #: Which messages are in flight.
    retrieved: Flags
    #: How many waiting messages of the shard come after each message.
    waiting_after: Numbers
    #: The columns that were read.
    columns: pa.Table
    #: The time of the snapshot.
    now: int

    def physical_ids(self, messages: Numbers) -> Numbers:
        """Return the segment and row of some messages as one number each."""
        firsts = np.array([first_id(piece.segment_id) for piece in self.slices], np.int64)
        return firsts[self.piece[messages]] + self.row[messages]

    def rows_of(self, messages: Numbers) -> IdSet:
        """Return the rows of some messages, as ids."""
        return IdSet.of(self.physical_ids(messages))


def take_snapshot(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    shard_numbers: Collection[int],
    policy: BoundPolicy,
    columns: Sequence[str],
) -> QueuedMessages:
    """
    Read some columns of the queued messages of some shards that a policy may ask.

    It reads within a transaction. Raises `DamagedSegment`.
    """
    states = [State.LOADED, State.FIRED] if policy.asks_retrieved else [State.LOADED]
    pointers = shard_locks.load_pointers(connection, queue.id, shard_numbers)
    found = fetch(
        connection,
        *in_queue(queue.id, Magazine.MAIN),
        *in_state(*states),
        *in_shards(shard_numbers),
        *unexpired(queue, Magazine.MAIN),
    )
    expires = expiring(queue.settings, queue.schema)
    taken = [(piece, piece.rows) for piece in found]
    if policy.asks_last_only and expires is None:
        taken = _last_of_each_shard(found)
    plan = read_plans.build(connection, [queue], taken, storage_uri)
    now = dialect.read_clock(connection)
    read = dict.fromkeys([*columns, *([expires] if expires else [])])
    piece = np.repeat(np.arange(len(taken)), [len(rows) for _, rows in taken])
    parts = [rows.numbers().astype(np.int64) for _, rows in taken]
    row = np.concatenate(parts) if parts else np.empty(0, np.int64)
    of_slices = [(s.position - s.rows.start, s.shard, s.ticket is not None) for s, _ in taken]
    facts = np.array(of_slices, np.int64).reshape(-1, 3)[piece]
    order = _in_order(facts[:, 1], row + facts[:, 0])
    if order is not None:
        piece, row, facts = piece[order], row[order], facts[order]
    # Reading returns messages by shards and places too.
    messages = read_columns(plan, list(read))
    if expires is not None:
        valid = np.flatnonzero(are_valid(messages.column(expires), now))
        if len(valid) < len(row):
            piece, row, facts = piece[valid], row[valid], facts[valid]
            messages = messages.take(pa.array(valid))
    retrieved = facts[:, 2] != 0
    return QueuedMessages(
        slices=tuple(piece for piece, _ in taken),
        pointers=pointers,
        piece=piece,
        row=row,
        shard=facts[:, 1],
        retrieved=retrieved,
        waiting_after=_waiting_after(facts[:, 1], ~retrieved),
        columns=messages.select(list(columns)),
        now=now,
    )


def are_valid(times: pa.ChunkedArray, now: int) -> Flags:
    """Return which of some messages have not expired, by their times of expiry."""
    until = times.cast(pa.int64()).fill_null(np.iinfo(np.int64).max)
    valid: Flags = until.to_numpy() > now
    return valid


def _in_order(shard: Numbers, place: Numbers) -> Numbers | None:
    """Return the order by shards and places; None if the messages already have it."""
    same = np.diff(shard) == 0
    if ((np.diff(shard) >= 0) & (~same | (np.diff(place) > 0))).all():
        return None
    return np.lexsort((place, shard)).astype(np.int64)


def _waiting_after(shard: Numbers, waits: Flags) -> Numbers:
    """Return how many waiting messages of its shard come after each message."""
    upto = np.cumsum(waits)
    last = np.searchsorted(shard, shard, side="right") - 1
    after: Numbers = upto[last] - upto
    return after


def _last_of_each_shard(found: Sequence[Slice]) -> list[Taken]:
    last: dict[int, Slice] = {}
    for piece in found:
        if piece.shard not in last or piece.end > last[piece.shard].end:
            last[piece.shard] = piece
    return [
        (piece, piece.rows.between(piece.rows.stop - 1, piece.rows.stop))
        for _, piece in sorted(last.items())
    ]
