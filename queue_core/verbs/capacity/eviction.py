"""Evict the oldest waiting messages of a full ring, to make room for newer ones.

Changes: removes waiting slices of main, the last one only in part, within the transaction of the
load. The load's own messages are the newest. Messages in flight stay. Guard: the locks of the
shards, as for firings. Slices that other transactions have locked are skipped. Crash before the
commit: nothing was loaded, and nothing is lost.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby

from sqlalchemy import Connection

from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import WAITING, behind, in_shard
from queue_core.catalog.slices.slices import ShardKey, fetch
from queue_core.catalog.slices.usage import Amount
from queue_core.values.model import QueueInfo, Slice
from queue_core.values.plan import Taken, interleaved, messages_in, take_evenly
from queue_core.verbs.capacity.bounds import CapacityExceeded

#: The most slices of a shard that are read at once.
_BATCH = 256


def evict_oldest(connection: Connection, queue: QueueInfo, overrun: Amount) -> None:
    """Remove the oldest waiting messages; raises `CapacityExceeded` if others have locked them."""
    messages, size = overrun.messages, overrun.bytes
    changes = Changes([queue])
    for group in _oldest_first(connection, queue, min(max(messages, 1), _BATCH)):
        for piece, rows in _enough(group, messages, size):
            changes.remove(piece, rows, "dropped")
            messages -= len(rows)
            size -= _freed(piece, len(rows))
        if messages <= 0 and size <= 0:
            break
    else:
        raise CapacityExceeded(
            queue,
            f"queue {queue.name!r} is a ring, and other transactions have locked the messages to "
            "drop; try again",
        )
    changes.apply(connection)


def _oldest_first(connection: Connection, queue: QueueInfo, batch: int) -> Iterator[list[Slice]]:
    """Yield waiting slices in order of loading, grouped by load."""
    shards = sorted(shard_locks.lock(connection, [queue.id]))
    # A rewritten message is in another segment than its neighbours.
    blocks = (interleaved(_waiting_slices(connection, shard, batch)) for shard in shards)
    for _, together in groupby(heapq.merge(*blocks, key=_age), key=_age):
        yield [piece for block in together for piece in block]


def _waiting_slices(connection: Connection, shard: ShardKey, batch: int) -> Iterator[Slice]:
    """Yield the waiting slices of a shard by position, reading *batch* of them at a time."""
    end = -1
    while found := fetch(
        connection,
        *in_shard(shard),
        *WAITING,
        *behind(end),
        limit=batch,
        lock="skip",
    ):
        yield from found
        end = found[-1].position


def _age(block: Sequence[Slice]) -> tuple[int, int]:
    # Two loads may have the same time; segments are numbered in the order of loads.
    return min((piece.loaded_at, piece.segment_id) for piece in block)


def _enough(group: Sequence[Slice], messages: int, size: int) -> list[Taken]:
    """Take the first messages of a load, evenly from its shards: *messages*, and *size* bytes."""
    every = [(piece, piece.rows) for piece in group]
    available = messages_in(every)
    weight = sum(piece.bytes for piece in group)
    count = min(max(messages, -(-size * available // max(weight, 1))), available)
    taken = take_evenly(every, count)
    while count < available and sum(_freed(piece, len(rows)) for piece, rows in taken) < size:
        # Some shards have smaller messages than others.
        count = min(count + count // 8 + 1, available)
        taken = take_evenly(every, count)
    return taken


def _freed(piece: Slice, count: int) -> int:
    """Return the bytes that a slice loses with *count* rows."""
    left = len(piece.rows) - count
    return piece.bytes - piece.bytes * left // max(len(piece.rows), 1)
