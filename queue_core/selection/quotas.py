"""Quotas: how many messages of each queue and shard a firing takes, and take them.

If all queues have the weight 1, a firing takes evenly from all their shards, so a queue with more
shards has a larger share. Otherwise, the queues share the limit by the setting `weight`, and the
shards of a queue share its part evenly. A queue without messages leaves its part to the others.

A slice has one message or a million, so it is not known how many slices a share needs. The first
page has few slices of each shard, or as many as the slices of the last firing suggest. Each further
page has several times as many of the shards that need more. Each page begins at the head of its
shards again, so all messages of a shard come from one state of the catalog: none is left out
because it was reloaded between two pages.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from math import ceil, inf
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.shard_locks import place_in_turn
from queue_core.catalog.slices.slices import ShardKey, fetch_first
from queue_core.selection.request import FireRequest
from queue_core.values.model import Slice
from queue_core.values.plan import Taken, before, in_proportion, messages_in, share, take

#: The most slices of one firing. A driver has to plan and distribute them, and on SQLite, others
#: wait while they are fired, and again while they are settled.
MAX_SLICES = 1 << 13
#: The number of slices of each shard in the first page.
PAGE = 8
#: If the last firing is known, the most slices of a shard in the first page: at least the first
#: number; with few shards, a share of the second.
_LARGE_PAGE = 64
_LARGE_PAGE_OF_FEW = 1024
#: By which factor a page is larger than the one before, at least and at most.
_GROWTH = (2.0, 8.0)
#: The most queues and shards that are remembered.
_MOST = 8192

#: The mean number of messages of the slices that were found last, by where they were.
_found: WeakKeyDictionary[Engine, dict[Hashable, float]] = WeakKeyDictionary()


def shares_of_queues(
    request: FireRequest, available: Mapping[int, int], limit: int, turn: int = 0
) -> dict[int, int]:
    """Share *limit* among queues: by weight, or evenly from *turn* on."""
    if request.terms.weights:
        return in_proportion(available, limit, request.terms.weights, request.after)
    return share(available, limit, turn)


def bytes_of_queues(
    request: FireRequest, queue_ids: Sequence[int], max_bytes: int
) -> dict[int, int]:
    """Share bytes among queues that have some messages; each gets one byte at least."""
    parts = shares_of_queues(request, dict.fromkeys(queue_ids, max_bytes), max_bytes)
    return {queue_id: max(part, 1) for queue_id, part in parts.items()}


def shares(
    request: FireRequest,
    available: Mapping[ShardKey, int],
    limit: int,
    fired: Mapping[ShardKey, int] | None = None,
) -> dict[ShardKey, int]:
    """Share *limit* among shards; *fired* is how many messages were ever fired from each."""
    if len(available) == 1:
        # As in most firings of few messages.
        return {key: min(count, limit) for key, count in available.items() if count > 0}
    before = fired or {}
    if not request.terms.weights:
        turn = sum(before.get(key, 0) for key, count in available.items() if count)
        places = {place_in_turn(key): count for key, count in available.items()}
        return {place_in_turn(place): n for place, n in share(places, limit, turn).items()}
    of_queues: dict[int, dict[ShardKey, int]] = defaultdict(dict)
    for key, count in available.items():
        of_queues[key[0]][key] = count
    waiting = {queue_id: sum(counts.values()) for queue_id, counts in of_queues.items()}
    found: dict[ShardKey, int] = {}
    for queue_id, part in shares_of_queues(request, waiting, limit).items():
        turn = sum(before.get(key, 0) for key in of_queues[queue_id])
        found |= share(of_queues[queue_id], part, turn)
    return found


def take_shares(
    connection: Connection,
    request: FireRequest,
    shares: Mapping[ShardKey, int | None],
    lock: str | None,
    heads: Mapping[ShardKey, int] = {},
) -> dict[ShardKey, list[Taken]]:
    """
    Take a number of messages from each shard; None: all, or as many as the bytes allow.

    *heads*: the places before which nothing waits, if they are known.
    """
    most = most_slices(request, len(shares))
    # Each slice has at least one message.
    limits = {
        key: most if count is None else min(count, most)
        for key, count in shares.items()
        if count != 0
    }
    chosen: dict[ShardKey, list[Taken]] = {}
    # All messages need all pages.
    page = most if request.takes_all else PAGE
    sizes = _found.setdefault(connection.engine, {})
    # Slices of one shard may have other sizes than those of the next one.
    place = (request.queue_ids, request.magazine, next(iter(limits)) if len(limits) == 1 else None)
    if request.max_messages is not None and place in sizes:
        # One more, since the first slice of a shard may have been cut.
        wanted = max((count for count in shares.values() if count is not None), default=0)
        most_of_each = max(_LARGE_PAGE, _LARGE_PAGE_OF_FEW // max(len(shares), 1))
        page = min(ceil(wanted / sizes[place]) + 1, most_of_each)
    where, given = eligible(request)
    while limits:
        size = min(page, max(limits.values()))
        found = fetch_first(
            connection,
            where,
            given,
            shards=list(limits),
            limit=size + 1,
            skip_locked=lock is not None,
            heads=heads,
        )
        _note(sizes, place, found.values())
        growth = _GROWTH[0]
        for key, pieces in found.items():
            limit = min(limits[key], size)
            taken = _whole(pieces, limit, shares[key])
            ends = len(pieces) <= limit or limit == limits[key]
            if ends or _is_enough(taken, shares[key], request.max_bytes):
                chosen[key] = by_horizon(taken, request)
                del limits[key]
            else:
                growth = max(growth, _lacking(taken, shares[key]))
        page = ceil(size * min(growth, _GROWTH[1]))
    return chosen


def most_slices(request: FireRequest, shard_count: int) -> int:
    """Return the most slices of each of some shards that a firing takes."""
    return max((request.max_slices or MAX_SLICES) // max(shard_count, 1), 1)


def by_horizon(taken: Sequence[Taken], request: FireRequest) -> list[Taken]:
    """Return the rows before the request's horizon, which may cut a compacted slice."""
    if request.horizon is None:
        return list(taken)
    ends = request.horizon.pointers
    return [kept for each in taken for kept in before([each], ends.get(each[0].shard_key, 0))]


def cut_by_horizon(pieces: Sequence[Slice], request: FireRequest) -> list[Slice]:
    """Return the parts of slices before the request's horizon."""
    kept = by_horizon([(piece, piece.rows) for piece in pieces], request)
    return [piece.narrowed(rows) for piece, rows in kept]


def _note(sizes: dict[Hashable, float], place: Hashable, found: Iterable[Sequence[Slice]]) -> None:
    """Note how many messages the slices of a page have."""
    counts = [len(piece.rows) for pieces in found for piece in pieces]
    if counts:
        if len(sizes) >= _MOST and place not in sizes:
            sizes.clear()
        sizes[place] = sum(counts) / len(counts)


def _whole(pieces: Sequence[Slice], limit: int, count: int | None) -> list[Taken]:
    """Take the first messages of at most *limit* slices of a shard."""
    taken = take([(piece, piece.rows) for piece in pieces[:limit]], count)
    # Rows of the first slice that is left out may interleave with the taken rows.
    return before(taken, pieces[limit].position) if pieces[limit:] else taken


def _is_enough(taken: Sequence[Taken], count: int | None, max_bytes: int | None) -> bool:
    """Return whether more slices of the shard would change nothing."""
    if count is not None and messages_in(taken) >= count:
        return True
    # No shard gets more than all bytes.
    return max_bytes is not None and sum(p.bytes_of(rows) for p, rows in taken) > max_bytes


def _lacking(taken: Sequence[Taken], count: int | None) -> float:
    """Return how many times as many slices a share probably needs, with some to spare."""
    if count is None:
        return inf
    return 1.25 * count / max(messages_in(taken), 1)
