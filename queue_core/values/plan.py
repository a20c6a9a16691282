"""Pure decisions: how to share a limit, where to cut slices, how to read and partition them."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from math import ceil
from operator import sub
from typing import TypeVar

import numpy as np
import xxhash

from queue_core.values.ids import IdSet
from queue_core.values.model import Part, ScanTask, SegmentRef, Slice
from queue_core.values.rows import Rows

Name = TypeVar("Name", bound=Hashable)
Item = TypeVar("Item")
Ordered = TypeVar("Ordered", int, tuple[int, int, int], tuple[str, int])

#: A slice, and its rows that are taken.
Taken = tuple[Slice, Rows]

#: The golden ratio without its whole part, in 64 bits. The fractional parts of its multiples are
#: spread evenly from 0 to 1, however many they are.
_GOLDEN = 0x9E3779B97F4A7C15


def share(available: Mapping[Name, int], limit: int, turn: int = 0) -> dict[Name, int]:
    """
    Share *limit* among the names, as evenly as the available numbers allow.

    The remainder of the division goes to one name after another, beginning at *turn*, so that all
    get the same over many turns.
    """
    names = sorted((name for name in available if available[name] > 0), key=repr)
    names = names[turn % len(names) :] + names[: turn % len(names)] if names else []
    shares: dict[Name, int] = {}
    for name in sorted(names, key=available.__getitem__):
        if available[name] * (len(names) - len(shares)) > limit:
            break
        shares[name] = available[name]
        limit -= available[name]
    hungry = [name for name in names if name not in shares]
    for index, name in enumerate(hungry):
        shares[name] = limit // len(hungry) + (index < limit % len(hungry))
    return {name: shares[name] for name in names}


def in_proportion(
    available: Mapping[Ordered, int], limit: int, weights: Mapping[Ordered, int], turn: int
) -> dict[Ordered, int]:
    """
    Share *limit* among the names by their weights, as far as the available numbers allow.

    What a name cannot give is shared among the others. Each part is rounded up or down. Over many
    turns, the parts are exact, and each name gets something soon, however small its weight is.
    """
    names = sorted(name for name in available if available[name] > 0)
    total = sum(weights[name] for name in names)
    shares: dict[Ordered, int] = {}
    for name in sorted(names, key=lambda name: (available[name] << 64) // weights[name]):
        if available[name] * total > limit * weights[name]:
            break
        shares[name] = available[name]
        limit -= available[name]
        total -= weights[name]
    # The parts lie side by side on a line. Each gets as many messages as it has whole numbers.
    end = (turn * _GOLDEN % (1 << 64)) * total >> 64
    for name in names:
        if name not in shares:
            begin, end = end, end + limit * weights[name]
            shares[name] = end // total - begin // total
    return {name: shares[name] for name in names}


def in_turn(
    available: Mapping[Ordered, int], limit: int, turn: int, of_each: int = 1
) -> list[Ordered]:
    """
    Return the names from which *limit* is to be taken, in rotating order.

    They are enough to have *limit* together, if all names have it, and to give no more than
    *of_each* each, if each has that much. *turn* is how much was ever taken. If *of_each* is 1, the
    next turn begins after them. Otherwise, a round has as many turns as there are names, and each
    name comes first in one of them. A round can begin with any name: if it always began with the
    same, two callers with different limits could alternate so that some name never comes first.
    """
    names = sorted([name for name in available if available[name] > 0])
    if not names:
        return []
    if of_each == 1:
        start = turn
    else:
        rounds, place = divmod(turn // limit, len(names))
        start = place + xxhash.xxh3_64_intdigest(rounds.to_bytes(8, "big"))
    start %= len(names)
    names = names[start:] + names[:start]
    sums = accumulate(available[name] for name in names)
    enough = next((at for at, total in enumerate(sums, 1) if total >= limit), len(names))
    return names[: max(enough, ceil(limit / of_each))]


def having(slices: Iterable[Slice], rows: IdSet) -> list[Taken]:
    """Return those slices that have some of the rows, which are given as ids; each with its own."""
    taken = ((piece, piece.rows & rows.rows(piece.segment_id)) for piece in slices)
    return [(piece, its_rows) for piece, its_rows in taken if its_rows]


def take(taken: Sequence[Taken], limit: int | None) -> list[Taken]:
    """
    Take the first *limit* messages of one shard, in order of their places.

    *taken* is in order of `first_place`. The spans of its slices may interleave if messages in
    between were reloaded; interleaved slices are cut at one place.
    """
    if limit is None:
        return list(taken)
    first: list[Taken] = []
    for group in _together(taken):
        if limit <= 0:
            break
        first += _first(group, limit)
        limit -= messages_in(group)
    return first


def take_evenly(taken: Iterable[Taken], limit: int, turn: int = 0) -> list[Taken]:
    """Take the first messages of each shard, *limit* in all, as evenly as `share` does."""
    shards: dict[tuple[int, int, int], list[Taken]] = defaultdict(list)
    for piece, rows in taken:
        shards[piece.shard_key].append((piece, rows))
    sizes = {key: messages_in(here) for key, here in shards.items()}
    return [
        each
        for key, part in share(sizes, limit, turn).items()
        for each in take(sorted(shards[key], key=first_place), part)
    ]


def messages_in(taken: Iterable[Taken]) -> int:
    """Return how many messages are taken."""
    return sum(len(rows) for _, rows in taken)


def first_place(taken: Taken) -> int:
    """Return the place of the first row that is taken of a slice."""
    piece, rows = taken
    return piece.place_of(rows.start)


def before(taken: Sequence[Taken], end: int) -> list[Taken]:
    """Return the rows, of those taken from one shard, at places before *end*."""
    cut = [
        (piece, rows)
        if piece.place_of(rows.stop) <= end
        else (piece, rows.between(0, max(end - piece.place_of(0), 0)))
        for piece, rows in taken
    ]
    return [(piece, rows) for piece, rows in cut if rows]


def within_bytes(
    taken: Mapping[Name, Sequence[Taken]],
    limit: int,
    ranked: Collection[Name] = (),
    sharing: Callable[[Mapping[Name, int], int], Mapping[Name, int]] = share,
) -> dict[Name, list[Taken]]:
    """
    Return the first messages of each shard that fit into *limit* bytes in all.

    *sharing* shares the bytes among the shards.

    At least one message is taken, so that a message that is larger than the limit does not get
    stuck. *ranked* shards were already cut, by their own order, and stay as they are.
    """
    sizes = {name: _bytes(pieces) for name, pieces in taken.items()}
    whole = {name: list(pieces) for name, pieces in taken.items() if name in ranked}
    limit -= sum(sizes.pop(name) for name in whole)
    if not sizes or sum(sizes.values()) <= limit:
        return {name: list(pieces) for name, pieces in taken.items()}
    shares = sharing(sizes, max(limit, 0))
    fitting = {
        name: list(_fitting(taken[name], given)) for name, given in shares.items() if taken[name]
    }
    fitting = {name: pieces for name, pieces in fitting.items() if pieces}
    if not fitting:
        name = next(iter(shares))
        piece, rows = taken[name][0]
        fitting = {name: [(piece, rows.split(1)[0])]}
    return whole | fitting


def scan_tasks(
    held: Iterable[Taken], sources: Mapping[int, SegmentRef], queue: str, fired_at: int | None
) -> Iterator[ScanTask]:
    """Yield tasks that read slices of one queue, by shard and place, as fired at a time if any."""
    shards: dict[tuple[int, int], list[Taken]] = {}
    for piece, rows in held:
        shards.setdefault((piece.magazine, piece.shard), []).append((piece, rows))
    for magazine, shard in sorted(shards):
        for group in _together(sorted(shards[magazine, shard], key=first_place)):
            for stretch in _in_order_of_rows(group):
                yield _piece(stretch, sources[stretch[0][0].segment_id], queue, fired_at)


def _piece(stretch: Sequence[Taken], source: SegmentRef, queue: str, at: int | None) -> ScanTask:
    parts = tuple(Part(rows, s.attempts, s.fired_at if at is None else at) for s, rows in stretch)
    return ScanTask(
        queue=queue,
        shard=stretch[0][0].shard,
        segment=source.narrowed(
            min(part.rows.start for part in parts), max(part.rows.stop for part in parts)
        ),
        parts=parts,
        bytes=sum(s.bytes_of(rows) for s, rows in stretch),
    )


def _in_order_of_rows(group: Sequence[Taken]) -> Iterator[list[Taken]]:
    """
    Cut interleaved slices into stretches whose rows are in the order of their places.

    A stretch has one segment and one distance between rows and places; slices that were compacted
    at different times, or separately, have different distances.
    """
    distances = [(piece.segment_id, piece.place_of(0)) for piece, _ in group]
    if len(set(distances)) == 1:
        yield list(group)
        return
    places = np.concatenate(
        [rows.numbers().astype(np.int64) + piece.place_of(0) for piece, rows in group]
    )
    of = np.repeat(distances, [len(rows) for _, rows in group], axis=0)
    order = np.argsort(places)
    ends = np.flatnonzero(np.diff(of[order], axis=0).any(axis=1)) + 1
    begins = [*places[order][[0, *ends]].tolist(), int(places.max()) + 1]
    for begin, end in pairwise(begins):
        stretch = [
            (piece, rows.between(max(begin - piece.place_of(0), 0), end - piece.place_of(0)))
            for piece, rows in group
            if begin < piece.place_of(rows.stop) and piece.place_of(rows.start) < end
        ]
        yield [(piece, rows) for piece, rows in stretch if rows]


def partitions(sizes: Mapping[Name, int], count: int) -> list[list[Name]]:
    """Distribute shards to at most *count* partitions, the largest first to the emptiest."""
    bins = [(0, index) for index in range(max(1, min(count, len(sizes))))]
    spread: list[list[Name]] = [[] for _ in bins]
    for name in sorted(sizes, key=lambda name: (-sizes[name], repr(name))):
        filled, index = heapq.heappop(bins)
        spread[index].append(name)
        heapq.heappush(bins, (filled + sizes[name], index))
    return [names for names in spread if names]


def packed(
    items: Iterable[Item], sizes: Iterable[Sequence[int]], limits: Sequence[int]
) -> Iterator[list[Item]]:
    """Group items in order: as many together as all of their *sizes* allow, and at least one."""
    together: list[Item] = []
    room = tuple(limits)
    for item, size in zip(items, sizes, strict=True):
        left = tuple(map(sub, room, size))
        if together and min(left) < 0:
            yield together
            together, left = [], tuple(map(sub, limits, size))
        together.append(item)
        room = left
    if together:
        yield together


def interleaved(slices: Iterable[Slice]) -> Iterator[list[Slice]]:
    """Group neighbours whose spans of places overlap. Each other slice is its own group."""
    group: list[Slice] = []
    end = -1
    for piece in slices:
        if group and piece.position >= end:
            yield group
            group = []
        group.append(piece)
        end = max(end, piece.end) if len(group) > 1 else piece.end
    if group:
        yield group


def _together(taken: Sequence[Taken]) -> Iterator[list[Taken]]:
    """Group what is taken from slices as `interleaved` groups the slices."""
    if len(taken) == 1:
        yield [*taken]
        return
    rows = (its_rows for _, its_rows in taken)
    for slices in interleaved(piece for piece, _ in taken):
        yield [(piece, next(rows)) for piece in slices]


def _first(group: Sequence[Taken], count: int) -> list[Taken]:
    """Return the first *count* messages of interleaved slices, by place."""
    if count >= messages_in(group):
        return list(group)
    if len(group) == 1:
        ((piece, rows),) = group
        return [(piece, rows.split(count)[0])] if count else []
    places = np.concatenate(
        [rows.numbers().astype(np.int64) + piece.place_of(0) for piece, rows in group]
    )
    return before(group, int(np.partition(places, count)[count]))


def _fitting(taken: Sequence[Taken], limit: int) -> Iterator[Taken]:
    for group in _together(taken):
        size = _bytes(group)
        if size > limit:
            counts = range(messages_in(group))
            fits = bisect_right(counts, limit, key=lambda count: _bytes(_first(group, count))) - 1
            yield from _first(group, fits)
            return
        limit -= size
        yield from group


def _bytes(taken: Iterable[Taken]) -> int:
    return sum(piece.bytes_of(rows) for piece, rows in taken)
