"""Conditions on slices, in SQL, from a fire request and from a queue's settings.

The messages of a slice share all columns of these conditions, except the time of loading: a slice
has the time of its oldest message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, not_, or_, select, tuple_

from queue_core.catalog import dialect, retries
from queue_core.catalog.tables import slices
from queue_core.model import Magazine, QueueInfo, State
from queue_core.selection.request import FireRequest, Rules, Stretch

#: Microseconds: later than any clock, and within a database's integers.
_FOR_EVER = 10**17


def ago(seconds: float) -> ColumnElement[int]:
    """Return the time *seconds* before now, computed once for all rows."""
    return (select(dialect.now()).scalar_subquery() - _microseconds(seconds)).self_group()


def fireable(queues: Sequence[QueueInfo], magazine: Magazine) -> Rules:
    """Return the rules of a firing: no expired messages, and from main none fired too often."""
    # A rule for each of a thousand queues would be too large for a statement.
    alike: dict[tuple[float | None, int | None], list[QueueInfo]] = defaultdict(list)
    for queue in queues:
        most = queue.settings.max_deliveries if magazine is Magazine.MAIN else None
        alike[expiry_in(queue, magazine), most].append(queue)
    rules: list[ColumnElement[bool]] = []
    for (_, most), some in alike.items():
        own = [not_(rule) for rule in expired(some[0], magazine)]
        if most is not None:
            own.append(slices.c.deliveries < most)
        rules.extend(own if len(alike) == 1 else (_only(some, rule) for rule in own))
    return tuple(rules)


def movable(queue: QueueInfo) -> Rules:
    """Return the rules of any shovel: no messages that have expired, or would do so in main."""
    return tuple(not_(rule) for magazine in Magazine for rule in expired(queue, magazine))


def retriable(queue: QueueInfo) -> Rules:
    """Return the rules of a shovel: movable messages that are not dead."""
    rules = [*movable(queue), retries.alive()]
    most = queue.settings.max_deliveries
    if most is not None:
        rules.append(slices.c.deliveries < most)
    return tuple(rules)


def expired(queue: QueueInfo, magazine: Magazine) -> Rules:
    """Return the rule for slices with a message too old for a magazine; none if all may stay."""
    expiry = expiry_in(queue, magazine)
    return () if expiry is None else (slices.c.loaded_at <= ago(expiry),)


def expiry_in(queue: QueueInfo, magazine: Magazine) -> float | None:
    """Return the age in seconds at which a message of a magazine expires; None if it does not."""
    settings = queue.settings
    return settings.message_expiry if magazine is Magazine.MAIN else settings.sideline_expiry


def overdelivered(queue: QueueInfo) -> Rules:
    """Return the rule for slices that were fired too often; no rule if there is no limit."""
    most = queue.settings.max_deliveries
    return () if most is None else (slices.c.deliveries >= most,)


def _only(queues: Sequence[QueueInfo], rule: ColumnElement[bool]) -> ColumnElement[bool]:
    return or_(slices.c.queue_id.not_in([queue.id for queue in queues]), rule)


def _microseconds(seconds: float) -> int:
    return int(min(seconds * 1e6, _FOR_EVER))


def within(stretch: Stretch | None) -> Rules:
    """Return the conditions of slices that begin in a part of a magazine; None: anywhere."""
    if stretch is None:
        return ()
    place = tuple_(slices.c.shard, slices.c.position)
    return (place >= stretch[0], place <= stretch[1])


def eligible_slices(
    connection: Connection, request: FireRequest, *, by_segment: bool = False
) -> list[ColumnElement[bool]]:
    """
    Return the conditions on slices that may hold messages for a request.

    With *by_segment*, another condition names their segments, and a database without statistics
    must not look through the whole queue instead.
    """
    queue_id: ColumnElement[int] = slices.c.queue_id
    if by_segment and request.within is None:
        queue_id = dialect.of(connection).not_indexed(slices.c.queue_id)
    conditions = [
        dialect.of(connection).one_of(queue_id, request.queue_ids)
        if len(request.queue_ids) > 1
        else queue_id == request.queue_ids[0],
        slices.c.magazine == int(request.magazine),
        slices.c.state == int(State.LOADED),
        *request.rules,
        *within(request.within),
    ]
    if request.shards is not None:
        conditions.append(dialect.of(connection).one_of(slices.c.shard, request.shards))
    if request.horizon is not None:
        conditions.append(not_fired_since(request.horizon.at))
    return conditions


def not_fired_since(at: int | ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition of slices that were not fired since a time, in microseconds."""
    # A future time comes from a clock that was ahead; it is not a firing since then.
    return slices.c.fired_at.is_(None) | (slices.c.fired_at < at) | (slices.c.fired_at > ago(0))
