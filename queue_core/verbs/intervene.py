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
from functools import lru_cache

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    bindparam,
    or_,
    select,
    tuple_,
)

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import holders
from queue_core.catalog.holders.consumers import (
    DEAD_AFTER_SECONDS,
    DELETES_ON_COMMIT,
    is_alive,
    reserved,
)
from queue_core.catalog.identity import clock
from queue_core.catalog.records import failures
from queue_core.catalog.records.failures import Prepared
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import id_map, turns
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import (
    Rules,
    Stretch,
    ago,
    eligible_slices,
    movable,
    within,
)
from queue_core.catalog.slices.slices import fetch, fetch_given
from queue_core.catalog.tables import consumers, slices
from queue_core.catalog.transact import transact
from queue_core.errors import BadOption
from queue_core.selection.acquire import acquire
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.rounds import Part, still_there
from queue_core.values.due import NEVER
from queue_core.values.failure_kinds import BY_HAND
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Slice, State
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
    part: Part | None = None
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

    def of_part(self, part: Part) -> Intervention:
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
    here = dialect.of(connection).one_of(slices.c.segment_id, located.segments)
    return having(fetch(connection, here, *_held(connection, queue, intervention)), located)


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
        found = acquire(connection, request, "wait", chosen)
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
    here = dialect.of(connection).one_of(slices.c.segment_id, located.segments)
    query = select(slices.c.shard).where(here, *_where(connection, request)).distinct()
    return tuple(sorted(connection.scalars(query)))


def _where(connection: Connection, request: FireRequest) -> Rules:
    return eligible_slices(connection, request, by_segment=True)


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
    database = dialect.of(connection)
    if intervention.consumer is not None or intervention.within is None:
        here = database.one_of(slices.c.segment_id, located.segments)
        return fetch(connection, here, *_held(connection, queue, intervention), lock="wait")
    first, last = intervention.within
    given = {"queue": queue.id, "these": database.listed(located.segments)}
    given |= {"first_shard": first[0], "first_place": first[1]}
    given |= {"last_shard": last[0], "last_place": last[1]}
    where = _held_within(database, intervention.sources, intervention.dead_after)
    return fetch_given(connection, where, given, lock="wait")


# Built once: to build a statement takes several times as long as SQLite needs to run it.
@lru_cache(maxsize=8)
def _held_within(
    database: dialect.Dialect, sources: tuple[Magazine, ...], dead_after: float
) -> tuple[ColumnElement[bool], ...]:
    first, last = (
        tuple_(*(bindparam(f"{end}_{name}", type_=BigInteger) for name in ("shard", "place")))
        for end in ("first", "last")
    )
    place = tuple_(slices.c.shard, slices.c.position)
    return (
        database.one_of_given(slices.c.segment_id, "these"),
        slices.c.queue_id == bindparam("queue"),
        slices.c.magazine.in_([int(magazine) for magazine in sources]),
        slices.c.state == int(State.FIRED),
        place >= first,
        place <= last,
        *_abandoned(dead_after),
    )


def _held(
    connection: Connection, queue: QueueInfo, intervention: Intervention
) -> list[ColumnElement[bool]]:
    """Return the conditions of slices in flight that may be reloaded."""
    queue_id: ColumnElement[int] = slices.c.queue_id
    if intervention.within is None:
        queue_id = dialect.of(connection).not_indexed(slices.c.queue_id)
    conditions = [
        queue_id == queue.id,
        slices.c.magazine.in_([int(magazine) for magazine in intervention.sources]),
        slices.c.state == int(State.FIRED),
        *within(intervention.within),
    ]
    if intervention.consumer is not None:
        _check_query(connection, queue, intervention.consumer)
        holder_id = holders.id_of(connection, intervention.consumer)
        # As in `holders.conditions`: a consumer may hold many more.
        consumer_id = dialect.of(connection).not_indexed(slices.c.consumer_id)
        return [*conditions, consumer_id == holder_id]
    return [*conditions, *_abandoned(intervention.dead_after)]


def _abandoned(dead_after: float) -> list[ColumnElement[bool]]:
    """Return the conditions of slices that nobody at work holds, and no restart will ask for."""
    holder = select(consumers.c.id).where(consumers.c.id == slices.c.consumer_id)
    at_work = is_alive(dead_after) & (consumers.c.acknowledged < slices.c.ticket)
    # The firing is a sign of life too, also of a consumer without heartbeats.
    return [
        slices.c.fired_at <= ago(dead_after),
        ~holder.where(or_(at_work, reserved())).exists(),
    ]


def _check_query(connection: Connection, queue: QueueInfo, name: str) -> None:
    """Refuse a query that deletes its messages when it commits: they would be copied twice."""
    ack = connection.scalar(select(consumers.c.ack).where(consumers.c.name == name))
    if ack == DELETES_ON_COMMIT:
        raise BadOption(
            f"consumer={name!r} is a query whose source has ack=onCommit, and its batch may have "
            "arrived already; if the query will not start again, run: "
            f"ignis sweep {queue.name} --consumer {name}"
        )
