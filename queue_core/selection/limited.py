"""Limits: how many messages a firing may take by the setting `limits`, and when there are more.

Changes: tokens of the buckets, in the transaction of the firing. Messages that come back unhandled
do not bring their tokens back: a limit counts firings. Guard: a firing locks the buckets of its
queues, and of the names of their limits, before the shards, and counts the messages in flight
afterwards. So no two firings take the same tokens, and none sees too few messages in flight.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog.damage import beside_settlements
from queue_core.catalog.records import token_buckets
from queue_core.catalog.records.token_buckets import Bucket, BucketKey
from queue_core.catalog.slices import amounts, id_map
from queue_core.selection.acquire import anything
from queue_core.selection.by_rank import take_to_level
from queue_core.selection.fired import Refusal
from queue_core.selection.request import Candidates, FireRequest
from queue_core.values import buckets
from queue_core.values.ids import IdSet
from queue_core.values.limits import MANY, Limit
from queue_core.values.plan import Taken, having, messages_in, take_evenly

if TYPE_CHECKING:
    from queue_core.selection.by_value import ValueRooms


#: A request for as many messages as limits allow, None if they allow none; and what they refuse.
Narrowed: TypeAlias = tuple[FireRequest | None, Refusal | None]


def narrowed(connection: Connection, request: FireRequest) -> Narrowed:
    """Return what the limits of the queues leave of a request now."""
    found = {key: token_buckets.read(connection, key) for key in _keys(request)}
    return _within(connection, request, _rooms(connection, request, found))


class _Room(NamedTuple):
    """How many messages a limit allows now; if none, after how many seconds it allows some."""

    #: The queues of the request that have it, together.
    queues: tuple[int, ...]
    messages: int
    #: Infinite if a settlement must make room.
    seconds: float


class Allotment:
    """The tokens of one firing; the buckets of its queues are locked until its transaction ends."""

    def __init__(self, connection: Connection, request: FireRequest) -> None:
        self._connection = connection
        self._request = request
        #: By the ids of queues with limits of values.
        self._values: dict[int, ValueRooms] = {}
        self._buckets = token_buckets.lock(connection, _keys(request))
        self._rooms = _rooms(connection, request, self._buckets)
        self.narrowed = _within(connection, request, self._rooms)

    def fitting(self, taken: Sequence[Taken], candidates: Candidates | None) -> list[Taken]:
        """Cut the messages to the limits, evenly from the shards of the queues that share one."""
        kept = list(taken)
        # The queues' own limits first: what a queue cannot use of a shared limit is left to others.
        for room in sorted(self._rooms.values(), key=lambda room: len(room.queues)):
            here = [(piece, rows) for piece, rows in kept if piece.queue_id in room.queues]
            if messages_in(here) > room.messages:
                kept = [each for each in kept if each[0].queue_id not in room.queues]
                # Begin at a random shard: a single token must not always go to the same one.
                evenly = take_evenly(here, room.messages, random.randrange(1 << 32))
                own = _by_queue(here)
                for queue_id, found in _by_queue(evenly).items():
                    kept += self._first(own[queue_id], found, candidates)
        return kept

    def _first(
        self, own: list[Taken], found: list[Taken], candidates: Candidates | None
    ) -> list[Taken]:
        """Return as many messages of a queue as *found* has: the first by its order, if any."""
        queue_id, count = own[0][0].queue_id, messages_in(found)
        if queue_id in self._request.terms.fair:
            return take_to_level(own, count)[0]
        if candidates is None or own[0][0].shard_key not in candidates.ranked:
            return found
        theirs = np.isin(candidates.order, id_map.ids_of(self._connection, own))
        ids = IdSet.of(candidates.order[theirs][:count])
        located = id_map.located(self._connection, [queue_id], ids)
        return having((piece for piece, _ in own), located)

    def admitted(self, candidates: Candidates) -> Candidates:
        """Return the candidates that the limits of values allow now."""
        # Not at the top: few queues have limits of values.
        from queue_core.selection.scan import ID

        ids = candidates.ids
        for queue_id, rows in candidates.values.items():
            fit, _ = self._rooms_of_values(queue_id).admitted(rows)
            rejected = rows.column(ID).to_numpy()[~fit]
            ids -= IdSet.of(id_map.logical(self._connection, rejected))
        return candidates._replace(ids=ids)

    def spend(self, taken: Sequence[Taken], at: int) -> None:
        """Take the tokens of messages that are fired at a moment."""
        # A firing that has waited for its consumer can have a time from before the lock.
        at = max([at, *(each.now for each in self._buckets.values())])
        for queue_id, rooms in self._values.items():
            rooms.spend([each for each in taken if each[0].queue_id == queue_id], at)
        for key, (limit, queue_ids) in _of_wholes(self._request).items():
            count = messages_in([each for each in taken if each[0].queue_id in queue_ids])
            if limit.per_second and count:
                until = buckets.spend(limit, self._buckets[key].spent_until, at, count)
                token_buckets.spend(self._connection, key, until)

    def _rooms_of_values(self, queue_id: int) -> ValueRooms:
        from queue_core.selection.by_value import ValueRooms
        from queue_core.selection.scan import SliceScan

        request, selection = self._request, self._request.selection
        assert selection is not None, "limits of values make a selection"
        now = self._buckets[BucketKey(queue_id)].now
        scan = SliceScan(self._connection, request.queues, request.storage, now)
        limits = selection.rules[queue_id].limits
        # Other transactions may settle messages in flight while they are counted.
        rooms = beside_settlements(lambda: ValueRooms(scan, queue_id, limits))
        self._values[queue_id] = rooms
        return rooms


def _keys(request: FireRequest) -> set[BucketKey]:
    """Return which buckets the queues of a request have."""
    limits = request.terms.limits
    return {BucketKey.of(id, limit) for id, limit in limits if id in request.queue_ids}


def _of_wholes(request: FireRequest) -> dict[BucketKey, tuple[Limit, list[int]]]:
    """Return the limits without a column, and which queues of the request have each."""
    found: dict[BucketKey, tuple[Limit, list[int]]] = {}
    for queue_id, limit in request.terms.limits:
        if queue_id in request.queue_ids and limit.column is None:
            found.setdefault(BucketKey.of(queue_id, limit), (limit, []))[1].append(queue_id)
    return found


def _rooms(
    connection: Connection, request: FireRequest, found: Mapping[BucketKey, Bucket]
) -> dict[BucketKey, _Room]:
    """Return how many messages each limit allows."""
    rooms: dict[BucketKey, _Room] = {}
    for key, (limit, queue_ids) in _of_wholes(request).items():
        most, seconds = MANY, 0.0
        if limit.per_second is not None:
            most = buckets.tokens(limit, *found[key])
            seconds = 0.0 if most else buckets.wait(limit, *found[key]) / 1e6
        if limit.in_flight is not None:
            left = limit.in_flight - amounts.in_flight(connection, key.queue, limit.name)
            most, seconds = min(most, max(left, 0)), seconds if left > 0 else inf
        rooms[key] = _Room(tuple(queue_ids), most, seconds)
    return rooms


def _within(
    connection: Connection, request: FireRequest, rooms: Mapping[BucketKey, _Room]
) -> Narrowed:
    closed: dict[int, float] = defaultdict(float)
    for room in rooms.values():
        for queue_id in room.queues if not room.messages else ():
            closed[queue_id] = max(closed[queue_id], room.seconds)
    refused = None
    if closed and anything(connection, replace(request, queue_ids=tuple(closed))):
        refused = Refusal.by_limits([*closed.values()])
    open_to = tuple(id for id in request.queue_ids if id not in closed)
    if not open_to:
        return None, refused
    most = request.max_messages
    together = _together(open_to, [*rooms.values()])
    if together < MANY:
        most = together if most is None else min(most, together)
    return replace(request, queue_ids=open_to, max_messages=most), refused


def _together(queue_ids: Collection[int], rooms: Sequence[_Room]) -> int:
    """Return the most messages that some queues may have together."""
    own = dict.fromkeys(queue_ids, MANY)
    for room in rooms:
        if len(room.queues) == 1 and room.queues[0] in own:
            own[room.queues[0]] = min(own[room.queues[0]], room.messages)
    total = 0
    for room in sorted(rooms, key=lambda room: (-len(room.queues), room.messages)):
        total += min(room.messages, sum(own.pop(id, 0) for id in room.queues))
    return total + sum(own.values())


def _by_queue(taken: Sequence[Taken]) -> dict[int, list[Taken]]:
    found: dict[int, list[Taken]] = defaultdict(list)
    for piece, rows in taken:
        found[piece.queue_id].append((piece, rows))
    return found
