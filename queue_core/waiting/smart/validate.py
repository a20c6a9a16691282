"""Validate a decision: its read set must be unchanged when it is carried out.

Changes: the keys of the load become known. Guard: until the transaction ends, it locks the
shards, the slices of the read messages, the queue, and the load pointers, in this order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.records import dedup
from queue_core.catalog.records.dedup import KnownKeys
from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.conditions import in_queue, in_shards, in_state, of_segments
from queue_core.catalog.slices.slices import fetch
from queue_core.policies.inputs import PolicyResult
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Slice, State
from queue_core.values.plan import having, messages_in
from queue_core.waiting.smart.snapshot import QueuedMessages


class StaleSnapshot(Exception):
    """A decision no longer holds, because its read set has changed."""


def rows_read(queued: QueuedMessages | None, result: PolicyResult) -> dict[State, IdSet]:
    """Return the rows of the queued messages on which a policy's result depends, by state."""
    if queued is None or not len(depends_on := result.depends_on):
        return {}
    retrieved = queued.retrieved[depends_on]
    return {
        State.LOADED: queued.rows_of(depends_on[~retrieved]),
        State.FIRED: queued.rows_of(depends_on[retrieved]),
    }


def validate(
    connection: Connection,
    queue: QueueInfo,
    shards: Collection[int],
    queued: QueuedMessages | None,
    messages: Mapping[State, IdSet],
    known: KnownKeys | None,
) -> list[Slice]:
    """
    Lock a read set, and add the new keys; return the slices with its *messages*.

    The load pointers of the shards, which move with each load, must be those of *queued*. Raises
    `StaleSnapshot` if anything has changed, and `QueueDeactivated`.
    """
    locked: list[Slice] = []
    if messages:
        # Firings would skip locked slices, so they must not fire from these shards.
        shard_locks.lock(connection, [queue.id], shard_numbers=shards)
        locked = _lock_messages(connection, queue, shards, messages)
    queues.hold(connection, queue, alone=known is not None)
    if queued is not None:
        pointers = shard_locks.load_pointers(connection, queue.id, shards, lock=True)
        if pointers != queued.pointers:
            raise StaleSnapshot
    if known is not None and not dedup.add(connection, queue.id, known):
        raise StaleSnapshot
    return locked


def _lock_messages(
    connection: Connection,
    queue: QueueInfo,
    shards: Collection[int],
    messages: Mapping[State, IdSet],
) -> list[Slice]:
    segments = {segment for rows in messages.values() for segment in rows.segments}
    locked = fetch(
        connection,
        *in_queue(queue.id, Magazine.MAIN),
        *in_state(*messages),
        # Only in these shards: in others, firings would skip locked slices.
        *in_shards(shards),
        *of_segments(segments),
        lock="wait",
    )
    for state, rows in messages.items():
        there = having((piece for piece in locked if piece.state is state), rows)
        if messages_in(there) < len(rows):
            raise StaleSnapshot
    return locked
