"""Consumers and their tickets in the catalog: enlisted, alive, fenced off.

A consumer that is started again gets a higher epoch; whoever still acts with an older one is
refused, so that two lives of one consumer never fire side by side.
"""

from __future__ import annotations

from sqlalchemy import Connection, delete, func, insert, null, select, update

from queue_core.catalog import dialect
from queue_core.catalog.tables import consumers, slices, tickets
from queue_core.errors import ConsumerFenced
from queue_core.model import Consumer, State

#: A consumer whose heart has not beaten for so many seconds is dead.
DEAD_AFTER_SECONDS = 60.0

#: How the names of those begin who keep what they have received.
KEEPER = "keeper:"


def enlist(connection: Connection, name: str, *, beats: bool) -> Consumer:
    """
    Start a life of the consumer of that name; any earlier one is over.

    One that *beats* promises to say again and again that it lives, and is then not swept. Of others
    only the age of what they have fired counts.
    """
    now = dialect.now()
    alive = now if beats else null()
    statement = dialect.insert_new(connection, consumers).values(
        name=name, epoch=1, last_ticket=0, acknowledged=0, heartbeat_at=alive, created_at=now
    )
    row = connection.execute(
        statement.on_conflict_do_update(
            index_elements=[consumers.c.name],
            set_={"epoch": consumers.c.epoch + 1, "heartbeat_at": alive},
        ).returning(consumers.c.id, consumers.c.epoch)
    ).one()
    return Consumer(id=row.id, name=name, epoch=row.epoch)


def by_name(connection: Connection, name: str) -> Consumer | None:
    """The consumer of that name as it lives now, if there has been one."""
    row = connection.execute(
        select(consumers.c.id, consumers.c.epoch).where(consumers.c.name == name)
    ).first()
    return Consumer(id=row.id, name=name, epoch=row.epoch) if row else None


def check(connection: Connection, consumer: Consumer) -> None:
    """Hold on to this life of the consumer until the end of the transaction; `ConsumerFenced`."""
    here = select(consumers.c.id).where(
        consumers.c.id == consumer.id, consumers.c.epoch == consumer.epoch
    )
    if connection.scalar(dialect.locked(connection, here)) is None:
        raise _fenced(consumer)


def heartbeat(connection: Connection, consumer: Consumer) -> None:
    """Say that the consumer lives; raises `ConsumerFenced`."""
    _guarded(connection, consumer, heartbeat_at=dialect.now())


def new_ticket(
    connection: Connection, consumer: Consumer, *, seen: bool, browsed: str | None = None
) -> tuple[int, int]:
    """
    The consumer's next ticket: its number and the time; raises `ConsumerFenced`.

    *seen* tells that its messages are handed out at once, without being planned first: then
    nothing needs to be noted, since such a ticket is never asked for again.
    """
    number, fired_at = _guarded(connection, consumer, last_ticket=consumers.c.last_ticket + 1)
    if not seen or browsed is not None:
        connection.execute(
            insert(tickets).values(
                consumer_id=consumer.id, number=number, fired_at=fired_at, browsed=browsed
            )
        )
    return number, fired_at


def ticket_behind(connection: Connection, consumer: Consumer, after: int) -> int | None:
    """
    The ticket that follows *after*, if it was fired already; None when that is still to be done.

    One that is done with follows as well, and holds nothing: a checkpoint that has lost its newest
    batches gives their numbers again, under which a sink takes nothing new.
    """
    acknowledged = connection.scalar(
        select(consumers.c.acknowledged).where(consumers.c.id == consumer.id)
    )
    if acknowledged is not None and after < acknowledged:
        # One for each batch; but a new checkpoint is not led through all that ever was.
        return after + 1 if after else int(acknowledged)
    return connection.scalar(
        select(tickets.c.number)
        .where(tickets.c.consumer_id == consumer.id, tickets.c.number > after)
        .order_by(tickets.c.number)
        .limit(1)
    )


def in_flight(connection: Connection, consumer: Consumer) -> int:
    """How many messages a consumer holds."""
    held = select(func.sum(slices.c.count)).where(
        slices.c.consumer_id == consumer.id, slices.c.state == int(State.FIRED)
    )
    return int(connection.scalar(held) or 0)


def mark_planned(connection: Connection, consumer_id: int, after: int, upto: int) -> list[int]:
    """
    Note that somebody is shown the messages of tickets *after* (exclusive) to *upto*.

    Returns those that an earlier life of the consumer was shown before this one.
    """
    epoch = select(consumers.c.epoch).where(consumers.c.id == consumer_id).scalar_subquery()
    shown = connection.execute(
        update(tickets)
        .where(
            tickets.c.consumer_id == consumer_id,
            tickets.c.number > after,
            tickets.c.number <= upto,
            tickets.c.planned_epoch.is_(None) | (tickets.c.planned_epoch < epoch),
        )
        .values(
            planned_at=func.coalesce(tickets.c.planned_at, dialect.now()),
            lives=tickets.c.lives + 1,
            planned_epoch=epoch,
        )
        .returning(tickets.c.number, tickets.c.lives)
    )
    return sorted(row.number for row in shown if row.lives > 1)


def close_tickets(connection: Connection, consumer: Consumer, upto: int) -> None:
    """The consumer is done with all tickets up to *upto*; raises `ConsumerFenced`."""
    _guarded(
        connection,
        consumer,
        acknowledged=dialect.greatest(connection, consumers.c.acknowledged, upto),
    )
    connection.execute(
        delete(tickets).where(tickets.c.consumer_id == consumer.id, tickets.c.number <= upto)
    )


def _guarded(connection: Connection, consumer: Consumer, **values: object) -> tuple[int, int]:
    """Change the consumer's row if this life of it goes on; return its last ticket and the time."""
    row = connection.execute(
        update(consumers)
        .where(consumers.c.id == consumer.id, consumers.c.epoch == consumer.epoch)
        .values(**values)
        .returning(consumers.c.last_ticket, dialect.now().label("at"))
    ).first()
    if row is None:
        raise _fenced(consumer)
    return int(row.last_ticket), int(row.at)


def _fenced(consumer: Consumer) -> ConsumerFenced:
    return ConsumerFenced(
        f"consumer {consumer.name!r} was started again elsewhere, which ends this one; "
        "give each query that runs at the same time a consumer name of its own"
    )
