"""Lock shards, and read their backlogs and load pointers.

A row of the table `shard_locks` is the right to fire from its shard: a firing locks it until it
commits. Otherwise a later message could be fired before an earlier one that another firing has
locked.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from sqlalchemy import BigInteger, Connection, Row, Select, bindparam, case, exists, func, select

from queue_core.catalog import dialect
from queue_core.catalog.damage import UNREADABLE, damaged
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import counters, shard_locks, shard_totals, shards
from queue_core.values.model import Magazine

_ROOT = shards.alias("root")
_LOGGED = case(
    (shard_locks.c.cursor_end.between(1, _ROOT.c.logged), shard_locks.c.cursor_end),
    else_=_ROOT.c.logged,
)
#: How many messages of a log wait to be taken in; nothing is looked up for a queue that is no
#: subscription. The log of a sideline is none.
BEHIND = case(
    (shard_locks.c.log_of == 0, 0),
    else_=func.coalesce(
        select(_LOGGED)
        .where(
            _ROOT.c.queue_id == shard_locks.c.log_of,
            _ROOT.c.magazine == int(Magazine.MAIN),
            _ROOT.c.shard == shard_locks.c.shard,
        )
        .scalar_subquery()
        - shard_locks.c.cursor,
        0,
    ),
)
_TAKEN_IN = shards.c.loaded + counters.c.reloaded - shard_locks.c.fired - counters.c.damaged
_WAITING = _TAKEN_IN + BEHIND
_BACKLOGS = (
    select(
        shard_locks.c.queue_id,
        shard_locks.c.magazine,
        shard_locks.c.shard,
        shard_locks.c.fired,
        shard_locks.c.log_of,
        shard_locks.c.cursor,
        _WAITING.label("waiting"),
        BEHIND.label("behind"),
    )
    .select_from(shard_totals)
    .order_by(shard_locks.c.queue_id, shard_locks.c.shard)
)
#: The statements that read backlogs: of all shards, and with True, of some.
_READING = {
    False: _BACKLOGS.where(
        dialect.one_of_given(shard_locks.c.queue_id, "these"),
        shard_locks.c.magazine == bindparam("in"),
    )
}
_READING[True] = _READING[False].where(dialect.one_of_given(shard_locks.c.shard, "at"))
_LOCKING = {some: query.with_for_update(of=shard_locks) for some, query in _READING.items()}
_FIRST = bindparam("first_shard", type_=shard_locks.c.shard.type)
_LATER = (shard_locks.c.shard > _FIRST) | (
    (shard_locks.c.shard == _FIRST) & (shard_locks.c.queue_id >= bindparam("first_queue"))
)


def _free(query: Select[Any], *, in_turn: bool) -> Select[Any]:
    """Return the statement that locks free shards; *in_turn*: some of them, from one on."""
    query = query.where(_WAITING > 0)
    if in_turn:
        order = (case((_LATER, 0), else_=1), shard_locks.c.shard, shard_locks.c.queue_id)
        query = query.order_by(None).order_by(*order).limit(bindparam("most", type_=BigInteger))
    return query.with_for_update(skip_locked=True, of=shard_locks)


_FREE = {
    (some, in_turn): _free(query, in_turn=in_turn)
    for some, query in _READING.items()
    for in_turn in (False, True)
}


#: Whether messages of a log wait for one of some subscriptions.
ANY_BEHIND = exists().where(
    dialect.one_of_given(shard_locks.c.queue_id, "behind_of"),
    shard_locks.c.magazine == int(Magazine.MAIN),
    BEHIND > 0,
)


def place_in_turn(key: ShardKey) -> ShardKey:
    """
    Return the place of a shard among those that take turns, or the shard of a place.

    The first shards of all queues come first, then their second ones: a firing from fewer shards
    than there are serves as many queues as it can.
    """
    first, magazine, last = key
    return last, magazine, first


class Backlog(NamedTuple):
    """The backlog of a shard, by its counters."""

    #: How many messages wait; a hint while other transactions write.
    waiting: int
    #: How many messages were ever fired from the shard.
    fired: int
    #: How many of those that wait are in the log of this queue, and the offset of the first one.
    behind: int = 0
    log_of: int = 0
    cursor: int = 0


def backlog(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, Backlog]:
    """Return the backlog of some shards, by default of all, without locking them."""
    given = _given(queue_ids, magazine, shard_numbers)
    return _read(connection, _READING["at" in given], given)


def lock(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, Backlog]:
    """Wait for the locks of some shards, by default of all; return their backlog once locked."""
    given = _given(queue_ids, magazine, shard_numbers)
    return _read(connection, _LOCKING["at" in given], given)


def lock_free(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
    *,
    start: ShardKey | None = None,
    most: int = 0,
) -> dict[ShardKey, Backlog]:
    """
    Lock free shards that have a backlog, without waiting; return the backlog.

    *start*: lock *most* shards only; this one and those after it come first, in the order of
    `place_in_turn`.
    """
    given = _given(queue_ids, magazine, shard_numbers)
    query = _FREE["at" in given, start is not None]
    if start is not None:
        given |= {"first_queue": start[0], "first_shard": start[2], "most": most}
    return _read(connection, query, given)


def load_pointers(
    connection: Connection,
    queue_ids: Collection[int],
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, int]:
    """Return the load pointers of some shards of main, by default of all."""
    query = _pointer_query(queue_ids, Magazine.MAIN, shard_numbers)
    return _pointers(connection.execute(query).all())


def load_pointers_now(
    connection: Connection, queue_ids: Collection[int], magazine: Magazine
) -> tuple[dict[ShardKey, int], int]:
    """Return the load pointers of all shards, and the time by the database's clock."""
    query = _pointer_query(queue_ids, magazine, None)
    rows = connection.execute(query.add_columns(dialect.now().label("at"))).all()
    # A queue that was dropped has no shards.
    at = max((int(row.at) for row in rows), default=0) or dialect.read_clock(connection)
    return _pointers(rows), at


def lock_load_pointers(
    connection: Connection,
    queue_ids: Collection[int],
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, int]:
    """Block loads into some shards of main, by default into all; return the load pointers."""
    query = _pointer_query(queue_ids, Magazine.MAIN, shard_numbers)
    return _pointers(connection.execute(query.with_for_update()).all())


def _given(
    queue_ids: Collection[int], magazine: Magazine, shard_numbers: Collection[int] | None
) -> dict[str, Any]:
    """Return the parameters of `_READING`."""
    given: dict[str, Any] = {"these": queue_ids, "in": int(magazine)}
    if shard_numbers is not None:
        given["at"] = shard_numbers
    return given


def _read(
    connection: Connection, query: Select[Any], given: dict[str, Any]
) -> dict[ShardKey, Backlog]:
    found = {}
    for row in connection.execute(query, given).all():
        try:
            behind = max(row.behind, 0)
            backlog = Backlog(
                max(row.waiting, 0), int(row.fired), behind, int(row.log_of), int(row.cursor)
            )
        except UNREADABLE as error:
            raise damaged(shard_locks, _named(row), error) from error
        found[row.queue_id, row.magazine, row.shard] = backlog
    return found


def _pointer_query(
    queue_ids: Collection[int], magazine: Magazine, shard_numbers: Collection[int] | None
) -> Select[Any]:
    key = (shards.c.queue_id, shards.c.magazine, shards.c.shard)
    query = (
        select(*key, shards.c.load_pointer)
        .where(
            dialect.one_of(shards.c.queue_id, queue_ids),
            shards.c.magazine == int(magazine),
        )
        .order_by(shards.c.queue_id, shards.c.shard)
    )
    if shard_numbers is not None:
        query = query.where(dialect.one_of(shards.c.shard, shard_numbers))
    return query


def _pointers(rows: Sequence[Row[Any]]) -> dict[ShardKey, int]:
    found = {}
    for row in rows:
        try:
            found[row.queue_id, row.magazine, row.shard] = int(row.load_pointer)
        except UNREADABLE as error:
            raise damaged(shards, _named(row), error) from error
    return found


def _named(row: Row[Any]) -> str:
    return f"queue_id {row.queue_id}, magazine {row.magazine} and shard {row.shard}"
