"""Suspects: messages that were lost with their consumer are fired apart, in ever smaller batches.

A handler can end its process, and nobody knows which of the messages in its hands did. So all of
them are suspects. A firing takes suspects alone, at most half as many as were lost together. After
a few losses, a suspect is fired alone, and another loss tells that it is the culprit
(`queue_core.verbs.lose`). A settlement clears a suspect.

A consumer with a handler also keeps its hands empty for suspects: it takes some only when it holds
nothing, and nothing while it holds some. Otherwise, a loss would say less. It takes no other
messages meanwhile, so that suspects need not wait for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    bindparam,
    exists,
    func,
    literal_column,
    or_,
    select,
)

from queue_core.catalog import dialect
from queue_core.catalog.holders.consumers import check_life
from queue_core.catalog.slices.conditions import eligible, eligible_slices
from queue_core.catalog.tables import consumers, slices
from queue_core.selection.request import FireRequest
from queue_core.values.model import Consumer, HandlingConsumer, Magazine, State

#: As the index has it.
IS_SUSPECT = slices.c.lost_among > literal_column("0")
_IS_NONE = slices.c.lost_among == 0

_HOLDER = bindparam("holder", type_=slices.c.consumer_id.type)
_ACKNOWLEDGED = select(consumers.c.acknowledged).where(consumers.c.id == _HOLDER)
#: The conditions on slices that a consumer holds by tickets of its present life.
_HELD = (
    slices.c.consumer_id == _HOLDER,
    slices.c.state == int(State.FIRED),
    slices.c.ticket > _ACKNOWLEDGED.scalar_subquery(),
)
_MOST_HELD = select(func.max(slices.c.lost_among)).where(*_HELD)


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a firing: either suspects that were lost together, or other messages."""

    request: FireRequest
    #: What to search with, if it is not the request itself.
    wider: FireRequest | None = None
    #: Whether the consumer must settle what it holds first.
    waits: bool = False

    def searching(self, allowed: FireRequest) -> FireRequest:
        """Return the request that finds candidates; *allowed* is what limits have left."""
        if self.wider is None:
            return allowed
        return replace(self.wider, limits=allowed.limits, queue_ids=allowed.queue_ids)


def look(connection: Connection, consumer: Consumer | None, request: FireRequest) -> bool | None:
    """Return whether there are suspects; None if there are no messages to take at all."""
    database = dialect.of(connection)
    where, given = eligible(connection, request)
    holder = consumer if isinstance(consumer, HandlingConsumer) else None
    if holder is not None:
        given |= _holder(holder)
    given["suspects_of"] = database.listed(request.queue_ids)
    in_main = request.magazine is Magazine.MAIN
    query = _looking(database, where, in_main=in_main, holds=holder is not None)
    row = connection.execute(query, given).first()
    return None if row is None else bool(row[0])


# Built once: to build a statement takes several times as long as SQLite needs to run it.
@lru_cache(maxsize=64)
def _looking(
    database: dialect.Dialect,
    where: tuple[ColumnElement[bool], ...],
    *,
    in_main: bool,
    holds: bool,
) -> Select[Any]:
    these = database.one_of_given(slices.c.queue_id, "suspects_of")
    here = these & (slices.c.magazine == int(Magazine.MAIN))
    found: ColumnElement[Any] = exists(select(slices.c.id).where(IS_SUSPECT, here).correlate(None))
    if holds:
        held = exists(select(slices.c.id).where(*_HELD, IS_SUSPECT).correlate(None))
        found = or_(found, held)
    if not in_main:
        found = literal_column("0")
    return select(select(found).scalar_subquery()).where(*where).limit(1).select_from(slices)


def parts(
    connection: Connection, consumer: Consumer | None, request: FireRequest, *, suspects: bool
) -> Iterator[Part]:
    """Yield the parts of a firing, which are to be tried in turn; none if it must wait."""
    if request.magazine is not Magazine.MAIN:
        yield Part(request)
        return
    others = replace(request, rules=(*request.rules, _IS_NONE))
    if not suspects:
        # A consumer may be lost between the search and the firing.
        yield Part(_apart(others))
        return
    busy = False
    if isinstance(consumer, HandlingConsumer):
        # What a later life holds would make this one wait.
        check_life(connection, consumer)
        most = connection.scalar(_MOST_HELD, _holder(consumer))
        if most:
            yield Part(request, waits=True)
            return
        busy = most is not None
    waiting = (*eligible_slices(connection, request), IS_SUSPECT)
    sizes = select(slices.c.lost_among).where(*waiting).distinct()
    for among in sorted(connection.scalars(sizes).all(), reverse=True):
        yield _trial(request, among, busy)
    yield Part(_apart(others))


def _trial(request: FireRequest, among: int, busy: bool) -> Part:
    """Return the firing of suspects that were lost among so many: of half of them at most."""
    half = max(among // 2, 1)
    most = half if request.max_messages is None else min(request.max_messages, half)
    trial = replace(
        request, rules=(*request.rules, slices.c.lost_among == among), max_messages=most
    )
    if not _has_groups(request):
        return Part(trial, waits=busy)
    # Other messages may be the heads of their groups, and then hold the suspects back.
    return Part(trial, wider=replace(request, max_messages=None), waits=busy)


def _apart(others: FireRequest) -> FireRequest:
    """Leave out shards with waiting suspects, which may be the heads of groups."""
    if not _has_groups(others):
        return others
    of = slices.alias("suspects")
    there = exists().where(
        of.c.queue_id == slices.c.queue_id,
        of.c.magazine == int(Magazine.MAIN),
        of.c.shard == slices.c.shard,
        of.c.state == int(State.LOADED),
        of.c.lost_among > literal_column("0"),
    )
    return replace(others, rules=(*others.rules, ~there))


def _has_groups(request: FireRequest) -> bool:
    selection = request.selection
    return selection is not None and any(rules.group for rules in selection.rules.values())


def _holder(consumer: Consumer) -> dict[str, int]:
    """Return the parameters of `_HELD`."""
    return {"holder": consumer.id}
