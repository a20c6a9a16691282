"""Intervene: delete, sideline, requeue or reload messages that a person chose.

Changes: waiting messages are deleted, moved from main to the sideline, or moved from the sideline
to the tail of main; messages in flight wait again at their old places. Attempts stay as they are.
Guard: only chosen messages in the state that the act changes. For waiting messages, the turns of
their shards, as in a firing. A message that was fired, settled or moved meanwhile is left alone.
Messages in flight are left to living consumers, and to queries that request them again, unless the
caller names the consumer. Crash before the commit: nothing was changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import abandoned, holders
from queue_core.catalog.holders.consumers import (
    DEAD_AFTER_SECONDS,
    DELETES_ON_COMMIT,
    ack_of,
)
from queue_core.catalog.identity import clock
from queue_core.catalog.records import failures
from queue_core.catalog.records.failures import Prepared
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import id_map, turns
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import (
    IN_FLIGHT,
    Rules,
    Stretch,
    eligible_slices,
    in_magazines,
    in_queue,
    movable,
    of_few_segments,
    of_segments,
    within,
)
from queue_core.catalog.slices.slices import fetch, shards_of
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.selection.acquire import acquire
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.rounds import RoundPart, still_there
from queue_core.values.due import NEVER
from queue_core.values.failure_kinds import BY_HAND
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Slice
from queue_core.values.plan import Taken, having
from queue_core.verbs.capacity.bounds import limit_to_capacity, within_byte_limit


class Act(StrEnum):
    """What a person does with messages."""

    DELETE = "delete"
    SIDELINE = "sideline"
    REQUEUE = "requeue"
    RELOAD = "reload"


#: The magazine from which an act takes messages; the others take them from both.
_FROM = {Act.SIDELINE: Magazine.MAIN, Act.REQUEUE: Magazine.SIDELINE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """An act, and the messages that it may change."""

    act: Act
    ids: IdSet
    #: Only messages that are in these now.
    magazines: Sequence[Magazine]
    #: The kind and the reason of an act `Act.SIDELINE`.
    kind: str = BY_HAND
    reason: str | None = None
    #: Only this part of them; None: all.
    part: RoundPart | None = None
    #: For `Act.RELOAD`: the holder; None: consumers without a sign of life for some seconds.
    consumer: str | None = None
    dead_after: float = DEAD_AFTER_SECONDS

    @property
    def sources(self) -> tuple[Magazine, ...]:
        """The magazines from which the act takes messages."""
        only = _FROM.get(self.act)
        return tuple(m for m in self.magazines if only is None or m is only)

    @property
    def is_by_age(self) -> bool:
        """Whether the catalog's clock decides which messages it takes: check it beforehand."""
        return self.act is Act.RELOAD and self.consumer is None

    @property
    def within(self) -> Stretch | None:
        """Where the slices begin; None: anywhere."""
        return None if self.part is None else self.part.within

    def of_part(self, part: RoundPart) -> Intervention:
        """Return the intervention for a part of the messages."""
        return replace(self, ids=part.ids, magazines=(part.magazine,), part=part)


def intervene(catalog: Catalog, queue: QueueInfo, intervention: Intervention) -> IdSet:
    """
    Carry out an intervention in one transaction; return the messages that it has changed.

    Raises `BadOption` if the consumer to reload from is unknown, or deletes what it commits.
    """
    prepared = _prepared(intervention)

    def work(connection: Connection) -> IdSet:
        if intervention.act is Act.RELOAD:
            taken, moves = _reload(connection, queue, intervention)
        else:
            taken, moves = _take_waiting(connection, queue, intervention, prepared)
        moves.record(connection, queue.id, BY_HAND)
        if intervention.is_by_age:
            clock.confirm(connection)
        if len(moves) == len(intervention.ids):
            return intervention.ids
        return IdSet.of(id_map.ids_of(connection, taken))

    return transact(catalog, "intervene", work, late=True)


def find(connection: Connection, queue: QueueInfo, intervention: Intervention) -> list[Taken]:
    """Return the messages that `intervene` would change now, if the queue has room for them."""
    if intervention.act is not Act.RELOAD:
        requests = _requests(queue, intervention)
        return [t for r in requests for t in still_there(connection, r, intervention.ids)]
    located = id_map.located(connection, [queue.id], intervention.ids)
    return having(fetch(connection, *_held(connection, queue, intervention, located)), located)


def _prepared(intervention: Intervention) -> Prepared | None:
    """
    Pack what the transaction will write if all messages of its part are still there.

    On SQLite, others wait for the transaction, and Arrow takes a good part of its time.
    """
    part = intervention.part
    if part is None:
        return None
    moves = Moves()
    for shard, messages in part.messages.items():
        _note(moves, intervention.act, shard, part.magazine, messages)
    moves.packed()
    if intervention.act is not Act.SIDELINE or part.attempts is None:
        return None
    ids = intervention.ids.numbers()
    return failures.prepare(ids, part.attempts, intervention.kind, intervention.reason)


def _note(moves: Moves, act: Act, shard: int, magazine: Magazine, messages: int) -> None:
    """Note messages of a shard that an act changes."""
    source = magazine.name.lower()
    match act:
        case Act.DELETE:
            moves.count(shard, messages, source, None)
        case Act.SIDELINE:
            moves.count(shard, messages, source, Magazine.SIDELINE.name.lower())
        case Act.REQUEUE:
            moves.count(shard, messages, source, Magazine.MAIN.name.lower())
        case Act.RELOAD:
            moves.count(shard, messages, f"in flight from {source}", source)


def _take_waiting(
    connection: Connection,
    queue: QueueInfo,
    intervention: Intervention,
    prepared: Prepared | None,
) -> tuple[list[Taken], Moves]:
    taken = _waiting(connection, queue, intervention)
    changes, moves = Changes([queue]), Moves()
    act = intervention.act
    now = dialect.read_clock(connection) if act is Act.REQUEUE else None
    for piece, rows in taken:
        match act:
            case Act.DELETE:
                changes.remove(piece, rows, "deleted")
            case Act.SIDELINE:
                changes.move(piece, rows, Magazine.SIDELINE, "sidelined", due_at=NEVER)
            case Act.REQUEUE:
                changes.move(piece, rows, Magazine.MAIN, "shovelled", fired_at=now)
        _note(moves, act, piece.shard, piece.magazine, len(rows))
    changes.apply(connection)
    if taken and act is Act.SIDELINE:
        if prepared is not None and prepared.are_of(taken):
            failures.record_prepared(connection, queue.id, prepared)
        else:
            reasons = failures.of_same(taken, intervention.kind, intervention.reason)
            failures.record(connection, queue.id, None, reasons)
    return taken, moves


def _waiting(connection: Connection, queue: QueueInfo, intervention: Intervention) -> list[Taken]:
    """Lock and return the chosen messages that wait."""
    requests = _requests(queue, intervention)
    if intervention.act is Act.REQUEUE:
        # Its lock comes before all others.
        limited = [limit_to_capacity(connection, queue, request) for request in requests]
        requests = [request for request in limited if request is not None]
    # All turns before all slices, and only those of shards with chosen messages.
    narrowed = []
    for request in requests:
        part = intervention.part
        shards = part.shards if part else _shards(connection, queue, request, intervention.ids)
        if shards and len(requests) > 1:
            turns.lock(connection, [queue.id], request.magazine, shards)
        if shards:
            narrowed.append(replace(request, shards=shards))
    chosen = Candidates(ids=intervention.ids, fired={}, ranked=frozenset())
    taken = []
    for request in narrowed:
        found = acquire(connection, request, "wait", chosen).taken
        # A firing takes one message that is larger than its limit; a full queue does not.
        taken += found if within_byte_limit(request, found) else []
    return taken


def _requests(queue: QueueInfo, intervention: Intervention) -> list[FireRequest]:
    rules = movable(queue) if intervention.act is Act.REQUEUE else ()
    return [
        FireRequest(
            queue_ids=(queue.id,), magazine=magazine, rules=rules, within=intervention.within
        )
        for magazine in intervention.sources
    ]


def _shards(
    connection: Connection, queue: QueueInfo, request: FireRequest, ids: IdSet
) -> tuple[int, ...]:
    """Return the shards that seem to have some of the messages; a message keeps its shard."""
    located = id_map.located(connection, [queue.id], ids)
    here = of_segments(connection, located.segments)
    return shards_of(connection, (*here, *eligible_slices(connection, request, by_segment=True)))


def _reload(
    connection: Connection, queue: QueueInfo, intervention: Intervention
) -> tuple[list[Taken], Moves]:
    located = id_map.located(connection, [queue.id], intervention.ids)
    taken = having(_fetch_held(connection, queue, intervention, located), located)
    changes, moves = Changes([queue]), Moves()
    for piece, rows in taken:
        changes.release(piece, rows)
        changes.count(piece, reloaded=len(rows))
        _note(moves, Act.RELOAD, piece.shard, piece.magazine, len(rows))
    changes.apply(connection)
    return taken, moves


def _fetch_held(
    connection: Connection, queue: QueueInfo, intervention: Intervention, located: IdSet
) -> list[Slice]:
    """Lock and return the slices in flight that may be reloaded."""
    if intervention.consumer is not None or intervention.within is None:
        return fetch(connection, *_held(connection, queue, intervention, located), lock="wait")
    where, given = abandoned.unattended_within(
        queue.id,
        intervention.sources,
        intervention.within,
        located.segments,
        intervention.dead_after,
    )
    return fetch(connection, *where, given=given, lock="wait")


def _held(
    connection: Connection, queue: QueueInfo, intervention: Intervention, located: IdSet
) -> Rules:
    """Return the conditions of slices in flight that may be reloaded."""
    if intervention.within is None:
        here = of_few_segments(connection, queue.id, located.segments)
    else:
        segments = of_segments(connection, located.segments)
        here = (*in_queue(queue.id), *segments, *within(intervention.within))
    here = (*here, *in_magazines(intervention.sources), *IN_FLIGHT)
    if intervention.consumer is not None:
        _check_query(connection, queue, intervention.consumer)
        holder_id = holders.id_of(connection, intervention.consumer)
        return (*here, *abandoned.held_by_few(holder_id))
    # The firing is a sign of life too, also of a consumer without heartbeats.
    age = intervention.dead_after
    return (*here, *abandoned.fired_before(age), *abandoned.unattended(age))


def _check_query(connection: Connection, queue: QueueInfo, name: str) -> None:
    """Refuse a query that deletes its messages when it commits: they would be copied twice."""
    if ack_of(connection, name) == DELETES_ON_COMMIT:
        raise BadOption(
            f"consumer={name!r} is a query whose source has ack=onCommit, and its batch may have "
            "arrived already; if the query will not start again, run: "
            f"ignis sweep {queue.name} --consumer {name}"
        )
