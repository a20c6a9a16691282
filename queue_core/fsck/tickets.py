"""Tickets and consumers: what holds messages, and what says that it lives (I21 to I25)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sqlalchemy import and_, or_, select

from queue_core.catalog import seals
from queue_core.catalog.tables import (
    consumers,
    interests,
    leases,
    queues,
    schedule,
    slices,
    tickets,
)
from queue_core.fsck.finding import Finding, Remedy
from queue_core.fsck.scope import Scope, of_slice

#: The claims that an interest can make.
_CLAIMS = ("shared", "exclusive", "single")
#: Microseconds by which a time may be ahead of the clock, which may have been set back a little.
_AHEAD = 3_600_000_000


def check_holders(scope: Scope) -> Iterator[Finding]:
    """Check that the consumer of each held slice exists, and has had that ticket."""
    unknown = or_(
        consumers.c.id.is_(None), slices.c.ticket > consumers.c.last_ticket, slices.c.ticket < 1
    )
    query = (
        select(slices.c.id, slices.c.queue_id, slices.c.moved_at, slices.c.fired_at)
        .outerjoin(consumers, consumers.c.id == slices.c.consumer_id)
        .where(slices.c.consumer_id.is_not(None), unknown)
    )
    for row in scope.connection.execute(query):
        yield of_slice("I21", row, "its consumer does not exist, or has never had its ticket")


def check_tickets(scope: Scope) -> Iterator[Finding]:
    """Check the rows of tickets."""
    query = select(tickets, consumers.c.last_ticket, consumers.c.epoch, consumers.c.name).outerjoin(
        consumers, consumers.c.id == tickets.c.consumer_id
    )
    for row in scope.connection.execute(query):
        planned = (row.planned_at is not None, row.planned_epoch is not None, row.lives > 0)
        if _is_altered(tickets, row):
            yield _of_ticket("I1", row, "a value of the row is not what was written", Remedy.NONE)
        elif row.name is None or not 0 < row.number <= row.last_ticket:
            text = "its consumer does not exist, or has never had it"
            yield _of_ticket("I22", row, text, Remedy.REMOVE)
        elif len({*planned}) > 1 or (row.planned_epoch or 0) > row.epoch or row.lives < 0:
            yield _of_ticket("I22", row, "it was planned in part", Remedy.NONE)
        elif row.browsed is not None and not _is_json(row.browsed):
            yield _of_ticket("I22", row, "its places cannot be read", Remedy.NONE)


def check_consumers(scope: Scope) -> Iterator[Finding]:
    """Check the rows of consumers."""
    for row in scope.connection.execute(select(consumers)):
        beat = row.heartbeat_at
        if _is_altered(consumers, row):
            yield _of_consumer("I1", row, "a value of the row is not what was written")
        elif not 0 <= row.acknowledged <= row.last_ticket or row.epoch < 1:
            yield _of_consumer("I23", row, "it has acknowledged tickets that it never had")
        elif beat is not None and beat > scope.now + _AHEAD:
            yield _of_consumer("I24", row, "its heartbeat is in the future, so it never dies")


def check_interests(scope: Scope) -> Iterator[Finding]:
    """Check what consumers say that they want."""
    query = (
        select(interests, consumers.c.name, queues.c.name.label("queue"))
        .outerjoin(consumers, consumers.c.id == interests.c.consumer_id)
        .outerjoin(queues, queues.c.id == interests.c.queue_id)
    )
    for row in scope.connection.execute(query):
        altered = _is_altered(interests, row)
        if altered or row.name is None or row.queue is None or row.claim not in _CLAIMS:
            yield Finding(
                invariant="I1" if altered else "I25",
                table=interests.name,
                key=(row.queue_id, row.consumer_id),
                queue_id=row.queue_id,
                problem="it is not what was written"
                if altered
                else "its queue, its consumer or its claim does not exist",
                remedy=Remedy.REMOVE,
                since=row.registered_at,
            )


def check_times(scope: Scope) -> Iterator[Finding]:
    """Check that no lease and no task of the schedule begins or lasts beyond reason."""
    late = scope.now + _AHEAD
    for row in scope.connection.execute(select(leases).where(leases.c.ends_at > late)):
        yield Finding(
            invariant="I24",
            table=leases.name,
            key=(row.role,),
            queue_id=None,
            problem="the lease would not end for an hour or longer",
            remedy=Remedy.REMOVE,
        )
    query = select(schedule).where(and_(schedule.c.begun_at > late))
    for row in scope.connection.execute(query):
        yield Finding(
            invariant="I24",
            table=schedule.name,
            key=(row.queue_id, row.task),
            queue_id=row.queue_id,
            problem="the task has begun in the future, and would not be due for long",
            remedy=Remedy.REMOVE,
        )


def _is_altered(table: Any, row: Any) -> bool:
    return row.seal is not None and row.seal != seals.seal(table, row._asdict())


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _of_ticket(invariant: str, row: Any, problem: str, remedy: Remedy) -> Finding:
    return Finding(
        invariant=invariant,
        table=tickets.name,
        key=(row.consumer_id, row.number),
        queue_id=None,
        problem=problem,
        remedy=remedy,
        since=row.planned_at or row.fired_at,
    )


def _of_consumer(invariant: str, row: Any, problem: str) -> Finding:
    return Finding(
        invariant=invariant,
        table=consumers.name,
        key=(row.id,),
        queue_id=None,
        problem=f"consumer {row.name!r}: {problem}",
        since=row.created_at,
    )
