"""Interests of consumers in queues, shared by all processes: which goes first, and which alone.

A consumer without a row precedes all others and holds none back. A consumer with a priority gets no
messages from a queue while a living consumer with a higher priority is interested in it. If a
consumer is exclusive, the others get no messages. Of all single active consumers, the first one
with the highest priority is active, and the others stand by. A living consumer sends a heartbeat
every `BEAT_SECONDS`, or every `QUIET_BEAT_SECONDS` while there is nothing to do.

Interests decide which consumer may fire. They do not guard messages: if a heartbeat is late and two
consumers fire at the same time, they still never get the same message.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)
from sqlalchemy.sql.selectable import FromClause

from queue_core.catalog import dialect, notifications, seals
from queue_core.catalog.holder_tables import consumers as consumer_rows
from queue_core.catalog.holder_tables import interests
from queue_core.catalog.holders import consumers, leases, named_locks, waiters
from queue_core.catalog.queues import check_unchanged, concurrency_of, dropped, given_up_error
from queue_core.catalog.record_tables import jobs
from queue_core.catalog.slices.shard_locks import any_held
from queue_core.catalog.tables import queues
from queue_core.errors import QueueTaken
from queue_core.values.model import Consumer, QueueInfo

SHARED, EXCLUSIVE, SINGLE = "shared", "exclusive", "single"
#: The claim of a consumer that only shows that it is there: it holds no other one back.
NONE = "none"

#: Seconds between two heartbeats of a consumer with an interest.
BEAT_SECONDS = 0.65
#: The same after one that has seen `Seen.quiet`.
QUIET_BEAT_SECONDS = 0.9
#: Seconds without a heartbeat after which a consumer holds no others back.
GONE_SECONDS = 1.5
#: Seconds without a heartbeat after which its interests are removed.
_FORGOTTEN_SECONDS = 60.0

#: The rank of a consumer without a priority.
_HIGHEST = 2**31


def claim_of(*, exclusive: bool, single_active: bool) -> str:
    """Return how a consumer shares its queues with others."""
    if exclusive:
        return EXCLUSIVE
    return SINGLE if single_active else SHARED


def register(
    connection: Connection,
    consumer: Consumer,
    queue_ids: Collection[int],
    *,
    priority: int | None = None,
    claim: str = SHARED,
    interested: bool = True,
) -> None:
    """
    Register a consumer with some queues, and whether it is *interested* in messages at first.

    Raises `QueueTaken` if another consumer is exclusive, or if this one asks to be exclusive and
    another one is active.
    """
    here = dialect.one_of(queues.c.id, queue_ids)
    # They are not dropped meanwhile. A transaction of a caller may have them, with a load.
    there = select(queues.c.id).where(here).order_by(queues.c.id)
    found = connection.scalars(there.with_for_update(read=True, key_share=True)).all()
    # One transaction after the other, so that only one consumer becomes exclusive on a queue.
    named_locks.take(connection, named_locks.INTERESTS, found)
    theirs = dialect.one_of(interests.c.queue_id, queue_ids)
    silent = select(consumer_rows.c.id).where(~_beats_since(_FORGOTTEN_SECONDS))
    connection.execute(delete(interests).where(theirs, interests.c.consumer_id.in_(silent)))
    claims = (SHARED, SINGLE, EXCLUSIVE) if claim == EXCLUSIVE else (EXCLUSIVE,)
    taken = connection.execute(
        select(queues.c.name, consumer_rows.c.name.label("by"), interests.c.claim)
        .select_from(interests.join(consumer_rows, consumer_rows.c.id == interests.c.consumer_id))
        .join(queues, queues.c.id == interests.c.queue_id)
        .where(
            theirs,
            interests.c.consumer_id != consumer.id,
            _beats(GONE_SECONDS),
            interests.c.claim.in_(claims),
        )
    ).first()
    if taken is not None:
        raise _taken(taken.name, taken.by, taken.claim == EXCLUSIVE)
    _add(connection, consumer, queue_ids, priority=priority, claim=claim, interested=interested)


def show(connection: Connection, consumer: Consumer, queue_ids: Collection[int]) -> None:
    """Note that a consumer reads some queues, without any claim on them."""
    _add(connection, consumer, queue_ids, priority=None, claim=NONE, interested=False)


def _add(
    connection: Connection, consumer: Consumer, queue_ids: Collection[int], **how: Any
) -> None:
    # Those of an earlier life, which may have had other queues.
    connection.execute(delete(interests).where(interests.c.consumer_id == consumer.id))
    at = dialect.read_clock(connection)
    row = {"consumer_id": consumer.id, "registered_at": at, **how}
    # Without those that were just dropped.
    there = select(queues.c.id).where(dialect.one_of(queues.c.id, queue_ids))
    for queue_id in connection.scalars(there.order_by(queues.c.id)).all():
        connection.execute(insert(interests).values(queue_id=queue_id, **row))


class Seen(NamedTuple):
    """What a heartbeat has seen of the queues of its consumer."""

    #: Their rows, as `concurrency_of` takes them, and its interest as `told`; None: it was removed.
    queues: list[Any]
    #: Whether all of them are in use, without messages and jobs, and without consumers that have a
    #: priority or a claim. Until the next heartbeat, nobody needs to look again.
    quiet: bool


def beat(connection: Connection, consumer: Consumer, queue_ids: Sequence[int]) -> Seen:
    """Record a heartbeat, and look at some queues; raises `ConsumerFenced`."""
    database = dialect.of(connection)
    if not database.keeps_versions:
        consumers.heartbeat(connection, consumer)
    given = consumers.life(consumer) | {"these": queue_ids}
    rows = connection.execute(_looking(database), given).all()
    if not rows:
        raise consumers.fenced(consumer)
    found = [row for row in rows if row.name is not None]
    return Seen(found, len(found) == len(queue_ids) and all(row.quiet for row in found))


def tell(connection: Connection, consumer: Consumer, *, interested: bool) -> None:
    """Record whether a consumer wants messages."""
    changed = connection.execute(
        update(interests)
        .where(interests.c.consumer_id == consumer.id, interests.c.interested != interested)
        .values(seals.changing(interests, interested=interested))
        .returning(interests.c.queue_id)
    )
    _notify(connection, changed.scalars().all())


def leave(connection: Connection, consumer: Consumer) -> None:
    """Remove the interests of a consumer, so that others need not wait for it."""
    mine = interests.c.consumer_id == consumer.id
    left = connection.execute(delete(interests).where(mine).returning(interests.c.queue_id))
    _notify(connection, left.scalars().all())


class Open(NamedTuple):
    """Some queues from which a consumer may fire now."""

    queue_ids: tuple[int, ...]
    #: How many living waiters are before it in their lines.
    ahead: int
    #: The names of those that get nothing more from a log.
    detached: tuple[str, ...] = ()


def open_to(
    connection: Connection,
    consumer: Consumer,
    queue_ids: Sequence[int],
    *,
    even_if_paused: bool = False,
    known: QueueInfo | None = None,
    waiter: int = 0,
) -> Open:
    """
    Return the queues of *queue_ids* from which a consumer may fire now.

    Paused queues give no messages, unless *even_if_paused*. *waiter* is the consumer's number in
    their lines; 0: before all others. Raises `QueueChanged` if *known*, one of them, has other
    columns or settings now, `NoSuchQueue` if it was dropped, `QueueDeactivated`, and `QueueTaken`
    where another consumer is exclusive. One statement, unless there are priorities or claims.
    """
    rows = connection.execute(_DOORS, {"these": queue_ids, "waiter": waiter}).all()
    if known is not None:
        shapes = {row.id: (row.schema_version, row.settings) for row in rows}
        if known.id not in shapes:
            raise dropped(known)
        check_unchanged(connection, known, shapes[known.id])
    for row in rows:
        if row.deactivated_at is not None:
            raise given_up_error(row.name, row.deactivated_at)
    closed = {row.id for row in rows if not even_if_paused and not concurrency_of(row)}
    names = {row.id: row.name for row in rows if row.ranked}
    if names:
        for row in connection.execute(_blocked(consumer, names)):
            if row.taken_by is not None:
                raise _taken(names[row.queue_id], row.taken_by, True)
            closed.add(row.queue_id)
    found = tuple(queue_id for queue_id in queue_ids if queue_id not in closed)
    detached = tuple(row.name for row in rows if row.detached_at and row.id not in closed)
    return Open(found, sum(row.ahead for row in rows if row.id not in closed), detached)


def held_back(connection: Connection, consumer: Consumer, queue_id: int) -> float | None:
    """
    Return for how many seconds other consumers hold this one back; None if they do not.

    After that time they count as gone, unless they send another heartbeat.
    """
    row = connection.execute(_blocked(consumer, [queue_id])).first()
    return None if row is None else max(row.until - row.now, 0) / 1e6


def _notify(connection: Connection, queue_ids: Collection[int]) -> None:
    if queue_ids:
        notifications.notify(connection, *queue_ids)


def _blocked(
    consumer: Consumer, queue_ids: Collection[int]
) -> Select[tuple[int, str | None, int, int]]:
    """Select the queues from which a consumer may not fire, with their exclusive consumer."""
    mine, other = interests.alias("mine"), interests.alias("other")
    higher = _rank(other) > _rank(mine)
    equal = _rank(other) == _rank(mine)
    earlier = or_(
        other.c.registered_at < mine.c.registered_at,
        and_(
            other.c.registered_at == mine.c.registered_at, other.c.consumer_id < mine.c.consumer_id
        ),
    )
    # Of two exclusive consumers, the earlier one counted as gone when the later one registered.
    alone = (other.c.claim == EXCLUSIVE) & ~_both(mine, EXCLUSIVE, earlier)
    # It concerns nobody else.
    active = (other.c.claim == SINGLE) & _both(mine, SINGLE, higher | (equal & earlier))
    return (
        select(
            other.c.queue_id,
            func.max(case((alone, consumer_rows.c.name), else_=None)).label("taken_by"),
            (func.max(consumer_rows.c.heartbeat_at) + int(GONE_SECONDS * 1e6)).label("until"),
            dialect.now().label("now"),
        )
        .select_from(other)
        .join(consumer_rows, consumer_rows.c.id == other.c.consumer_id)
        .outerjoin(
            mine, and_(mine.c.queue_id == other.c.queue_id, mine.c.consumer_id == consumer.id)
        )
        .where(
            dialect.one_of(other.c.queue_id, queue_ids),
            other.c.consumer_id != consumer.id,
            _beats(GONE_SECONDS),
            or_(alone, active, and_(other.c.interested, higher)),
        )
        .group_by(other.c.queue_id)
    )


def _both(mine: FromClause, claim: str, then: ColumnElement[bool]) -> ColumnElement[bool]:
    """Return the condition that this consumer has the same claim, and *then* holds."""
    return case((mine.c.claim == claim, then), else_=False)


def _rank(of: FromClause) -> ColumnElement[int]:
    return func.coalesce(of.c.priority, _HIGHEST)


def _beats(within: float) -> ColumnElement[bool]:
    """Whether a consumer has sent a heartbeat lately, by a clock that was not set back since."""
    return and_(_beats_since(within), ~leases.is_ahead(consumer_rows.c.heartbeat_at))


def _beats_since(within: float) -> ColumnElement[bool]:
    return func.coalesce(consumer_rows.c.heartbeat_at, 0) >= dialect.after(-within)


def _taken(queue: str, by: str, exclusively: bool) -> QueueTaken:
    if exclusively:
        return QueueTaken(
            f"queue {queue!r}: consumer {by!r} has it to itself; stop that one first, or let "
            "neither be exclusive"
        )
    return QueueTaken(
        f"queue {queue!r} cannot be exclusive while consumer {by!r} is active; stop that one first"
    )


# Not `in_`, whose parameters SQLAlchemy writes into the statement anew each time that it runs.
_CLAIMS = [interests.c.claim == claim for claim in (EXCLUSIVE, SINGLE)]
_RANKED = exists().where(
    interests.c.queue_id == queues.c.id, or_(interests.c.priority.is_not(None), *_CLAIMS)
)


@lru_cache(maxsize=4)
def _looking(database: dialect.Dialect) -> Select[Any]:
    """Return the statement that looks at queues for `beat`; on a server, it beats as well."""
    beat = (consumers.HEARTBEAT if database.keeps_versions else consumers.LIFE).cte("beat")
    has_jobs = exists().where(jobs.c.queue_id == queues.c.id, jobs.c.ended_at.is_(None))
    is_used = queues.c.deactivated_at.is_(None) & (queues.c.detached_at == 0)
    quiet = is_used & ~_RANKED & ~has_jobs & ~any_held(database)
    mine = (interests.c.queue_id == queues.c.id, interests.c.consumer_id == bindparam("its_id"))
    told = select(interests.c.interested).where(*mine).scalar_subquery().label("told")
    columns = (queues.c.name, queues.c.settings, queues.c.paused_at, quiet.label("quiet"), told)
    these = dialect.one_of_given(queues.c.id, "these")
    return select(*columns).select_from(beat.outerjoin(queues, these))


#: What opens and closes some queues to consumers.
_DOORS = select(
    queues.c.id,
    queues.c.name,
    queues.c.deactivated_at,
    queues.c.schema_version,
    queues.c.settings,
    queues.c.paused_at,
    queues.c.detached_at,
    _RANKED.label("ranked"),
    waiters.ahead_in(queues.c.id, waiters.FIRE).label("ahead"),
).where(dialect.one_of_given(queues.c.id, "these"))
