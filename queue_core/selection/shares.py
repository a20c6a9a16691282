"""Shares: take a number of messages from each of some shards, in pages of slices.

A slice has one message or a million, so it is not known how many slices a share needs. The first
page has few slices of each shard, and each further page several times as many of the shards that
need more. Each page begins at the head of its shards again, so all messages of a shard come from
one state of the catalog: none is left out because it was reloaded between two pages.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, inf

from sqlalchemy import Connection

from queue_core.catalog.slices import ShardKey, fetch_first
from queue_core.model import Slice
from queue_core.plan import Taken, before, take
from queue_core.selection.conditions import eligible_slices
from queue_core.selection.request import FireRequest

#: The most slices of one firing, because a driver has to plan and distribute them.
MAX_SLICES = 1 << 16
#: The number of slices of each shard in the first page.
PAGE = 8
#: By which factor a page is larger than the one before, at least and at most.
_GROWTH = (2.0, 8.0)


def take_shares(
    connection: Connection,
    request: FireRequest,
    shares: Mapping[ShardKey, int | None],
    lock: str | None,
) -> dict[ShardKey, list[Taken]]:
    """Take a number of messages from each shard; None: all, or as many as the bytes allow."""
    most = max((request.max_slices or MAX_SLICES) // max(len(shares), 1), 1)
    # Each slice has a message at least.
    limits = {
        key: most if count is None else min(count, most)
        for key, count in shares.items()
        if count != 0
    }
    chosen: dict[ShardKey, list[Taken]] = {}
    # All messages need all pages.
    page = PAGE if request.max_messages is not None or request.max_bytes is not None else most
    while limits:
        size = min(page, max(limits.values()))
        found = fetch_first(
            connection,
            *eligible_slices(connection, request),
            shards=list(limits),
            limit=size + 1,
            skip_locked=lock is not None,
        )
        growth = _GROWTH[0]
        for key, pieces in found.items():
            limit = min(limits[key], size)
            taken = _whole(pieces, limit, shares[key])
            ends = len(pieces) <= limit or limit == limits[key]
            if ends or _is_enough(taken, shares[key], request.max_bytes):
                chosen[key] = by_horizon(taken, request, key)
                del limits[key]
            else:
                growth = max(growth, _lacking(taken, shares[key]))
        page = ceil(size * min(growth, _GROWTH[1]))
    return chosen


def by_horizon(taken: Sequence[Taken], request: FireRequest, key: ShardKey) -> list[Taken]:
    """Return the rows before the request's horizon, which may cut a compacted slice."""
    if request.horizon is None:
        return list(taken)
    return before(taken, request.horizon.pointers.get(key, 0))


def _whole(pieces: Sequence[Slice], limit: int, count: int | None) -> list[Taken]:
    """Take the first messages of at most *limit* slices of a shard."""
    taken = take(pieces[:limit], count)
    # Rows of the first slice that is left out may interleave with the taken rows.
    return before(taken, pieces[limit].position) if pieces[limit:] else taken


def _is_enough(taken: Sequence[Taken], count: int | None, max_bytes: int | None) -> bool:
    """Return whether more slices of the shard would change nothing."""
    if count is not None and sum(len(rows) for _, rows in taken) >= count:
        return True
    # No shard gets more than all bytes.
    return max_bytes is not None and sum(p.bytes_of(rows) for p, rows in taken) > max_bytes


def _lacking(taken: Sequence[Taken], count: int | None) -> float:
    """Return how many times as many slices a share probably needs, with some to spare."""
    if count is None:
        return inf
    return 1.25 * count / max(sum(len(rows) for _, rows in taken), 1)
