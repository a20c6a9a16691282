"""What a queue's settings say of its waiting messages, as conditions on slices that SQL can see.

Reads and changes nothing. Messages of a slice share all of it but the time at which they were
loaded, of which a slice has the oldest.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, case, or_, select

from queue_core.catalog import dialect
from queue_core.catalog.tables import slices
from queue_core.model import Magazine, QueueInfo, State
from queue_core.selection.request import FireRequest, Rules

#: After so many failures a message does not rest for longer any more: 65,536 times the first rest.
_DOUBLINGS = 16
#: More than any clock will show, and still a number that a database can reckon with.
_FOR_EVER = 10**17


def ago(seconds: float) -> ColumnElement[int]:
    """The time so many seconds before now, reckoned once for all rows."""
    return (select(dialect.now()).scalar_subquery() - _microseconds(seconds)).self_group()


def fireable(queues: Sequence[QueueInfo], magazine: Magazine) -> Rules:
    """What a firing may take: nothing that is expired, and of main nothing fired too often."""
    rules: list[ColumnElement[bool]] = []
    for queue in queues:
        own = list(_fresh(queue))
        most = queue.settings.max_deliveries
        if most is not None and magazine is Magazine.MAIN:
            own.append(slices.c.deliveries < most)
        rules.extend(own if len(queues) == 1 else (_only(queue, rule) for rule in own))
    return tuple(rules)


def retriable(queue: QueueInfo) -> Rules:
    """What a shovel may take: what has not failed or been fired too often, and has rested."""
    settings = queue.settings
    rules = list(_fresh(queue))
    if settings.max_attempts is not None:
        rules.append(slices.c.attempts < settings.max_attempts)
    if settings.max_deliveries is not None:
        rules.append(slices.c.deliveries < settings.max_deliveries)
    if settings.shovel_backoff:
        rules.append(slices.c.moved_at <= ago(0) - _rest(settings.shovel_backoff))
    return tuple(rules)


def expired(queue: QueueInfo) -> Rules:
    """Loaded so long ago that it is not wanted any more; nothing where messages do not expire."""
    expiry = queue.settings.message_expiry
    return () if expiry is None else (slices.c.loaded_at <= ago(expiry),)


def overdelivered(queue: QueueInfo) -> Rules:
    """Fired too often; nothing where that is not limited."""
    most = queue.settings.max_deliveries
    return () if most is None else (slices.c.deliveries >= most,)


def _fresh(queue: QueueInfo) -> Rules:
    expiry = queue.settings.message_expiry
    return () if expiry is None else (slices.c.loaded_at > ago(expiry),)


def _only(queue: QueueInfo, rule: ColumnElement[bool]) -> ColumnElement[bool]:
    return or_(slices.c.queue_id != queue.id, rule)


def _rest(first: float) -> ColumnElement[int]:
    """For how long a message rests in the sideline: twice as long after each further failure."""
    rests = {n + 1: _microseconds(first * 2**n) for n in range(_DOUBLINGS + 1)}
    later = {n: rest for n, rest in rests.items() if n > 1}
    # What was swept has not failed at all, and rests as if it had once.
    return case(
        (slices.c.attempts <= 1, rests[1]),
        *((slices.c.attempts == n, rest) for n, rest in later.items()),
        else_=rests[_DOUBLINGS + 1],
    )


def _microseconds(seconds: float) -> int:
    return int(min(seconds * 1e6, _FOR_EVER))


def eligible_slices(connection: Connection, wanted: FireRequest) -> list[ColumnElement[bool]]:
    """The conditions on slices of which something may be taken."""
    conditions = [
        dialect.one_of(connection, slices.c.queue_id, wanted.queue_ids)
        if len(wanted.queue_ids) > 1
        else slices.c.queue_id == wanted.queue_ids[0],
        slices.c.magazine == int(wanted.magazine),
        slices.c.state == int(State.LOADED),
        *wanted.rules,
    ]
    if wanted.shards is not None:
        conditions.append(dialect.one_of(connection, slices.c.shard, wanted.shards))
    if wanted.horizon is not None:
        at = wanted.horizon.at
        conditions.append(slices.c.fired_at.is_(None) | (slices.c.fired_at < at))
    return conditions
