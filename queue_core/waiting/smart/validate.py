"""Validate a decision: its read set must be unchanged when it is carried out.

Changes: the keys of the load become known. Guard: until the transaction ends, it locks the
shards, the slices of the read messages, the queue, and the load pointers, in this order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.records import dedup
from queue_core.catalog.records.dedup import KnownKeys
from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.conditions import in_queue, in_shards, in_state, of_segments
from queue_core.catalog.slices.slices import ShardKey, fetch
from queue_core.policies.inputs import PolicyResult
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Slice, State
from queue_core.values.plan import having
from queue_core.waiting.smart.snapshot import QueuedMessages


class StaleSnapshot(Exception):
    """A decision no longer holds, because its read set has changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSet:
    """The facts on which a decision depends."""

    #: The rows of the queued messages by their state, as ids.
    messages: Mapping[State, IdSet]
    #: The load pointers of the shards: they move with each load. None: no policy.
    pointers: Mapping[ShardKey, int] | None

    @staticmethod
    def of(queued: QueuedMessages | None, result: PolicyResult) -> ReadSet:
        """Return the facts on which a policy's result depends."""
        messages: dict[State, IdSet] = {}
        if queued is not None and len(depends_on := result.depends_on):
            retrieved = queued.retrieved[depends_on]
            messages = {
                State.LOADED: queued.rows_of(depends_on[~retrieved]),
                State.FIRED: queued.rows_of(depends_on[retrieved]),
            }
        return ReadSet(
            messages=messages,
            pointers=None if queued is None else queued.pointers,
        )


def validate(
    connection: Connection,
    queue: QueueInfo,
    shards: Collection[int],
    read_set: ReadSet,
    known: KnownKeys | None,
) -> list[Slice]:
    """
    Lock a read set, and add the new keys; return the slices with its messages.

    Raises `StaleSnapshot` if anything has changed, and `QueueDeactivated`.
    """
    locked: list[Slice] = []
    if read_set.messages:
        # Firings would skip locked slices, so they must not fire from these shards.
        shard_locks.lock(connection, [queue.id], shard_numbers=shards)
        locked = _lock_messages(connection, queue, shards, read_set.messages)
    queues.hold(connection, queue, alone=known is not None)
    if read_set.pointers is not None:
        pointers = shard_locks.load_pointers(connection, queue.id, shards, lock=True)
        if pointers != read_set.pointers:
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
        if sum(len(found) for _, found in there) < len(rows):
            raise StaleSnapshot
    return locked
