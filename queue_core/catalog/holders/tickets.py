"""Tickets: one row for each firing whose messages are handed out later, by a plan.

A ticket of a dead consumer that was never planned is unseen: nobody saw its messages. A browser's
ticket holds no messages. It has a window, the places that it shows, which records where its
consumer continues. It is never unseen.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    false,
    func,
    insert,
    or_,
    select,
    update,
)

from queue_core.catalog import dialect
from queue_core.catalog.damage import decoding
from queue_core.catalog.holder_tables import consumers, tickets
from queue_core.catalog.holders.consumers import SETTLES, ConsumerRow, acknowledge, next_ticket
from queue_core.catalog.holders.ticket_numbers import BLOCK, TicketNumbers
from queue_core.catalog.slices.conditions import Rules
from queue_core.catalog.slices.slices import ShardKey
from queue_core.catalog.tables import slices
from queue_core.values.model import Consumer, Slice, TicketRange

#: The first place (inclusive) and the last one (exclusive), by shard.
Window = Mapping[ShardKey, tuple[int, int]]
_ACKNOWLEDGED = select(consumers.c.acknowledged).where(consumers.c.id == bindparam("its_id"))
#: The numbers of some tickets, by the id of their consumer.
Numbers = Mapping[int, Sequence[int]]


def new_ticket(
    connection: Connection, consumer: Consumer, *, seen: bool, browsed: str | None = None
) -> tuple[int, int]:
    """
    Return the number of the consumer's next ticket, and the time; raises `ConsumerFenced`.

    With *seen*, its messages are handed out at once, without a plan. Such a ticket is never
    requested again, and needs no row.
    """
    number, fired_at = next_ticket(connection, consumer)
    if not seen or browsed is not None:
        row = {"consumer_id": consumer.id, "number": number, "fired_at": fired_at}
        connection.execute(insert(tickets).values(row | {"browsed": browsed}))
    return number, fired_at


def reserved_ticket(
    connection: Connection, consumer: Consumer, numbers: TicketNumbers, locked: ConsumerRow
) -> tuple[int, int, range]:
    """
    Return the same as `new_ticket` without a row, for a locked consumer, and a block of numbers.

    The block is to be kept after the commit, unless it is empty.
    """
    number = numbers.next(consumer, locked.last_ticket, locked.acknowledged)
    if number is not None:
        return number, locked.now(), range(0)
    last, fired_at = next_ticket(connection, consumer, BLOCK)
    block = range(last - BLOCK + 1, last + 1)
    return block.start, fired_at, block[1:]


def ticket_behind(connection: Connection, consumer: Consumer, after: int) -> int | None:
    """
    Return the ticket that follows *after*; None if it has not been fired yet.

    An acknowledged ticket also counts, and is empty: a checkpoint that has lost its newest batches
    repeats their numbers, and the sink accepts no new rows under these numbers.
    """
    acknowledged = connection.scalar(_ACKNOWLEDGED, {"its_id": consumer.id})
    if acknowledged is not None and after < acknowledged:
        # One ticket for each batch, but a new checkpoint skips all earlier tickets at once.
        return after + 1 if after else int(acknowledged)
    return connection.scalar(
        select(tickets.c.number)
        .where(tickets.c.consumer_id == consumer.id, tickets.c.number > after)
        .order_by(tickets.c.number)
        .limit(1)
    )


def mark_planned(connection: Connection, planned: TicketRange) -> list[int]:
    """
    Record that the messages of tickets are handed out, by the present life of their consumer.

    Return the tickets that an earlier life of the consumer had.
    """
    epoch = planned.consumer.epoch
    shown = connection.execute(
        update(tickets)
        .where(
            tickets.c.consumer_id == planned.consumer.id,
            tickets.c.number > planned.after,
            tickets.c.number <= planned.upto,
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


def close_tickets(
    connection: Connection,
    consumer: Consumer,
    upto: int,
    logged: int | None = None,
    queue_ids: Sequence[int] = (),
) -> None:
    """
    Acknowledge all tickets of a consumer up to *upto*; raises `ConsumerFenced`.

    *logged* and *queue_ids* are as in `check`; *logged* is *upto* by default.
    """
    acknowledge(connection, consumer, upto, upto if logged is None else logged, queue_ids)
    # A browser's newest ticket says where it continues, even if it is older than a checkpoint.
    newest = select(func.max(tickets.c.number)).where(tickets.c.consumer_id == consumer.id)
    connection.execute(
        delete(tickets).where(
            tickets.c.consumer_id == consumer.id,
            tickets.c.number <= upto,
            or_(tickets.c.browsed.is_(None), tickets.c.number < newest.scalar_subquery()),
        )
    )


def find(connection: Connection, dead_after: float) -> Sequence[tuple[int, int, int]]:
    """Return the consumer and the number of each unseen ticket, and how many messages it has."""
    held = (slices.c.consumer_id == tickets.c.consumer_id) & (slices.c.ticket == tickets.c.number)
    messages = select(func.coalesce(func.sum(slices.c.count), 0)).where(held).scalar_subquery()
    rows = connection.execute(_unseen(dead_after).add_columns(messages))
    return [(consumer_id, number, int(count)) for consumer_id, number, count in rows]


def lock(connection: Connection, dead_after: float, some: Numbers) -> Numbers:
    """Lock those of some tickets that are still unseen, except where a consumer is at work."""
    # A consumer that is at work locks its own row, and is not dead.
    these = _these(tickets.c.consumer_id, tickets.c.number, some)
    query = _unseen(dead_after).where(these)
    numbers: dict[int, list[int]] = defaultdict(list)
    for row in connection.execute(query.with_for_update(skip_locked=True, of=(tickets, consumers))):
        numbers[row.consumer_id].append(row.number)
    return numbers


def held_in(some: Numbers) -> Rules:
    """Return the condition of slices that tickets hold."""
    return (_these(slices.c.consumer_id, slices.c.ticket, some),)


def remove(connection: Connection, some: Numbers) -> None:
    """Remove the rows of tickets."""
    these = _these(tickets.c.consumer_id, tickets.c.number, some)
    connection.execute(delete(tickets).where(these))


def _unseen(dead_after: float) -> Select[Any]:
    dead = dialect.after(-dead_after)
    return (
        select(tickets.c.consumer_id, tickets.c.number)
        .join(consumers, consumers.c.id == tickets.c.consumer_id)
        .where(
            tickets.c.planned_at.is_(None),
            tickets.c.browsed.is_(None),
            consumers.c.heartbeat_at < dead,
        )
    )


def _these(
    holder: ColumnElement[Any], number: ColumnElement[Any], some: Numbers
) -> ColumnElement[bool]:
    each = (and_(holder == consumer, dialect.one_of(number, of)) for consumer, of in some.items())
    return or_(false(), *each)


def packed(window: Window) -> str:
    """Return a window as a ticket stores it."""
    return json.dumps({"/".join(map(str, key)): places for key, places in window.items()})


def of_tickets(connection: Connection, browsed: TicketRange) -> Window:
    """Return the common window of tickets; consecutive tickets have adjacent windows."""
    query = select(tickets.c.browsed).where(
        tickets.c.consumer_id == browsed.consumer.id,
        tickets.c.number > browsed.after,
        tickets.c.number <= browsed.upto,
        tickets.c.browsed.is_not(None),
    )
    window: dict[ShardKey, tuple[int, int]] = {}
    for text in connection.scalars(query.order_by(tickets.c.number)):
        with decoding(tickets, f"consumer_id {browsed.consumer.id} and a window"):
            for path, (begin, end) in json.loads(text).items():
                queue_id, magazine, shard = map(int, path.split("/"))
                key = (queue_id, magazine, shard)
                window[key] = (window.get(key, (begin, end))[0], end)
    return window


def trial(connection: Connection, held: Sequence[Slice], lives_ago: int = 0) -> str | None:
    """
    Return the name of the trial in which a query hands out the messages of a batch.

    An executor notes it in the storage before it reads them (`queue_core.segments.reader`).
    *held* are the slices of its tickets. *lives_ago* is 1 for the trial of the query's last life.
    It is None if other messages than suspects are among them, or if the query settles none. Runs
    within a transaction.
    """
    if not held or not all(piece.lost_among for piece in held):
        return None
    newest = max(held, key=lambda piece: piece.ticket or 0)
    row = connection.execute(
        select(tickets.c.fired_at, tickets.c.lives)
        .join(consumers, consumers.c.id == tickets.c.consumer_id)
        .where(
            tickets.c.consumer_id == newest.consumer_id,
            tickets.c.number == newest.ticket,
            consumers.c.ack == SETTLES,
        )
    ).first()
    if row is None:
        return None
    # The time tells tickets apart that have the same number before and after a restore.
    return f"{newest.consumer_id}-{newest.ticket}-{row.fired_at}-{row.lives - lives_ago}"
