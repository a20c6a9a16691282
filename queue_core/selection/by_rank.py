"""By rank: take the messages of a fair queue whose turn it is, from all shards.

The slices come in the order of their first ranks, page by page. The firing finds the level: the
rank up to which the slices have as many messages as it may take. Each slice gives its rows up to
the level. Messages without a rank come last; there are none, unless a person has changed the
catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog.slices import flows, shard_locks
from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.slices import ShardKey, first_by_rank
from queue_core.selection.fired import Choice
from queue_core.selection.quotas import MAX_SLICES, by_horizon, take_shares
from queue_core.selection.request import FireRequest
from queue_core.selection.shard_choice import Lock
from queue_core.values.plan import Taken, first_place, messages_in, share, take

#: Slices of the first page, and by which factor a page is larger than the one before.
PAGE = 64
_GROWTH = (2.0, 16.0)


def take_by_rank(connection: Connection, request: FireRequest, lock: Lock) -> Choice:
    """Take messages of one fair queue up to the limits; its turns are locked."""
    size = PAGE
    while True:
        size = min(size, MAX_SLICES)
        where = eligible(request)
        found = first_by_rank(connection, *where, size + 1, skip_locked=bool(lock))
        pieces, following = found[:size], found[size:]
        within = by_horizon([(piece, piece.rows) for piece in pieces], request)
        upto = following[0].rank if following else None
        taken, is_full = take_to_level(within, request.max_messages, request.max_bytes, upto)
        count = messages_in(taken)
        if is_full or not following or size == MAX_SLICES:
            break
        lacking = 1.25 * (request.max_messages or _GROWTH[1] * count) / max(count, 1)
        size = ceil(size * min(max(lacking, _GROWTH[0]), _GROWTH[1]))
    if not taken:
        return Choice(_without_rank(connection, request, lock))
    few = request.max_messages is None or count < request.max_messages
    return Choice(taken, full=request.max_bytes is not None and is_full and few)


def advance(connection: Connection, request: FireRequest, taken: Sequence[Taken]) -> None:
    """Note the highest rank that a firing has taken from each fair queue, once it is written."""
    highest: dict[int, int] = {}
    for piece, rows in taken:
        rank = piece.rank_of(rows.stop - 1)
        if rank is not None and piece.queue_id in request.terms.fair:
            highest[piece.queue_id] = max(highest.get(piece.queue_id, rank), rank)
    for queue_id, rank in sorted(highest.items()):
        if request.selection is not None and request.selection.conditions:
            # Not beyond messages that the conditions have left, or new ones would come after them.
            of_queue = replace(request, queue_ids=(queue_id,))
            first = first_by_rank(connection, *eligible(of_queue), 1)
            lowest = first[0].rank if first else None
            rank = rank if lowest is None else min(rank, lowest)
        flows.advance(connection, queue_id, rank)


def take_to_level(
    taken: Sequence[Taken],
    limit: int | None,
    max_bytes: int | None = None,
    upto: int | None = None,
) -> tuple[list[Taken], bool]:
    """
    Take the messages of the lowest ranks within limits, none of a rank above *upto*.

    All are of one queue. Returns them, and whether the limits allow no more. One message is taken
    even if it exceeds *max_bytes*. Of equal ranks, those of the first slices come first.
    """
    lines = _Lines(taken)
    top = lines.highest if upto is None else min(upto, lines.highest)

    def fits(level: int) -> bool:
        counts = lines.counts(level)
        few = limit is None or int(counts.sum()) <= limit
        return few and (max_bytes is None or float(counts @ lines.bytes) <= max_bytes)

    if not taken:
        return [], False
    if fits(top):
        return _parts(taken, lines.counts(top)), limit == int(lines.counts(top).sum())
    low, high = int(lines.ranks.min()) - 1, top
    # All up to *low* fits; what is up to *high* does not.
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    counts = lines.counts(low)
    left = lines.counts(high) - counts
    added = np.cumsum(left)
    room = np.iinfo(np.int64).max if limit is None else limit - int(counts.sum())
    more = np.minimum(left, np.maximum(room - (added - left), 0))
    if max_bytes is not None:
        sizes = np.where(lines.bytes > 0, lines.bytes, 1.0)
        bytes_left = max_bytes - float(counts @ lines.bytes)
        before = np.cumsum(more * sizes) - more * sizes
        more = np.minimum(more, np.maximum((bytes_left - before) // sizes, 0).astype(np.int64))
        if not counts.any() and not more.any():
            more[np.flatnonzero(left)[0]] = 1
    return _parts(taken, counts + more), True


class _Lines:
    """The ranks of rows of slices, as arrays."""

    def __init__(self, taken: Sequence[Taken]) -> None:
        self.ranks = np.array([p.rank_of(rows.start) or 0 for p, rows in taken], dtype=np.int64)
        self._paces = np.array([piece.rank_step or 0 for piece, _ in taken], dtype=np.int64)
        self._spans = np.array([rows.stop - rows.start for _, rows in taken], dtype=np.int64)
        self._gaps = [(at, r) for at, (_, r) in enumerate(taken) if r.bitmap is not None]
        self.bytes = np.array([p.bytes_of(rows) / max(len(rows), 1) for p, rows in taken])
        ends = self.ranks + self._paces * (self._spans - 1)
        self.highest = int(ends.max()) if len(taken) else 0

    def counts(self, level: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return how many rows of each slice have a rank up to a level."""
        paces = np.maximum(self._paces, 1)
        flat = np.where(self.ranks <= level, self._spans, 0)
        rows = np.clip((level - self.ranks) // paces + 1, 0, self._spans)
        counts = np.where(self._paces > 0, rows, flat)
        for at, those in self._gaps:
            if counts[at]:
                assert those.bitmap is not None
                counts[at] = those.bitmap.rank(those.start + int(counts[at]) - 1)
        return counts


def _parts(taken: Sequence[Taken], counts: Iterable[int]) -> list[Taken]:
    """Return the first rows of each slice; where the places of slices interleave, by place."""
    flat: dict[tuple[ShardKey, int | None], list[tuple[Taken, int]]] = {}
    first: list[Taken] = []
    for (piece, rows), count in zip(taken, map(int, counts), strict=True):
        if piece.rank_step or count == len(rows):
            if count:
                first.append((piece, rows.split(count)[0]))
        else:
            flat.setdefault((piece.shard_key, piece.rank), []).append(((piece, rows), count))
    for alike in flat.values():
        total = sum(count for _, count in alike)
        first += take(sorted((each for each, _ in alike), key=first_place), total)
    return [(piece, rows) for piece, rows in first if rows]


def _without_rank(connection: Connection, request: FireRequest, lock: Lock) -> list[Taken]:
    keys = shard_locks.backlog(connection, *request.where)
    shares = share(dict.fromkeys(keys, request.max_messages or 1), request.max_messages or 1)
    chosen = take_shares(connection, request, shares, lock)
    return [taken for key in sorted(chosen) for taken in chosen[key]]
