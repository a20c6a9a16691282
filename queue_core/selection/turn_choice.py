"""Turn choice: lock the turns of as many shards as a firing with a limit needs.

The number of fired messages rotates the shard at which a firing begins, so that each begins where
the last one ended. A firing takes messages evenly from all shards, so it locks as many turns as its
limit has messages, or all. Beside other firings (`contention`), it takes them from the first shards
that hold enough, and locks only the turns of these.

A firing waits for turns only before it has locked any, and locks those in order of shards. So no
two firings can wait for each other.
"""

from __future__ import annotations

import random
from collections.abc import Collection
from typing import Literal, TypeAlias
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine

from queue_core.catalog import dialect, turns
from queue_core.catalog.slices import ShardKey
from queue_core.catalog.turns import Backlog
from queue_core.plan import in_turn, passed_over
from queue_core.selection.contention import Contention
from queue_core.selection.request import FireRequest

#: How to lock turns: ``"skip"`` locks free ones, ``"some"`` waits for those that a firing needs,
#: ``"wait"`` waits for all. None locks no turn.
Lock: TypeAlias = Literal["skip", "some", "wait"] | None

_contentions: WeakKeyDictionary[Engine, Contention] = WeakKeyDictionary()


def choose_turns(
    connection: Connection,
    request: FireRequest,
    lock: Lock,
    limit: int,
    without: Collection[ShardKey] = (),
) -> dict[ShardKey, Backlog]:
    """
    Lock the turns that *limit* messages need; return the backlog of their shards.

    It leaves out the shards of *without*, in which the firing has found none.
    """
    where = (request.queue_ids, request.magazine, request.shards)
    if lock == "wait":
        return turns.lock(connection, *where)
    contention = _contentions.setdefault(connection.engine, Contention())
    seen = turns.backlog(connection, *where)
    waiting = {
        key: shard.waiting for key, shard in seen.items() if shard.waiting and key not in without
    }
    if not waiting:
        return {}
    few = contention.is_near(where) or lock == "some"
    turn = sum(shard.fired for shard in seen.values() if shard.waiting)
    if lock == "some":
        # Those who wait should not all wait for the same turns.
        turn = random.randrange(len(waiting)) * limit
    wanted = in_turn(waiting, limit, turn, few=few)
    if without and not few:
        wanted = list(waiting)
    if lock is None or not dialect.of(connection).writes_in_parallel:
        return {key: seen[key] for key in wanted}
    if lock == "some":
        queue_ids = sorted({key[0] for key in wanted})
        return turns.lock(connection, queue_ids, request.magazine, {key[2] for key in wanted})
    most = len(wanted) + len(without)
    locked = turns.lock_free(connection, *where, start=wanted[0], most=most)
    locked = {key: shard for key, shard in locked.items() if key not in without}
    if passed_over(wanted, locked):
        contention.note(where)
    return locked
