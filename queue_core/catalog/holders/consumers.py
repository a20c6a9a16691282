"""Consumers and their tickets in the catalog: enlisted, alive, fenced off.

A consumer that starts again gets a higher epoch, and calls with an older epoch are refused. So two
processes never fire as the same consumer.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Update,
    and_,
    bindparam,
    case,
    delete,
    exists,
    func,
    not_,
    null,
    or_,
    select,
    update,
)
from sqlalchemy.engine import URL

from queue_core.catalog import dialect, seals
from queue_core.catalog.databases.takeovers import JUMP
from queue_core.catalog.holder_tables import consumers, interests, tickets
from queue_core.catalog.record_tables import publications
from queue_core.catalog.records.restored import RESTORE
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices.conditions import ago
from queue_core.catalog.tables import queues, slices
from queue_core.errors import BadOption, Conflict, ConsumerFenced
from queue_core.values.model import Consumer, State
from queue_core.values.names import KEEPER, host, is_of_process, nearest

#: Seconds without a heartbeat after which a consumer is dead.
DEAD_AFTER_SECONDS = 60.0

#: The option ``ack`` of queries that delete all messages of a committed batch.
DELETES_ON_COMMIT = "onCommit"

#: The option ``ack`` of queries whose sink settles messages one by one.
SETTLES = "settle"

#: The condition of keepers: the consumers of `Queue.get_and_keep`, and queries with ack=keep.
IS_KEEPER = consumers.c.name.startswith(KEEPER, autoescape=True)


class Unacknowledged(Exception):
    """Spark has committed tickets, and the restored catalog does not know it."""


@dataclass(frozen=True, slots=True)
class ConsumerRow:
    """The row of a consumer that a transaction has locked, as far as tickets need it."""

    last_ticket: int
    acknowledged: int
    #: The time by the database's clock, and by the monotonic one, when it was read.
    at: int
    seen: float

    def now(self) -> int:
        """Return the present time by the database's clock."""
        return self.at + round((time.monotonic() - self.seen) * 1e6)


_log = logging.getLogger(__name__)

#: The lives that this process has begun, by catalog, and their ids. A forked child has none.
_own: defaultdict[URL, dict[tuple[str, int], int]] = defaultdict(dict)
os.register_at_fork(after_in_child=_own.clear)


def enlist(
    connection: Connection,
    name: str,
    *,
    beats: bool,
    ack: str | None = None,
    sweepable: bool = True,
    anew: bool = False,
    follows: int | None = None,
) -> Consumer:
    """
    Start a life of the consumer *name*, which ends any earlier one.

    With *beats*, the consumer sends heartbeats, and its messages are not swept while it lives.
    Without, only the time since the firing counts. *ack* is the option of a query. Without
    *sweepable*, its messages are not swept after its death either. *anew* means that this life does
    not know the tickets of earlier lives, so that their messages can be swept. Raises
    `ConsumerFenced` if another life than number *follows* was the last one.
    """
    now = dialect.read_clock(connection)
    life: dict[str, object] = {"heartbeat_at": dialect.now() if beats else null(), "ack": ack}
    life |= {"host": host(), "pid": os.getpid()}
    new = {"name": name, "epoch": 1, "last_ticket": 0, "acknowledged": 0, "created_at": now}
    again = {"epoch": consumers.c.epoch + 1, "sweepable": sweepable}
    if anew:
        again["acknowledged"] = consumers.c.last_ticket
    statement = dialect.insert_new(connection, consumers)
    # After a takeover of PostgreSQL, a lost life may have had the next number, and none this id.
    its_id = statement.excluded.id
    again["epoch"] = case((its_id > consumers.c.epoch + JUMP, its_id), else_=again["epoch"])
    values = life | seals.changing(consumers, **again)
    expected = None if follows is None else consumers.c.epoch == follows
    row = connection.execute(
        statement.values(new | life | {"sweepable": sweepable})
        .on_conflict_do_update(index_elements=[consumers.c.name], set_=values, where=expected)
        .returning(consumers.c.id, consumers.c.epoch)
    ).first()
    if row is None or (follows and row.epoch == 1):
        raise fenced(Consumer(id=0, name=name, epoch=0))
    consumer = Consumer(id=row.id, name=name, epoch=row.epoch)
    _own[connection.engine.url][name, row.epoch] = row.id
    return consumer


def own_ids(connection: Connection) -> list[int]:
    """Return the ids of the consumers of this catalog whose present life is of this process."""
    own = _own[connection.engine.url].copy()
    found = connection.execute(_NAMED, {"names": sorted({name for name, _ in own})})
    return [row.id for row in found if own.get((row.name, row.epoch)) == row.id]


def by_name(connection: Connection, name: str) -> Consumer | None:
    """Return the consumer *name* in its present epoch; None if there never was one."""
    row = connection.execute(
        select(consumers.c.id, consumers.c.epoch).where(consumers.c.name == name)
    ).first()
    return Consumer(id=row.id, name=name, epoch=row.epoch) if row else None


def names_of(connection: Connection, ids: Collection[int]) -> dict[int, str]:
    """Return the names of those consumers that are still there."""
    return dict(connection.execute(_NAMING, {"these": ids}).all())


def check(
    connection: Connection,
    consumer: Consumer,
    logged: int = 0,
    queue_ids: Sequence[int] = (),
    *,
    committed: int = 0,
) -> ConsumerRow:
    """
    Lock the consumer until the transaction ends; raises `ConsumerFenced`.

    *logged* is the newest ticket in Spark's log. If this catalog has not fired it, the catalog is
    older than the checkpoint: all tickets up to it are skipped, and reported for the queues.
    *committed* is the newest ticket that Spark has committed. Such tickets were acknowledged before
    anything was fired or planned after them; raises `Unacknowledged` if this one is not. Their
    messages must first be settled, by the publications that the catalog has now.
    """
    row = connection.execute(_LOCKING, life(consumer)).first()
    if row is None:
        raise fenced(consumer)
    if row.last_ticket < logged:
        _skip_forgotten(connection, consumer, row.last_ticket + 1, logged, queue_ids)
    acknowledged = row.acknowledged or 0
    if acknowledged < committed:
        raise Unacknowledged
    return ConsumerRow(max(row.last_ticket, logged), acknowledged, row.at, time.monotonic())


def check_life(connection: Connection, consumer: Consumer) -> None:
    """Raise `ConsumerFenced` if the consumer was started again; locks nothing."""
    if connection.scalar(LIFE, life(consumer)) is None:
        raise fenced(consumer)


def heartbeat(connection: Connection, consumer: Consumer) -> None:
    """Record a heartbeat of the consumer; raises `ConsumerFenced`."""
    _guarded(connection, consumer, HEARTBEAT)


def next_ticket(connection: Connection, consumer: Consumer, count: int = 1) -> tuple[int, int]:
    """Reserve *count* numbers; return the last one, and the time. Raises `ConsumerFenced`."""
    return _guarded(connection, consumer, _NEXT_TICKETS, count=count)


def acknowledge(
    connection: Connection, consumer: Consumer, upto: int, logged: int, queue_ids: Sequence[int]
) -> None:
    """Mark the tickets up to *upto* as finished; *logged* and *queue_ids* as in `check`."""
    furthest = case((consumers.c.acknowledged < upto, upto), else_=consumers.c.acknowledged)
    finishing = _changing(**seals.changing(consumers, acknowledged=furthest))
    last, _ = _guarded(connection, consumer, finishing)
    if last < logged:
        _skip_forgotten(connection, consumer, last + 1, logged, queue_ids)


def ack_of(connection: Connection, consumer: int | str) -> str | None:
    """Return the option ``ack`` of a consumer, given by its number or its name."""
    column = consumers.c.id if isinstance(consumer, int) else consumers.c.name
    return connection.scalar(select(consumers.c.ack).where(column == consumer))


def deleting_on_commit(connection: Connection, ids: Collection[int]) -> str | None:
    """Return the name of one of some consumers that deletes messages when it commits them."""
    these = dialect.one_of(consumers.c.id, ids)
    deleting = select(consumers.c.name).where(these, consumers.c.ack == DELETES_ON_COMMIT)
    return connection.scalar(deleting.limit(1))


def lock_dead(
    connection: Connection, consumer_id: int, dead_after: float
) -> tuple[int, int] | None:
    """
    Lock a dead consumer until the transaction ends; None if it lives, or is gone.

    Return its last ticket that is finished, and its last ticket.
    """
    of_dead = and_(consumers.c.id == consumer_id, not_(is_alive(dead_after)))
    query = select(consumers.c.acknowledged, consumers.c.last_ticket).where(of_dead)
    row = connection.execute(query.with_for_update()).first()
    return None if row is None else (row.acknowledged, row.last_ticket)


def lock_named(connection: Connection, name: str) -> int | None:
    """Lock a consumer; return its last ticket that is finished. None: there never was one."""
    query = select(consumers.c.acknowledged).where(consumers.c.name == name)
    acknowledged: int | None = connection.scalar(query.with_for_update())
    return acknowledged


def finish_tickets(connection: Connection, consumer_id: int, upto: int) -> None:
    """Let the tickets of a dead consumer belong to an earlier life."""
    seals.change(connection, consumers, consumers.c.id == consumer_id, acknowledged=upto)


def reserved() -> ColumnElement[bool]:
    """Whether the messages of a ticket wait for the restart of their query: no sweep takes them."""
    return and_(consumers.c.sweepable.is_(False), awaits())


def awaits() -> ColumnElement[bool]:
    """Whether the holder of a slice may still finish it: a keeper may, after its batch too."""
    return or_(consumers.c.acknowledged < slices.c.ticket, IS_KEEPER)


def is_alive(dead_after: float) -> ColumnElement[bool]:
    """Whether a consumer has sent a heartbeat within the last *dead_after* seconds."""
    return func.coalesce(consumers.c.heartbeat_at, 0) > ago(dead_after)


def check_dead(connection: Connection, name: str, dead_after: float) -> None:
    """Raise `BadOption` unless *name* is the name of a dead consumer."""
    alive = connection.scalar(select(is_alive(dead_after)).where(consumers.c.name == name))
    if alive is None:
        names = connection.scalars(select(consumers.c.name)).all()
        raise BadOption(
            f"consumer={name!r}{nearest(name, names)}: no consumer of this store has that name; "
            "the view consumers lists the names"
        )
    if alive:
        raise BadOption(
            f"consumer={name!r} is alive: stop its query, and wait {dead_after:g} seconds"
        )


def reserving(connection: Connection, queue_id: int) -> dict[str, int]:
    """Return how many messages wait for the restart of their dead consumer, by its name."""
    found = connection.execute(
        select(consumers.c.name, func.sum(slices.c.count))
        .join(consumers, consumers.c.id == slices.c.consumer_id)
        .where(
            slices.c.queue_id == queue_id,
            slices.c.state == int(State.FIRED),
            reserved(),
            not_(is_alive(DEAD_AFTER_SECONDS)),
        )
        .group_by(consumers.c.name)
        .order_by(consumers.c.name)
    )
    return {name: int(count) for name, count in found}


def _skip_forgotten(
    connection: Connection, consumer: Consumer, first: int, last: int, queue_ids: Sequence[int]
) -> None:
    """
    Skip the tickets from *first* to *last*, and report them.

    Spark has committed them, or plans a batch with them. A firing with such a number would be
    acknowledged before any consumer has seen it.
    """
    values = seals.changing(consumers, last_ticket=last)
    connection.execute(update(consumers).where(_IS_CURRENT).values(values), life(consumer))
    forgotten = f"ticket {first}" if first == last else f"tickets {first} to {last}"
    here = select(queues.c.id, queues.c.name).where(dialect.one_of(queues.c.id, queue_ids))
    for queue_id, name in connection.execute(here.order_by(queues.c.name)).all():
        moves = Moves()
        moves.count(None, last - first + 1, f"{forgotten} of consumer {consumer.name!r}", None)
        moves.record(connection, queue_id, RESTORE)
        _log.warning(
            "queue %r, consumer %r: a checkpoint names %s, which the catalog does not know, so the "
            "catalog was restored or is new; messages of these tickets that the catalog knows are "
            "delivered again, and messages that were loaded after the backup are lost",
            name,
            consumer.name,
            forgotten,
        )


def _guarded(
    connection: Connection, consumer: Consumer, changing: Update, **values: int
) -> tuple[int, int]:
    """Change the consumer's row if its epoch is current; return its last ticket and the time."""
    row = connection.execute(changing, life(consumer) | values).first()
    if row is None:
        raise fenced(consumer)
    return int(row.last_ticket), int(row.at)


def life(consumer: Consumer) -> dict[str, object]:
    """Return the parameters of `NOT_AGAIN`, and of the statements here."""
    return {"its_id": consumer.id, "its_epoch": consumer.epoch, "its_name": consumer.name}


#: The condition that a row belongs to a consumer in its present life.
_IS_CURRENT = and_(
    consumers.c.id == bindparam("its_id"),
    consumers.c.epoch == bindparam("its_epoch"),
    # A restored catalog can have assigned the number to another consumer.
    consumers.c.name == bindparam("its_name"),
)
LIFE = select(consumers.c.last_ticket).where(_IS_CURRENT)
#: Whether a ticket is of this life, and of none that begins meanwhile; `life` has the values.
NOT_AGAIN = dialect.not_indexed(slices.c.ticket) <= LIFE.scalar_subquery()


def _changing(**values: object) -> Update:
    """Return the statement that changes a consumer's row in its present life."""
    at = dialect.now().label("at")
    return (
        update(consumers).where(_IS_CURRENT).values(**values).returning(consumers.c.last_ticket, at)
    )


HEARTBEAT = _changing(heartbeat_at=dialect.now())
_NEXT_TICKETS = _changing(
    **seals.changing(consumers, last_ticket=consumers.c.last_ticket + bindparam("count"))
)
_LOCKING = (
    select(consumers.c.last_ticket, consumers.c.acknowledged, dialect.now().label("at"))
    .where(_IS_CURRENT)
    .with_for_update()
)
_NAMING = select(consumers.c.id, consumers.c.name).where(
    dialect.one_of_given(consumers.c.id, "these")
)
_NAMED = select(consumers.c.id, consumers.c.name, consumers.c.epoch).where(
    dialect.one_of_given(consumers.c.name, "names")
)


def fenced(consumer: Consumer) -> ConsumerFenced:
    """Return the error of a consumer whose life has ended."""
    return ConsumerFenced(
        f"consumer {consumer.name!r} was started again elsewhere, or was removed after a week "
        "without a sign of life, or the catalog was restored, so this one has ended; give each "
        "query that runs at the same time, and each source of a query, a consumer name of its own"
    )


_HOLDS_NOTHING = ~exists().where(slices.c.consumer_id == consumers.c.id)


def forget(connection: Connection, before: int) -> None:
    """
    Remove consumers of processes that have been idle since *before* and hold nothing.

    Their names are never used again: a process takes another one each day. Consumers with names
    that somebody chose stay, and so do those of streaming queries: a checkpoint may come back after
    any time, and its tickets must not be given out a second time.
    """
    old = func.coalesce(consumers.c.heartbeat_at, consumers.c.created_at) < before
    conditions = [old, consumers.c.ack.is_(None), _HOLDS_NOTHING]
    idle = select(consumers.c.id, consumers.c.name).where(*conditions)
    ids = [row.id for row in connection.execute(idle) if is_of_process(row.name)]
    _remove(connection, ids, conditions)


def forget_named(connection: Connection, names: Iterable[str]) -> list[str]:
    """Remove dead consumers by name; raises `Conflict` if one holds messages."""
    these = dialect.one_of(consumers.c.name, sorted(names))
    found = dict(connection.execute(select(consumers.c.name, consumers.c.id).where(these)).all())
    gone = _remove(connection, list(found.values()), [_HOLDS_NOTHING])
    kept = sorted(found.keys() - set(gone))
    if kept:
        raise Conflict(
            f"consumer {kept[0]!r} holds messages; no consumer was removed: settle its messages, "
            "or sweep them with the consumer's name, then try again"
        )
    return gone


def forget_unused(connection: Connection, before: int) -> list[str]:
    """Remove consumers whose last heartbeat was before a time, and that hold nothing."""
    conditions = [consumers.c.heartbeat_at < before, _HOLDS_NOTHING]
    ids = connection.scalars(select(consumers.c.id).where(*conditions)).all()
    return _remove(connection, ids, conditions)


def forget_batches(connection: Connection, before: int) -> list[str]:
    """Remove the last batches of queries that were published before a time; return the queries."""
    gone = connection.scalars(
        delete(publications)
        .where(publications.c.published_at < before)
        .returning(publications.c.query_id)
    )
    return sorted(set(gone))


def _remove(
    connection: Connection, ids: Sequence[int], conditions: Sequence[ColumnElement[bool]]
) -> list[str]:
    """Remove those of some consumers that still fulfil conditions; return their names."""
    # A firing locks its consumer before it takes messages. So what is locked is looked at again.
    these = dialect.one_of(consumers.c.id, ids)
    ordered = select(consumers.c.id).where(these).order_by(consumers.c.id)
    connection.execute(ordered.with_for_update()).all()
    gone = connection.execute(
        delete(consumers).where(these, *conditions).returning(consumers.c.id, consumers.c.name)
    ).all()
    # Where a browser of that name would have gone on, and what it wanted.
    for table in (tickets, interests):
        removed = dialect.one_of(table.c.consumer_id, [row.id for row in gone])
        connection.execute(delete(table).where(removed))
    return sorted(row.name for row in gone)
