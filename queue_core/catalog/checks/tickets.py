"""Tickets and consumers, which hold messages, and times that must be near (I21 to I25)."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import or_, select

from queue_core.catalog.checks.finding import Finding, Remedy
from queue_core.catalog.checks.rules import ALTERED, Scope, can, find_rows, is_altered, of_row
from queue_core.catalog.holder_tables import consumers, interests, leases, tickets, waiters
from queue_core.catalog.record_tables import breakers, schedule
from queue_core.catalog.tables import dedup, queues, slices, token_buckets

#: The claims that an interest can make.
_CLAIMS = ("shared", "exclusive", "single", "none")
#: How a consumer can finish its messages.
_ACKS = (None, "onCommit", "settle", "browse", "keep")
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
        .where(slices.c.consumer_id.is_not(None))
    )
    text = "its consumer does not exist, or has never had its ticket"
    yield from find_rows(scope, slices, query, {"I21": (text, unknown)})


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
        elif row.browsed is not None and not can(json.loads, row.browsed):
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
            text = f"{name}: there is no way {row.ack!r} to finish messages"
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


#: Times that must not be far in the future, and what they say if they are.
_TIMES = {
    leases.c.ends_at: "the lease would not end for an hour or longer",
    waiters.c.alive_until: "the waiter has given a sign of life in the future",
    schedule.c.begun_at: "the task has begun in the future",
    breakers.c.since_at: "breaker {row.name!r}: the time of its state is in the future",
    token_buckets.c.spent_until: "the tokens of a limit are spent until a time in the future",
    dedup.c.loaded_at: "the key was loaded in the future",
}


def check_times(scope: Scope) -> Iterator[Finding]:
    """Check that times which concern no message are plausible."""
    for time, text in _TIMES.items():
        query = select(time.table).where(time > scope.now + _AHEAD)
        if time.table is dedup:
            # By the index of each queue: there may be billions of keys.
            query = query.where(dedup.c.queue_id.in_(select(queues.c.id)))
        for row in scope.connection.execute(query):
            yield of_row(time.table, row, "I24", text.format(row=row), Remedy.REMOVE)
