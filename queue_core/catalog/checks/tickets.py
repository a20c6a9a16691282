"""Tickets and consumers, which hold messages, and times that must be near (I21 to I25)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import or_, select

from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.checks.scope import ALTERED, Scope, is_altered, of_row
from queue_core.catalog.tables import (
    allotments,
    breakers,
    consumers,
    dedup,
    interests,
    leases,
    queues,
    schedule,
    slices,
    tickets,
    waiters,
)

#: The claims that an interest can make.
_CLAIMS = ("shared", "exclusive", "single")
#: How a consumer can finish its messages.
_ACKS = (None, "onCommit", "settle", "browse")
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
        yield of_row(slices, row, "I21", "its consumer does not exist, or has never had its ticket")


def check_tickets(scope: Scope) -> Iterator[Finding]:
    """Check the rows of tickets."""
    query = select(tickets, consumers.c.last_ticket, consumers.c.epoch, consumers.c.name).outerjoin(
        consumers, consumers.c.id == tickets.c.consumer_id
    )
    for row in scope.connection.execute(query):
        planned = (row.planned_at is not None, row.planned_epoch is not None, row.lives > 0)
        if is_altered(tickets, row._asdict()):
            yield of_row(tickets, row, "I1", ALTERED)
        elif row.name is None or not 0 < row.number <= row.last_ticket:
            text = "its consumer does not exist, or has never had it"
            yield of_row(tickets, row, "I22", text, Remedy.REMOVE)
        elif len({*planned}) > 1 or (row.planned_epoch or 0) > row.epoch or row.lives < 0:
            yield of_row(tickets, row, "I22", "it was planned in part")
        elif row.browsed is not None and not _is_json(row.browsed):
            yield of_row(tickets, row, "I22", "its places cannot be read")


def check_consumers(scope: Scope) -> Iterator[Finding]:
    """Check the rows of consumers."""
    for row in scope.connection.execute(select(consumers)):
        name, beat = f"consumer {row.name!r}", row.heartbeat_at
        if is_altered(consumers, row._asdict()):
            yield of_row(consumers, row, "I1", f"{name}: {ALTERED}")
        elif not 0 <= row.acknowledged <= row.last_ticket or row.epoch < 1:
            yield of_row(
                consumers, row, "I23", f"{name}: it has acknowledged tickets that it never had"
            )
        elif row.ack not in _ACKS:
            text = f"{name}: {row.ack!r} is no way to finish messages"
            yield of_row(consumers, row, "I23", text)
        elif beat is not None and beat > scope.now + _AHEAD:
            yield of_row(consumers, row, "I24", f"{name}: its heartbeat is in the future")


def check_interests(scope: Scope) -> Iterator[Finding]:
    """Check the interests of consumers."""
    query = (
        select(interests, consumers.c.name, queues.c.name.label("queue"))
        .outerjoin(consumers, consumers.c.id == interests.c.consumer_id)
        .outerjoin(queues, queues.c.id == interests.c.queue_id)
    )
    for row in scope.connection.execute(query):
        altered = is_altered(interests, row._asdict())
        if altered or row.name is None or row.queue is None or row.claim not in _CLAIMS:
            text = "its queue, its consumer or its claim does not exist"
            found = ("I1", ALTERED) if altered else ("I25", text)
            yield of_row(interests, row, *found, Remedy.REMOVE)


def check_times(scope: Scope) -> Iterator[Finding]:
    """Check that the times of leases, of waiters and of the schedule are plausible."""
    late = scope.now + _AHEAD
    for row in scope.connection.execute(select(leases).where(leases.c.ends_at > late)):
        text = "the lease would not end for an hour or longer"
        yield of_row(leases, row, "I24", text, Remedy.REMOVE)
    for row in scope.connection.execute(select(waiters).where(waiters.c.alive_until > late)):
        text = "the waiter has given a sign of life in the future"
        yield of_row(waiters, row, "I24", text, Remedy.REMOVE)
    query = select(schedule).where(schedule.c.begun_at > late)
    for row in scope.connection.execute(query):
        text = "the task has begun in the future"
        yield of_row(schedule, row, "I24", text, Remedy.REMOVE)
    for row in scope.connection.execute(select(breakers).where(breakers.c.since_at > late)):
        text = f"breaker {row.name!r}: the time of its state is in the future"
        yield of_row(breakers, row, "I24", text, Remedy.REMOVE)
    for row in scope.connection.execute(select(allotments).where(allotments.c.spent_until > late)):
        text = "the tokens of a limit are spent until a time in the future"
        yield of_row(allotments, row, "I24", text, Remedy.REMOVE)
    # By the index of each queue: there may be billions of keys.
    newest = dedup.c.queue_id.in_(select(queues.c.id)), dedup.c.loaded_at > late
    for row in scope.connection.execute(select(dedup).where(*newest)):
        yield of_row(dedup, row, "I24", "the key was loaded in the future", Remedy.REMOVE)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
