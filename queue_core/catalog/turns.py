"""Lock the turns of shards, and read their backlogs and load pointers.

A row of the table `turns` is the right to fire from its shard: a firing locks it until it commits.
Otherwise a later message could be fired before an earlier one that another firing has locked.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, Select, bindparam, case, select

from queue_core.catalog import dialect
from queue_core.catalog.damage import UNREADABLE, damaged
from queue_core.catalog.slices import ShardKey
from queue_core.catalog.tables import counters, shard_totals, shards, turns
from queue_core.model import Magazine

_WAITING = shards.c.loaded + counters.c.reloaded - turns.c.fired - counters.c.damaged
_BACKLOGS = (
    select(
        turns.c.queue_id,
        turns.c.magazine,
        turns.c.shard,
        turns.c.fired,
        _WAITING.label("waiting"),
    )
    .select_from(shard_totals)
    .order_by(turns.c.queue_id, turns.c.shard)
)


class Backlog(NamedTuple):
    """The backlog of a shard, by its counters."""

    #: How many messages wait; a hint while other transactions write.
    waiting: int
    #: How many messages were ever fired from the shard.
    fired: int


def backlog(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, Backlog]:
    """Return the backlog of some shards, by default of all, without locking them."""
    database = dialect.of(connection)
    given = _given(database, queue_ids, magazine, shard_numbers)
    return _read(connection, _reading(database, of_shards="at" in given), given)


def lock(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, Backlog]:
    """Wait for the turns of some shards, by default of all; return their backlog once locked."""
    database = dialect.of(connection)
    given = _given(database, queue_ids, magazine, shard_numbers)
    return _read(connection, _locking(database, of_shards="at" in given), given)


def lock_free(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
    *,
    start: ShardKey | None = None,
    most: int | None = None,
) -> dict[ShardKey, Backlog]:
    """
    Lock free turns of shards that have a backlog, without waiting; return the backlog.

    *most*: how many turns to lock; those of *start* and the shards after it come first.
    """
    database = dialect.of(connection)
    given = _given(database, queue_ids, magazine, shard_numbers)
    query = _reading(database, of_shards="at" in given).where(_WAITING > 0)
    if start is not None:
        queue_id, _, shard = start
        later = (turns.c.queue_id > queue_id) | (
            (turns.c.queue_id == queue_id) & (turns.c.shard >= shard)
        )
        in_turn = (case((later, 0), else_=1), turns.c.queue_id, turns.c.shard)
        query = query.order_by(None).order_by(*in_turn).limit(most)
    return _read(connection, database.skip_locked(query, turns), given)


def load_pointers(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, int]:
    """Return the load pointers of some shards, by default of all."""
    return _pointers(connection, _pointer_query(connection, queue_ids, magazine, shard_numbers))


def lock_load_pointers(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, int]:
    """Block loads into some shards, by default into all; return the load pointers."""
    query = _pointer_query(connection, queue_ids, magazine, shard_numbers)
    return _pointers(connection, dialect.of(connection).locked(query))


def _given(
    database: dialect.Dialect,
    queue_ids: Collection[int],
    magazine: Magazine,
    shard_numbers: Collection[int] | None,
) -> dict[str, Any]:
    """Return the parameters of `_reading`."""
    given: dict[str, Any] = {"these": database.listed(queue_ids), "in": int(magazine)}
    if shard_numbers is not None:
        given["at"] = database.listed(shard_numbers)
    return given


# Built once: to build a statement takes several times as long as SQLite needs to run it.
@lru_cache(maxsize=4)
def _reading(
    database: dialect.Dialect, *, of_shards: bool
) -> Select[tuple[int, int, int, int, int]]:
    where = [
        database.one_of_given(turns.c.queue_id, "these"),
        turns.c.magazine == bindparam("in"),
    ]
    if of_shards:
        where.append(database.one_of_given(turns.c.shard, "at"))
    return _BACKLOGS.where(*where)


@lru_cache(maxsize=4)
def _locking(
    database: dialect.Dialect, *, of_shards: bool
) -> Select[tuple[int, int, int, int, int]]:
    return database.locked(_reading(database, of_shards=of_shards), turns)


def _read(
    connection: Connection,
    query: Select[tuple[int, int, int, int, int]],
    given: dict[str, Any],
) -> dict[ShardKey, Backlog]:
    found = {}
    for row in connection.execute(query, given).all():
        try:
            backlog = Backlog(max(row.waiting, 0), int(row.fired))
        except UNREADABLE as error:
            raise damaged(turns, _named(row), error) from error
        found[row.queue_id, row.magazine, row.shard] = backlog
    return found


def _pointer_query(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine,
    shard_numbers: Collection[int] | None,
) -> Select[tuple[int, int, int, int]]:
    key = (shards.c.queue_id, shards.c.magazine, shards.c.shard)
    query = (
        select(*key, shards.c.load_pointer)
        .where(
            dialect.of(connection).one_of(shards.c.queue_id, queue_ids),
            shards.c.magazine == int(magazine),
        )
        .order_by(shards.c.queue_id, shards.c.shard)
    )
    if shard_numbers is not None:
        query = query.where(dialect.of(connection).one_of(shards.c.shard, shard_numbers))
    return query


def _pointers(
    connection: Connection, query: Select[tuple[int, int, int, int]]
) -> dict[ShardKey, int]:
    found = {}
    for row in connection.execute(query).all():
        try:
            found[row.queue_id, row.magazine, row.shard] = int(row.load_pointer)
        except UNREADABLE as error:
            raise damaged(shards, _named(row), error) from error
    return found


def _named(row: Row[Any]) -> str:
    return f"queue_id {row.queue_id}, magazine {row.magazine} and shard {row.shard}"
