"""Suspects: messages that were lost with their consumer are fired apart, in ever smaller batches.

A handler can end its process, and nobody knows which of its messages was the cause. So all of
them are suspects. A firing takes suspects alone, at most half as many as were lost together. After
a few losses, a suspect is fired alone, and another loss tells that it is the culprit
(`queue_core.verbs.lose`). A settlement clears a suspect.

A consumer with a handler never mixes suspects with other messages, or a loss would say less: it
takes suspects only when it holds nothing, and nothing more while it holds some. While suspects
wait, it takes no other messages, so that they do not wait for ever.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.holders.consumers import check_life
from queue_core.catalog.slices import suspects
from queue_core.catalog.slices.conditions import eligible
from queue_core.catalog.slices.shard_locks import Backlog
from queue_core.catalog.slices.slices import ShardKey
from queue_core.selection.request import FireRequest
from queue_core.values.model import Consumer, HandlingConsumer, Magazine


@dataclass(frozen=True, slots=True)
class SuspectPart:
    """A part of a firing: either suspects that were lost together, or other messages."""

    request: FireRequest
    #: Whether they are suspects.
    is_trial: bool = False
    #: Whether the consumer must settle what it holds first.
    waits: bool = False


class Offer(NamedTuple):
    """What there is to take."""

    #: Whether there are suspects.
    suspects: bool
    #: The backlogs of the shards, if they were read.
    backlog: dict[ShardKey, Backlog] | None = None


def look(connection: Connection, consumer: Consumer | None, request: FireRequest) -> Offer | None:
    """Return what there is to take; None if there are no messages to take at all."""
    holder = consumer.id if isinstance(consumer, HandlingConsumer) else None
    logged = request.takes_from_logs
    is_plain = not request.is_conditional and logged == request.terms.logged
    if is_plain and dialect.of(connection).keeps_versions:
        backlog, there_are = suspects.look_by_counters(connection, *request.where, holder)
        waits = any(shard.waiting for shard in backlog.values())
        return Offer(there_are, backlog) if waits else None
    found = eligible(request)
    ids, magazine = request.queue_ids, request.magazine
    some = suspects.look(connection, found, ids, magazine, holder, logged=logged)
    return None if some is None else Offer(some)


def parts(
    connection: Connection, consumer: Consumer | None, request: FireRequest, *, found: bool
) -> list[SuspectPart]:
    """Return the parts of a firing, at least one, which are to be tried in turn."""
    if request.magazine is not Magazine.MAIN:
        return [SuspectPart(request)]
    if not found:
        # A consumer may be lost between the search and the firing.
        return [SuspectPart(replace(request, lost_among=0))]
    busy = False
    if isinstance(consumer, HandlingConsumer):
        # Otherwise, this life would wait for messages that a later one holds.
        check_life(connection, consumer)
        most = suspects.most_held(connection, consumer.id)
        if most:
            return [SuspectPart(request, waits=True)]
        busy = most is not None
    sizes = sorted(suspects.sizes(connection, *eligible(request)), reverse=True)
    asked = [request]
    if request.selection is not None and request.selection.fallback:
        # A message that does not match is taken only if no part has one that matches.
        asked.insert(0, replace(request, selection=replace(request.selection, fallback=False)))
    return [
        part
        for each in asked
        for part in (
            *(_trial(each, among, busy) for among in sizes),
            SuspectPart(replace(each, lost_among=0)),
        )
    ]


def _trial(request: FireRequest, among: int, busy: bool) -> SuspectPart:
    """Return the trial of suspects that were lost among so many messages: half of them at most."""
    half = max(among // 2, 1)
    most = half if request.max_messages is None else min(request.max_messages, half)
    # What a log still has was never lost.
    terms = replace(request.terms, logged=False)
    trial = replace(request, lost_among=among, terms=terms, max_messages=most)
    return SuspectPart(trial, is_trial=True, waits=busy)
