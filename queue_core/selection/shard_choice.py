"""Shard choice: lock as many shards as a firing with a limit needs.

The number of fired messages determines the shard at which a firing begins, so that all have their
turns. The first shards of all queues come before their second ones. A firing takes messages evenly
from the shards that it needs, and locks only these. Each shard costs a slice to cut
and a file to open, so a further shard is needed for each `OF_EACH` messages, or if the ones before
do not have enough. For the tasks of a Spark query, and in the sideline, where many messages may not
be due yet, one is needed for each message. Under contention (`Contention`), a firing needs only as
many shards as have enough messages together, and leaves the others to concurrent firings.

A firing waits for locks only before it has any, and then locks shards in their order. So no two
firings can wait for each other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Hashable, Mapping
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from queue_core.catalog import dialect
from queue_core.catalog.slices import shard_locks
from queue_core.catalog.slices.shard_locks import Backlog, place_in_turn
from queue_core.catalog.slices.slices import ShardKey
from queue_core.selection.request import FireRequest
from queue_core.values.model import Magazine
from queue_core.values.plan import in_turn

#: How to lock shards: ``"skip"`` locks free ones, ``"some"`` waits for those that a firing needs,
#: ``"wait"`` waits for all. None locks no shard.
Lock: TypeAlias = Literal["skip", "some", "wait"] | None

#: How many messages of a shard a firing takes before it needs a further one.
OF_EACH = 1000
#: Seconds of contention after a firing has met another one.
CONTENTION_SECONDS = 10.0
#: The most requests that are remembered.
_MOST = 1024


class Contention:
    """Where firings of this process have met others lately, by engine. Threads can share it."""

    def __init__(self, seconds: float = CONTENTION_SECONDS) -> None:
        self._seconds = seconds
        self._met: WeakKeyDictionary[Engine, dict[Hashable, float]] = WeakKeyDictionary()

    def note(self, engine: Engine, where: Hashable) -> None:
        """Note that a firing has met another one, or could not get a lock."""
        met = self._met.setdefault(engine, {})
        if len(met) >= _MOST:
            met.clear()
        met[where] = time.monotonic()

    def is_near(self, engine: Engine, where: Hashable) -> bool:
        """Return whether a firing has lately met another one."""
        at = self._met.get(engine, {}).get(where)
        return at is not None and time.monotonic() - at < self._seconds


_contention = Contention()


def choose_shards(
    connection: Connection,
    request: FireRequest,
    lock: Lock,
    limit: int,
    without: Collection[ShardKey] = (),
    *,
    every: bool = False,
    seen: Mapping[ShardKey, Backlog] | None = None,
) -> tuple[dict[ShardKey, Backlog], int]:
    """
    Lock the shards that *limit* messages need.

    Return the backlog of these shards, and how many messages wait in all shards.

    The shards in *without* are left out: the firing has found all that they have. With *every*, all
    other shards are locked, unless there is contention. *seen* is the backlog, if it was just read;
    *lock* is then not None.
    """
    where = request.where
    if lock == "wait":
        locked = shard_locks.lock(connection, *where)
        return locked, sum(shard.waiting for shard in locked.values())
    if seen is None:
        seen = shard_locks.backlog(connection, *where)
    # Limits may have removed queues from the request since the backlog was read.
    seen = {key: shard for key, shard in seen.items() if key[0] in request.queue_ids}
    waited = sum([shard.waiting for shard in seen.values()])
    waiting = {
        key: shard.waiting for key, shard in seen.items() if shard.waiting and key not in without
    }
    if not waiting:
        return {}, waited
    few = _contention.is_near(connection.engine, where) or lock == "some"
    spread = request.spread or request.magazine is Magazine.SIDELINE
    of_each = limit if few else 1 if spread else min(limit, OF_EACH)
    turn = sum([shard.fired for shard in seen.values() if shard.waiting])
    if lock == "some":
        # Those who wait should not all wait for the same locks.
        turn = random.getrandbits(32) * limit
    places = {place_in_turn(key): count for key, count in waiting.items()}
    wanted = [place_in_turn(place) for place in in_turn(places, limit, turn, of_each)]
    if every and not few:
        wanted = list(waiting)
    if lock is None or not dialect.of(connection).writes_in_parallel:
        return {key: seen[key] for key in wanted}, waited
    if lock == "some":
        these = {key: seen[key] for key in sorted(wanted)}
        return shard_locks.lock_these(connection, these), waited
    first = place_in_turn(wanted[0])
    later = sorted(waiting, key=lambda key: (place_in_turn(key) < first, place_in_turn(key)))
    free = {key: seen[key] for key in later}
    locked = shard_locks.lock_these(connection, free, most=len(wanted))
    # A shard that others have locked is replaced by a later one, or by none.
    if set(wanted) - locked.keys():
        _contention.note(connection.engine, where)
    return locked, waited
