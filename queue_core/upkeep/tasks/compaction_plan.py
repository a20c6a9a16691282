"""Choose the slices that are worth compacting, and group them. Pure: touches no catalog.

It merges neighbours of one shard that differ only in their rows. No other message may be between
them, because it would have to be read between two rows of one segment. Only messages of about the
same age become one slice, because a slice expires with its oldest message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TypeAlias

from queue_core.catalog.slices import rewritable
from queue_core.catalog.slices.rewritable import Fullness
from queue_core.segments.rewriter import RewriteGroup
from queue_core.values.model import MAX_SEGMENT_ROWS, Slice
from queue_core.values.plan import interleaved, packed

#: Slices are merged if they were loaded within this part of the expiry time. A slice expires with
#: its oldest message. A slice that was merged twice may expire too early by twice this part.
AGE = 1 / 256
#: The most slices and bytes that are rewritten at a time: other transactions wait while the slices
#: are written, and the bytes are in memory.
UNIT_SLICES = 1 << 12
UNIT_BYTES = 32 << 20


#: The groups that are rewritten as one segment, in one transaction.
Unit: TypeAlias = "list[RewriteGroup]"
#: Slices whose places interleave.
Cluster: TypeAlias = "list[Slice]"

#: Slices, bytes and places.
_Size: TypeAlias = "tuple[int, ...]"
#: The most of each that one unit has.
UNIT_LIMITS: _Size = (UNIT_SLICES, UNIT_BYTES, MAX_SEGMENT_ROWS)


def units(
    pieces: Sequence[Slice],
    waiting: Collection[int],
    conditions: Mapping[int, Fullness],
    age: int | None = None,
) -> list[Unit]:
    """
    Return the units to rewrite in one magazine.

    *pieces* are all of its slices in order of shards and positions, *waiting* the ids of waiting
    slices, and *conditions* the conditions of their segments. If *age* is given, slices become one
    only if their oldest messages were loaded within *age* microseconds.
    """
    groups: list[RewriteGroup] = []
    for run in _runs(pieces, waiting, conditions, age):
        merged = [
            RewriteGroup(tuple(piece for cluster in clusters for piece in cluster))
            for aged in _aged(run, age)
            for clusters in packed(aged, _sizes(aged), UNIT_LIMITS)
        ]
        if _is_worth_it(merged, conditions):
            groups.extend(merged)
    sizes = [(len(group.pieces), group.bytes, group.span) for group in groups]
    return list(packed(groups, sizes, UNIT_LIMITS))


def _aged(run: Iterable[Cluster], age: int | None) -> Iterator[list[Cluster]]:
    """Yield neighbours of about the same age."""
    together: list[Cluster] = []
    oldest = youngest = 0
    for cluster in run:
        first, last = _loaded(cluster)
        oldest, youngest = min(oldest, first), max(youngest, last)
        if together and age is not None and youngest - oldest > age:
            yield together
            together = []
        if not together:
            oldest, youngest = first, last
        together.append(cluster)
    if together:
        yield together


def _loaded(cluster: Cluster) -> tuple[int, int]:
    """Return when the first and the last slice of a cluster were loaded."""
    times = [piece.loaded_at for piece in cluster]
    return min(times), max(times)


def _sizes(run: Sequence[Cluster]) -> Iterator[_Size]:
    """Return the sizes of consecutive clusters; a gap counts with the cluster after it."""
    before = run[0][0].position
    for cluster in run:
        end = max(piece.end for piece in cluster)
        yield len(cluster), sum(piece.bytes for piece in cluster), end - before
        before = end


def _runs(
    pieces: Iterable[Slice],
    waiting: Collection[int],
    conditions: Mapping[int, Fullness],
    age: int | None,
) -> Iterator[list[Cluster]]:
    """Yield neighbours that can be rewritten together."""

    def key(cluster: Cluster) -> tuple[object, ...] | None:
        first = cluster[0]
        same = _alike(first)
        for piece in cluster:
            if piece.id not in waiting or piece.bytes > UNIT_BYTES:
                return None
            if _alike(piece) != same:
                return None
            full = conditions[piece.segment_id]
            if full.bytes > rewritable.SMALL_BYTES and not _is_sparse(full):
                return None
        first_loaded, last_loaded = _loaded(cluster)
        if age is not None and last_loaded - first_loaded > age:
            return None
        return same

    for _, of_shard in groupby(pieces, key=lambda piece: piece.shard):
        for same, run in groupby(interleaved(list(of_shard)), key=key):
            if same is not None:
                yield list(run)


def _alike(piece: Slice) -> tuple[object, ...]:
    """Return the values that slices must share to become one."""
    # In a fair queue, one line of ranks cannot describe two slices, unless all ranks are the same.
    alone = piece.id if piece.rank_step else None
    fired = (piece.attempts, piece.deliveries, piece.fired_at, piece.lost, piece.lost_among)
    return *fired, piece.due_at, piece.rank, alone


def _is_worth_it(groups: Sequence[RewriteGroup], conditions: Mapping[int, Fullness]) -> bool:
    members = [piece for group in groups for piece in group.pieces]
    merges = len(members) - len(groups) >= rewritable.NEIGHBOURS - 1
    return merges or any(_is_sparse(conditions[p.segment_id]) for p in members)


def _is_sparse(full: Fullness) -> bool:
    """Return whether a segment is worth rewriting by itself: the messages left in it all wait."""
    return full.filed and full.waiting and full.alive * rewritable.SPARSE < full.bytes
