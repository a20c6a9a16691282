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
    #: What to search with, if it is not the request itself.
    wider: FireRequest | None = None
    #: Whether they are suspects.
    is_trial: bool = False
    #: Whether the consumer must settle what it holds first.
    waits: bool = False

    def searching(self, allowed: FireRequest) -> FireRequest:
        """Return the request that finds candidates; *allowed* is what limits have left."""
        if self.wider is None:
            return allowed
        ids, most = allowed.queue_ids, allowed.max_messages
        return replace(self.wider, queue_ids=ids, max_messages=most)


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
        return [_rest(request)]
    busy = False
    if isinstance(consumer, HandlingConsumer):
        # What a later life holds would make this one wait.
        check_life(connection, consumer)
        most = suspects.most_held(connection, consumer.id)
        if most:
            return [SuspectPart(request, waits=True)]
        busy = most is not None
    sizes = sorted(suspects.sizes(connection, *eligible(request)), reverse=True)
    asked = [request]
    if request.selection is not None and request.selection.fallback:
        # Another message comes in place of those that match only if none of all parts does.
        asked.insert(0, replace(request, selection=replace(request.selection, fallback=False)))
    return [
        part
        for each in asked
        for part in (*(_trial(each, among, busy) for among in sizes), _rest(each))
    ]


def _rest(request: FireRequest) -> SuspectPart:
    """Return the firing of messages that are no suspects."""
    # A consumer may be lost between the search and the firing.
    others = replace(request, rules=(*request.rules, *suspects.UNSUSPECTED))
    return SuspectPart(others, wider=_among_all(request, 0))


def _trial(request: FireRequest, among: int, busy: bool) -> SuspectPart:
    """Return the firing of suspects that were lost among so many: of half of them at most."""
    half = max(among // 2, 1)
    most = half if request.max_messages is None else min(request.max_messages, half)
    rules = (*request.rules, *suspects.lost_among(among))
    # What a log still has was never lost.
    terms = replace(request.terms, logged=False)
    trial = replace(request, rules=rules, terms=terms, max_messages=most)
    return SuspectPart(trial, wider=_among_all(request, among), is_trial=True, waits=busy)


def _among_all(request: FireRequest, among: int) -> FireRequest | None:
    """
    Return the request that finds messages that were lost among so many, 0 for the others.

    In queues with groups, it looks at all messages, since others may be the heads of their groups,
    and then hold these back. None: the conditions on slices suffice.
    """
    selection = request.selection
    if selection is None or not any(rules.group for rules in selection.rules.values()):
        return None
    return replace(request, selection=replace(selection, lost_among=among))
