"""Lock shards, and read their backlogs and load pointers.

A row of the table `shard_locks` is the right to fire from its shard: a firing locks it until it
commits. Otherwise a later message could be fired before an earlier one that another firing has
locked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    FromClause,
    Row,
    Select,
    bindparam,
    case,
    exists,
    func,
    or_,
    select,
    true,
)

from queue_core.catalog import dialect
from queue_core.catalog.damage import UNREADABLE, damaged
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import LEFT, counters, queues, shard_locks, shard_totals, shards
from queue_core.catalog.versions import newest_of, side_by_side
from queue_core.values.model import Magazine

if TYPE_CHECKING:
    from queue_core.catalog.database import Catalog

#: The shard whose log a shard of a subscription reads.
ROOT = shards.alias("root")
_KEY = ("queue_id", "magazine", "shard")
#: The head of a shard to which messages have come back since it was found: before all places.
UNKNOWN = -1


def end_of_log(locks: FromClause) -> ColumnElement[int]:
    """Return the offset up to which a subscription reads the log of `ROOT`."""
    ends_before = locks.c.cursor_end.between(1, ROOT.c.logged)
    return case((ends_before, locks.c.cursor_end), else_=ROOT.c.logged)


def reads_log(locks: FromClause) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that a subscription reads the log of `ROOT`."""
    return (
        ROOT.c.queue_id == locks.c.log_of,
        ROOT.c.magazine == int(Magazine.MAIN),
        ROOT.c.shard == locks.c.shard,
    )


def _behind(locks: FromClause) -> ColumnElement[int]:
    of_log = select(end_of_log(locks)).where(*reads_log(locks))
    newest = of_log.order_by(ROOT.c.version.desc()).limit(1).scalar_subquery()
    return case((locks.c.log_of == 0, 0), else_=func.coalesce(newest - locks.c.cursor, 0))


#: How many messages of a log wait to be taken in; nothing is looked up for a queue that is no
#: subscription. The log of a sideline is none.
BEHIND = _behind(shard_locks)


def _backlogs(loads: FromClause, locks: FromClause, counts: FromClause) -> Select[Any]:
    """Return the statement that reads backlogs from the rows of shards, side by side."""
    taken_in = loads.c.loaded + counts.c.reloaded - locks.c.fired - counts.c.damaged
    behind = _behind(locks)
    valid = locks.c.head_released == counts.c.released
    return select(
        *(locks.c[name] for name in _KEY),
        *(locks.c.fired, locks.c.log_of, locks.c.cursor, counts.c.released),
        taken_in.label("taken_in"),
        behind.label("behind"),
        case((valid, locks.c.head), else_=UNKNOWN).label("head"),
        locks.c.version,
    )


@lru_cache(maxsize=16)
def _reading(
    database: dialect.Dialect,
    *,
    several: bool,
    some: bool,
    suspects: ColumnElement[Any] | None = None,
    lock: bool = False,
) -> Select[Any]:
    """
    Return the statement that reads backlogs, with locks or not, and whether suspects wait.

    For a list of queues, PostgreSQL plans it anew each time, which takes longer than to run it for
    one. So unless there are *several*, the parameter is the id of one queue.
    """
    each: FromClause = shard_locks
    if not database.keeps_versions:
        query = _backlogs(shards, shard_locks, counters).select_from(shard_totals)
        here = dialect.one_of_given(each.c.queue_id, "these")
        query = query.where(here, each.c.magazine == bindparam("in"))
    else:
        one = queues.c.id == bindparam("these", type_=queues.c.id.type)
        here = dialect.one_of_given(queues.c.id, "these") if several else one
        source, rows, each = side_by_side(here, bindparam("in"), lock=lock)
        query = _backlogs(*rows).select_from(source)
    if some:
        query = query.where(dialect.one_of_given(each.c.shard, "at"))
    # Rows that are locked one after the other come in this order by themselves.
    if not lock or not database.keeps_versions:
        query = query.order_by(each.c.queue_id, each.c.shard)
    return query if suspects is None else query.add_columns(suspects.label("suspects"))


@lru_cache(maxsize=4)
def _locking_these(database: dialect.Dialect, *, skip_locked: bool) -> Select[Any]:
    """Return the statement that locks some shards, in the order in which they are given."""
    given = database.rows_of((*_KEY, "version"))
    loads, counts = (newest_of(table, given, given.c.magazine) for table in (shards, counters))
    # Not an order of the whole statement, which would lock all before it leaves out the last ones.
    locks = newest_of(
        shard_locks, given, given.c.magazine, since=given.c.version, skip_locked=skip_locked
    )
    source = given.join(loads, true()).join(counts, true()).join(locks, true())
    query = _backlogs(loads, locks, counts).select_from(source)
    if not skip_locked:
        return query
    waits = query.selected_columns.taken_in + query.selected_columns.behind > 0
    return query.where(waits).limit(bindparam("most", type_=BigInteger))


#: Whether messages of a log wait for one of some subscriptions.
ANY_BEHIND = exists().where(
    dialect.one_of_given(shard_locks.c.queue_id, "behind_of"),
    shard_locks.c.magazine == int(Magazine.MAIN),
    BEHIND > 0,
)


@lru_cache(maxsize=4)
def any_held(database: dialect.Dialect) -> ColumnElement[bool]:
    """Return the condition that some queues have messages: they wait, or are in flight."""
    here = dialect.one_of_given(queues.c.id, "these")

    def any_in(source: FromClause, rows: Sequence[FromClause]) -> ColumnElement[bool]:
        loads, locks, counts = rows
        left = reduce(add, (counts.c[name] for name in LEFT))
        # Not by "more than": a difference that is impossible counts, too.
        held = loads.c.loaded + _behind(locks) - counts.c.damaged != left
        return exists().select_from(source).where(held)

    if database.keeps_versions:
        return or_(*(any_in(*side_by_side(here, int(magazine))[:2]) for magazine in Magazine))
    source = shard_totals.join(queues, (queues.c.id == shards.c.queue_id) & here)
    return any_in(source, (shards, shard_locks, counters))


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
    #: No message waits before this place, or `UNKNOWN`; and how many messages have ever come back.
    head: int = 0
    released: int = 0
    #: The version of its row in `shard_locks`.
    version: int = 0


def backlog(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, Backlog]:
    """Return the backlog of some shards, by default of all, without locking them."""
    query, given = _read(connection, queue_ids, magazine, shard_numbers)
    return _backlogs_of(connection.execute(query, given).all())


def see(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine,
    shard_numbers: Collection[int] | None,
    suspects: ColumnElement[Any],
    about: Mapping[str, Any],
) -> tuple[dict[ShardKey, Backlog], bool]:
    """Return the same, and the value of *suspects*, whose parameters are *about*."""
    query, given = _read(connection, queue_ids, magazine, shard_numbers, suspects=suspects)
    rows = connection.execute(query, {**given, **about}).all()
    return _backlogs_of(rows), any(row.suspects for row in rows)


def lock(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
) -> dict[ShardKey, Backlog]:
    """Wait for the locks of some shards, by default of all; return their backlog once locked."""
    query, given = _read(connection, queue_ids, magazine, shard_numbers, lock=True)
    return _backlogs_of(connection.execute(query, given).all())


def lock_free(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine = Magazine.MAIN,
    shard_numbers: Collection[int] | None = None,
    seen: Mapping[ShardKey, Backlog] | None = None,
) -> dict[ShardKey, Backlog]:
    """
    Lock all free shards that have a backlog, without waiting; return the backlog.

    *seen*: the backlog of these shards, and of others, if it was just read.
    """
    if seen is None:
        seen = backlog(connection, queue_ids, magazine, shard_numbers)
    seen = {key: shard for key, shard in seen.items() if shard.waiting and key[0] in queue_ids}
    if not dialect.of(connection).writes_in_parallel:
        return seen
    return lock_these(connection, seen, most=len(seen))


def lock_these(
    connection: Connection, seen: Mapping[ShardKey, Backlog], most: int | None = None
) -> dict[ShardKey, Backlog]:
    """
    Lock shards whose backlog was seen before, in their order; return the backlog once locked.

    With *most*, lock so many of those that are free and have a backlog, without waiting.
    """
    database = dialect.of(connection)
    columns: dict[str, list[int | None]] = {
        name: [key[at] for key in seen] for at, name in enumerate(_KEY)
    }
    columns["version"] = [shard.version for shard in seen.values()]
    given = database.given_rows(columns)
    query = _locking_these(database, skip_locked=most is not None)
    given = given if most is None else given | {"most": most}
    found = _backlogs_of(connection.execute(query, given).all())
    if not any(shard.log_of and shard.version > seen[key].version for key, shard in found.items()):
        return found
    # Another transaction ended during the wait. The statement sees the cursor that it has left, and
    # not yet the messages that it took in.
    ids, magazines, numbers = (sorted({key[at] for key in found}) for at in range(len(_KEY)))
    present = backlog(connection, ids, Magazine(magazines[0]), numbers)
    return {key: present[key] for key in found}


def load_pointers(
    connection: Connection,
    queue_id: int,
    shard_numbers: Collection[int] | None = None,
    *,
    lock: bool = False,
) -> dict[ShardKey, int]:
    """Return the load pointers of some shards of main, or of all; *lock*: block loads into them."""
    query = _pointer_query([queue_id], Magazine.MAIN, shard_numbers)
    return _pointers(connection.execute(query.with_for_update() if lock else query).all())


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """A moment: a query that handles only messages loaded by then comes to an end."""

    #: The load pointer of each shard: only messages before it are fired.
    pointers: Mapping[ShardKey, int]
    #: The catalog's time: only messages without a firing since then are fired.
    at: int

    @staticmethod
    def now(catalog: Catalog, queue_ids: Sequence[int], magazine: Magazine) -> Horizon:
        """Return the present moment of some queues."""
        with catalog.read() as connection:
            return Horizon.of(connection, queue_ids, magazine)

    @staticmethod
    def of(connection: Connection, queue_ids: Sequence[int], magazine: Magazine) -> Horizon:
        """Return the moment that a transaction sees."""
        query = _pointer_query(queue_ids, magazine, None)
        rows = connection.execute(query.add_columns(dialect.now().label("at"))).all()
        # A queue that was dropped has no shards.
        at = max((int(row.at) for row in rows), default=0) or dialect.read_clock(connection)
        return Horizon(pointers=_pointers(rows), at=at)


def _read(
    connection: Connection,
    queue_ids: Collection[int],
    magazine: Magazine,
    shard_numbers: Collection[int] | None,
    **wanted: Any,
) -> tuple[Select[Any], dict[str, Any]]:
    """Return the statement of `_reading`, and its parameters."""
    database = dialect.of(connection)
    several = len(queue_ids) != 1 or not database.keeps_versions
    these = queue_ids if several else next(iter(queue_ids))
    given: dict[str, Any] = {"these": these, "in": int(magazine)}
    if shard_numbers is not None:
        given["at"] = shard_numbers
    return _reading(database, several=several, some=shard_numbers is not None, **wanted), given


def _backlogs_of(rows: Sequence[Row[Any]]) -> dict[ShardKey, Backlog]:
    found = {}
    for row in rows:
        try:
            found[row.queue_id, row.magazine, row.shard] = Backlog(
                waiting=max(row.taken_in + row.behind, 0),
                fired=int(row.fired),
                behind=max(row.behind, 0),
                log_of=int(row.log_of),
                cursor=int(row.cursor),
                head=int(row.head),
                released=int(row.released),
                version=int(row.version),
            )
        except UNREADABLE as error:
            raise damaged(shard_locks, _named(row), error) from error
    return found


def _pointer_query(
    queue_ids: Collection[int], magazine: Magazine, shard_numbers: Collection[int] | None
) -> Select[Any]:
    key = (shards.c.queue_id, shards.c.magazine, shards.c.shard)
    return (
        select(*key, shards.c.load_pointer)
        .where(
            dialect.one_of(shards.c.queue_id, queue_ids),
            shards.c.magazine == int(magazine),
            *dialect.among(shards.c.shard, shard_numbers),
        )
        .order_by(shards.c.queue_id, shards.c.shard)
    )


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
