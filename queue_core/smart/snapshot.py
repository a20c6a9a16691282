"""What is queued in some shards of main: the messages that new ones may have to do with.

Reads and changes nothing. It is one state of the catalog; whoever acts on it later looks whether
what matters of it is still so (`queue_core.smart.decide`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection, not_

from queue_core.catalog import dialect, read_plans, turns
from queue_core.catalog.slices import ShardKey, fetch
from queue_core.catalog.tables import slices
from queue_core.column_roles import expiring
from queue_core.ids import first_id
from queue_core.model import Magazine, QueueInfo, ReadPlan, Slice, State
from queue_core.plan import Taken
from queue_core.policies.inputs import BoundPolicy, Flags
from queue_core.rows import Numbers, Rows
from queue_core.segments.column_cache import read_columns
from queue_core.selection.conditions import expired


@dataclass(frozen=True, kw_only=True)
class Queued:
    """Messages in order of shards and places; what is expired is not among them."""

    slices: tuple[Slice, ...]
    #: The load pointers of the shards, at that time.
    pointers: Mapping[ShardKey, int]
    #: For each message: which of the slices it is in, its row there, and its shard.
    piece: Numbers
    row: Numbers
    shard: Numbers
    #: Which are in flight.
    retrieved: Flags
    #: How many that wait in the shard stand behind each.
    behind: Numbers
    #: Those of their columns that were asked for.
    columns: pa.Table

    def rows_of(self, messages: Numbers) -> dict[int, Rows]:
        """The rows that some of the messages are, by their segments."""
        segments = np.array([piece.segment_id for piece in self.slices], np.int64)
        segment, row = segments[self.piece[messages]], self.row[messages]
        return {
            int(number): Rows.of_numbers(row[segment == number]) for number in np.unique(segment)
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What was seen of some shards, and how to read it."""

    taken: tuple[Taken, ...]
    pointers: Mapping[ShardKey, int]
    plan: ReadPlan
    now: int


def take_snapshot(
    connection: Connection,
    storage_uri: str,
    queue: QueueInfo,
    shard_numbers: Collection[int],
    evaluation: BoundPolicy,
) -> Snapshot:
    """See what is queued in some shards, within a transaction."""
    states = [State.LOADED, State.FIRED] if evaluation.asks_retrieved else [State.LOADED]
    pointers = turns.load_pointers(connection, [queue.id], shard_numbers=shard_numbers)
    found = fetch(
        connection,
        slices.c.queue_id == queue.id,
        slices.c.magazine == int(Magazine.MAIN),
        slices.c.state.in_([int(state) for state in states]),
        dialect.one_of(connection, slices.c.shard, shard_numbers),
        *map(not_, expired(queue)),
    )
    taken = [(piece, piece.rows) for piece in found]
    if evaluation.asks_last_only and expiring(queue.settings, queue.schema) is None:
        taken = _last_of_each(found)
    return Snapshot(
        taken=tuple(taken),
        pointers=pointers,
        plan=read_plans.build(connection, [queue], taken, storage_uri),
        now=dialect.read_clock(connection),
    )


def read_queued(sight: Snapshot, queue: QueueInfo, columns: Sequence[str]) -> Queued:
    """The messages that were seen, with some of their columns. Raises `DamagedSegment`."""
    expires = expiring(queue.settings, queue.schema)
    wanted = dict.fromkeys([*columns, *([expires] if expires else [])])
    piece = np.repeat(np.arange(len(sight.taken)), [len(rows) for _, rows in sight.taken])
    parts = [rows.numbers().astype(np.int64) for _, rows in sight.taken]
    row = np.concatenate(parts) if parts else np.empty(0, np.int64)
    of_slices = [(s.position - s.rows.start, s.shard, s.ticket is not None) for s, _ in sight.taken]
    facts = np.array(of_slices, np.int64).reshape(-1, 3)[piece]
    order = _in_order(facts[:, 1], row + facts[:, 0])
    if order is not None:
        piece, row, facts = piece[order], row[order], facts[order]
    # A reading goes by shards and places too.
    messages = read_columns(sight.plan, list(wanted))
    fresh_ones = None
    if expires is not None:
        until = messages.column(expires).cast(pa.int64()).fill_null(np.iinfo(np.int64).max)
        fresh_ones = np.flatnonzero(until.to_numpy() > sight.now)
    if fresh_ones is not None and len(fresh_ones) < len(row):
        piece, row, facts = piece[fresh_ones], row[fresh_ones], facts[fresh_ones]
        messages = messages.take(pa.array(fresh_ones))
    retrieved = facts[:, 2] != 0
    return Queued(
        slices=tuple(piece for piece, _ in sight.taken),
        pointers=sight.pointers,
        piece=piece,
        row=row,
        shard=facts[:, 1],
        retrieved=retrieved,
        behind=_behind(facts[:, 1], ~retrieved),
        columns=messages.select(list(columns)),
    )


def _in_order(shard: Numbers, place: Numbers) -> Numbers | None:
    """The order by shards and places; None where it is so already."""
    same = np.diff(shard) == 0
    if ((np.diff(shard) >= 0) & (~same | (np.diff(place) > 0))).all():
        return None
    return np.lexsort((place, shard)).astype(np.int64)


def _behind(shard: Numbers, waits: Flags) -> Numbers:
    """For each, how many of its shard that wait come after it."""
    upto = np.cumsum(waits)
    last = np.searchsorted(shard, shard, side="right") - 1
    behind: Numbers = upto[last] - upto
    return behind


def _last_of_each(found: Sequence[Slice]) -> list[Taken]:
    """The last message of each shard."""
    last: dict[int, Slice] = {}
    for piece in found:
        if piece.shard not in last or piece.end > last[piece.shard].end:
            last[piece.shard] = piece
    return [
        (piece, piece.rows.between(piece.rows.stop - 1, piece.rows.stop))
        for _, piece in sorted(last.items())
    ]


def physical(slices_seen: Sequence[Slice], piece: Numbers, row: Numbers) -> Numbers:
    """A number for each row of a segment, by which rows of several slices can be told apart."""
    firsts = np.array([first_id(seen.segment_id) for seen in slices_seen], np.int64)
    return firsts[piece] + row
