"""Ring: the oldest waiting messages of a full queue make room for newer ones.

Changes: waiting slices of main are removed, the last of them in part; within the transaction of the
load, whose own messages are the newest. What is in flight stays. Guard: the turns of the shards, as
of those who fire; slices that others hold are passed over. Crash before the commit: nothing was
loaded, and nothing is lost.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby

from sqlalchemy import Connection

from queue_core.capacity.bounds import CapacityExceeded, Overrun
from queue_core.catalog import turns
from queue_core.catalog.slices import Changes, ShardKey, fetch
from queue_core.catalog.tables import slices
from queue_core.model import Magazine, QueueInfo, Slice, State
from queue_core.plan import Taken, interleaved, share, take

#: Slices of a shard that are looked at together, at most.
_SLICES = 256


def drop_oldest(connection: Connection, queue: QueueInfo, excess: Overrun) -> None:
    """Remove the oldest waiting messages; raises `CapacityExceeded` where others hold them."""
    messages, size = excess.messages, excess.bytes
    changes = Changes()
    for group in _oldest_first(connection, queue, min(max(messages, 1), _SLICES)):
        for piece, rows in _enough(group, messages, size):
            changes.remove(piece, rows, "dropped")
            messages -= len(rows)
            size -= _freed(piece, len(rows))
        if messages <= 0 and size <= 0:
            break
    else:
        raise CapacityExceeded(
            f"queue {queue.name!r} is a ring, and others hold what had to go; try again"
        )
    changes.apply(connection)


def _oldest_first(connection: Connection, queue: QueueInfo, few: int) -> Iterator[list[Slice]]:
    """Waiting slices in order of their loading, those together that were loaded together."""
    shards = sorted(turns.lock(connection, [queue.id]))
    # Messages that were written anew are of another segment than those between which they stand.
    blocks = (interleaved(_of_shard(connection, place, few)) for place in shards)
    for _, together in groupby(heapq.merge(*blocks, key=_age), key=_age):
        yield [piece for block in together for piece in block]


def _of_shard(connection: Connection, place: ShardKey, few: int) -> Iterator[Slice]:
    """Its waiting slices in order of their places; some at a time, as they are asked for."""
    end = -1
    while found := fetch(
        connection,
        slices.c.queue_id == place[0],
        slices.c.magazine == int(Magazine.MAIN),
        slices.c.state == int(State.LOADED),
        slices.c.shard == place[2],
        slices.c.position > end,
        limit=few,
        lock="skip",
    ):
        yield from found
        end = found[-1].position


def _age(block: Sequence[Slice]) -> tuple[int, int]:
    # Clocks may give the same time twice, and segments are numbered in the order of loads.
    return min((piece.loaded_at, piece.segment_id) for piece in block)


def _enough(group: Sequence[Slice], messages: int, size: int) -> list[Taken]:
    """The first messages of a load, evenly of all its shards, that are or weigh so much."""
    there = sum(len(piece.rows) for piece in group)
    weight = sum(piece.bytes for piece in group)
    count = min(max(messages, -(-size * there // max(weight, 1))), there)
    taken = _first(group, count)
    while count < there and sum(_freed(piece, len(rows)) for piece, rows in taken) < size:
        # Some shards have smaller messages than others.
        count = min(count + count // 8 + 1, there)
        taken = _first(group, count)
    return taken


def _first(group: Sequence[Slice], count: int) -> list[Taken]:
    shards: dict[int, list[Slice]] = defaultdict(list)
    for piece in group:
        shards[piece.shard].append(piece)
    sizes = {shard: sum(len(piece.rows) for piece in shards[shard]) for shard in shards}
    shares = share(sizes, count)
    return [taken for shard in sorted(shares) for taken in take(shards[shard], shares[shard])]


def _freed(piece: Slice, count: int) -> int:
    """By how many bytes a slice shrinks when it loses so many rows."""
    left = len(piece.rows) - count
    return piece.bytes - piece.bytes * left // max(len(piece.rows), 1)
