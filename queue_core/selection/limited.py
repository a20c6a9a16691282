"""Limits: how many messages a firing may take by the setting `limits`, and when there are more.

Changes: tokens of the buckets, in the transaction of the firing. Messages that come back unhandled
do not bring their tokens back: a limit counts firings. Guard: a firing locks the bucket of its
queue before the shards, and counts the messages in flight afterwards. So no two firings take the
same tokens, and none sees too few messages in flight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog.records import token_buckets
from queue_core.catalog.records.token_buckets import Bucket
from queue_core.catalog.slices import amounts, id_map
from queue_core.selection.acquire import anything, by_shard
from queue_core.selection.fired import Refusal
from queue_core.selection.request import Candidates, FireRequest
from queue_core.values import buckets
from queue_core.values.ids import IdSet
from queue_core.values.limits import MANY
from queue_core.values.plan import Taken, share, take

if TYPE_CHECKING:
    from queue_core.selection.by_value import ValueRooms


class Narrowed(NamedTuple):
    """What the limits of the queues leave of a request at one moment."""

    #: For as many messages as they allow; None if they allow none.
    request: FireRequest | None
    #: Messages of some queues that they refuse.
    refused: Refusal | None


def narrowed(connection: Connection, request: FireRequest) -> Narrowed:
    """Return what the limits allow now."""
    found = {id: token_buckets.read(connection, id) for id in _limited(request)}
    return _within(connection, request, _rooms(connection, request, found))


class _Room(NamedTuple):
    """How many messages the limits of a queue allow, and after how many seconds, if none."""

    messages: int
    #: Infinite if a settlement must make room.
    seconds: float | None


class Allotment:
    """The tokens of one firing; the buckets of its queues are locked until its transaction ends."""

    def __init__(self, connection: Connection, request: FireRequest) -> None:
        self._connection = connection
        self._request = request
        #: By the ids of queues with limits of values.
        self._values: dict[int, ValueRooms] = {}
        self._buckets = token_buckets.lock(connection, _limited(request))
        self._rooms = _rooms(connection, request, self._buckets)
        self.narrowed = _within(connection, request, self._rooms)

    def fitting(self, taken: Sequence[Taken]) -> list[Taken]:
        """Cut the messages of each queue to its limits, evenly from its shards."""
        kept = []
        for queue_id, of_queue in _by_queue(taken).items():
            room = self._rooms.get(queue_id)
            if room is None or sum(len(rows) for _, rows in of_queue) <= room.messages:
                kept += of_queue
            else:
                kept += _first(of_queue, room.messages)
        return kept

    def admitted(self, candidates: Candidates) -> Candidates:
        """Return the candidates that the limits of values allow now."""
        rejected = []
        for queue_id, rows in candidates.values.items():
            rooms = self._rooms_of_values(queue_id)
            fit, _ = rooms.admitted(rows)
            located = rows.column("#id").to_numpy()[~fit]
            rejected.append(id_map.logical(self._connection, located))
        if not any(map(len, rejected)):
            return candidates
        left = np.setdiff1d(candidates.ids.numbers(), np.concatenate(rejected))
        return candidates._replace(ids=IdSet.of(left))

    def spend(self, taken: Sequence[Taken], at: int) -> None:
        """Take the tokens of messages that are fired at a moment, a little after the lock."""
        by_queue = _by_queue(taken)
        for queue_id, rooms in self._values.items():
            rooms.spend(by_queue.get(queue_id, []), at)
        counts = {id: sum(len(rows) for _, rows in of) for id, of in by_queue.items()}
        for queue_id, limit in self._request.terms.limits:
            if limit.per_second and limit.column is None and queue_id in counts:
                spent_until = self._buckets[queue_id].spent_until
                until = buckets.spend(limit, spent_until, at, counts[queue_id])
                token_buckets.spend(self._connection, queue_id, until)

    def _rooms_of_values(self, queue_id: int) -> ValueRooms:
        from queue_core.selection.by_value import ValueRooms
        from queue_core.selection.scan import SliceScan

        selection = self._request.selection
        assert selection is not None, "limits of values make a selection"
        now = self._buckets[queue_id].now
        scan = SliceScan(self._connection, selection.queues, selection.storage, now)
        limits = selection.rules[queue_id].limits
        self._values[queue_id] = ValueRooms(scan, queue_id, limits)
        return self._values[queue_id]


def _limited(request: FireRequest) -> list[int]:
    return sorted({queue_id for queue_id, _ in request.terms.limits} & set(request.queue_ids))


def _rooms(
    connection: Connection, request: FireRequest, found: Mapping[int, Bucket]
) -> dict[int, _Room]:
    """Return how many messages the limits of each queue allow."""
    rooms: dict[int, _Room] = {}
    for queue_id, limit in request.terms.limits:
        if queue_id not in found or limit.column is not None:
            continue
        room = _Room(MANY, None)
        if limit.per_second is not None:
            tokens = buckets.tokens(limit, *found[queue_id])
            room = _Room(tokens, None if tokens else buckets.wait(limit, *found[queue_id]) / 1e6)
        if limit.in_flight is not None:
            left = limit.in_flight - amounts.in_flight(connection, queue_id)
            room = _Room(min(room.messages, max(left, 0)), room.seconds if left > 0 else inf)
        rooms[queue_id] = room
    return rooms


def _within(connection: Connection, request: FireRequest, rooms: Mapping[int, _Room]) -> Narrowed:
    closed = {id: room.seconds for id, room in rooms.items() if not room.messages}
    refused = None
    if closed and anything(connection, replace(request, queue_ids=tuple(closed))):
        refused = Refusal.by_limits([each for each in closed.values() if each is not None])
    open_to = tuple(id for id in request.queue_ids if id not in closed)
    if not open_to:
        return Narrowed(None, refused)
    most = request.max_messages
    if all(id in rooms for id in open_to):
        room = sum(rooms[id].messages for id in open_to)
        most = room if most is None else min(most, room)
    most = None if most == MANY else most
    return Narrowed(replace(request, queue_ids=open_to, max_messages=most), refused)


def _by_queue(taken: Sequence[Taken]) -> dict[int, list[Taken]]:
    found: dict[int, list[Taken]] = {}
    for piece, rows in taken:
        found.setdefault(piece.queue_id, []).append((piece, rows))
    return found


def _first(taken: Sequence[Taken], limit: int) -> list[Taken]:
    """Return the first rows of each shard, as many as a limit over all shards allows."""
    whole = {piece.id: piece for piece, _ in taken}
    shards = by_shard([piece.narrowed(rows) for piece, rows in taken])
    sizes = {key: sum(len(piece.rows) for piece in pieces) for key, pieces in shards.items()}
    shares = share(sizes, limit)
    return [
        (whole[piece.id], rows)
        for key, pieces in shards.items()
        for piece, rows in take(sorted(pieces, key=lambda piece: piece.position), shares[key])
    ]
