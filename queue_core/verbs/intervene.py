"""Intervene: delete, sideline, requeue or reload messages that a person chose.

Changes: waiting messages are deleted, moved from main to the sideline, or moved from the sideline
to the tail of main; messages in flight wait again at their old places. Attempts stay as they are.
Guard: only chosen messages in the state that the act changes. For waiting messages, the locks of
their shards, as in a firing. A message that was fired, settled or moved meanwhile is left alone.
Messages in flight are left to living consumers, and to queries that request them again, unless the
caller names the consumer. Many messages are changed in rounds, each of which is whole in itself.
Crash before a commit: nothing of its round was changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

import numpy as np
from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import abandoned, holders
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS, DELETES_ON_COMMIT, ack_of
from queue_core.catalog.identity import clock
from queue_core.catalog.records import failures, task_log
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import id_map
from queue_core.catalog.slices.changes import Changes
from queue_core.catalog.slices.conditions import (
    IN_FLIGHT,
    Rules,
    in_magazines,
    movable,
    of_few_segments,
)
from queue_core.catalog.slices.moves import DELETED, REQUEUED, SIDELINED, carry_out
from queue_core.catalog.slices.shard_locks import Horizon
from queue_core.catalog.slices.slices import fetch
from queue_core.catalog.transact import Rounds
from queue_core.errors import BadOption
from queue_core.selection.acquire import acquire
from queue_core.selection.quotas import by_horizon
from queue_core.selection.request import Candidates, FireRequest
from queue_core.selection.rounds import RoundPart, in_parts, still_there
from queue_core.values.failure_kinds import BY_HAND
from queue_core.values.ids import IdSet
from queue_core.values.model import Magazine, QueueInfo, Slice
from queue_core.values.plan import Taken, having, messages_in
from queue_core.verbs.capacity.bounds import take_fitting


class Act(StrEnum):
    """What a person does with messages."""

    DELETE = "delete"
    SIDELINE = "sideline"
    REQUEUE = "requeue"
    RELOAD = "reload"


#: The magazine from which an act takes messages; other acts take them from both.
_FROM = {Act.SIDELINE: Magazine.MAIN, Act.REQUEUE: Magazine.SIDELINE}
#: Where the acts move messages that wait.
_MOVES = {Act.DELETE: DELETED, Act.SIDELINE: SIDELINED, Act.REQUEUE: REQUEUED}
#: How often to look for messages that a compaction puts into other slices meanwhile.
PASSES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervention:
    """An act, and the messages that it may change."""

    act: Act
    ids: IdSet
    #: Only messages that are in these now.
    magazines: Sequence[Magazine]
    #: The moments since when messages must not have been moved or fired, if any.
    horizons: Mapping[Magazine, Horizon] | None = None
    #: The kind and the reason of an act `Act.SIDELINE`.
    kind: str = BY_HAND
    reason: str | None = None
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


def intervene(catalog: Catalog, queue: QueueInfo, intervention: Intervention) -> int:
    """
    Carry out an intervention; return how many messages it has changed.

    It changes only messages that it finds at the beginning, each of them once: messages that become
    eligible later are not affected. If it ends early, the messages of later rounds are unchanged.
    Raises `BadOption` if the consumer to reload from is unknown, or deletes what it commits.
    """
    task_log.prepare()
    if intervention.is_by_age:
        clock.check(catalog)
    rounds = Rounds(catalog, "intervene", late=True)
    for _ in range(PASSES):
        with catalog.read() as connection:
            found = find(connection, queue, intervention)
            parts = in_parts(connection, found)
        expected = rounds.done + messages_in(found)
        # Otherwise, each garbage collection within a round would look through thousands of objects.
        del found
        before, left = rounds.done, []
        for part in parts:
            _pack(intervention, part)
            _, these = rounds.run(
                partial(_change, queue=queue, intervention=intervention, part=part)
            )
            if len(these) < len(part.ids):
                left.append((part.ids - these).numbers())
        if rounds.done == expected or (rounds.done == before and len(parts) > 1):
            break
        intervention = replace(intervention, ids=IdSet.of(np.concatenate(left)))
    return rounds.done


def _change(
    connection: Connection, queue: QueueInfo, intervention: Intervention, part: RoundPart
) -> tuple[int, IdSet]:
    """Change the messages of a part that are in the right state; return how many, and which."""
    if intervention.act is Act.RELOAD:
        taken = _reload(connection, queue, intervention, part)
    else:
        taken = _waiting(connection, queue, intervention, part)
        carry_out(connection, queue, _MOVES[intervention.act], taken)
    if taken and intervention.act is Act.SIDELINE:
        kind, reason = intervention.kind, intervention.reason
        failures.record_same(connection, queue.id, taken, kind, reason)
    if intervention.is_by_age:
        clock.confirm(connection)
    changed = messages_in(taken)
    if changed == len(part.ids):
        return changed, part.ids
    return changed, IdSet.of(id_map.ids_of(connection, taken))


def find(connection: Connection, queue: QueueInfo, intervention: Intervention) -> list[Taken]:
    """Return the messages that `intervene` would change now, if the queue has room for them."""
    if intervention.act is not Act.RELOAD:
        requests = [_request(queue, intervention, each) for each in intervention.sources]
        return [t for r in requests for t in still_there(connection, r, intervention.ids)]
    located = id_map.located(connection, [queue.id], intervention.ids)
    here = of_few_segments(queue.id, located.segments)
    here = (*here, *in_magazines(intervention.sources), *IN_FLIGHT)
    held = fetch(connection, *here, *_holder(connection, queue, intervention))
    return having(_not_anew(intervention, held), located)


def _pack(intervention: Intervention, part: RoundPart) -> None:
    """
    Pack what the transaction will write if all messages of its part are still there.

    On SQLite, others wait for the transaction, and Arrow takes a good part of its time.
    """
    moves = Moves()
    for shard, messages in part.messages.items():
        _note(moves, intervention.act, shard, part.magazine, messages)
    moves.packed()
    if intervention.act is Act.SIDELINE and part.attempts is not None:
        ids = part.ids.numbers()
        attempts = np.full(len(ids), part.attempts, np.int32)
        failures.pack_same(ids, attempts, intervention.kind, intervention.reason)


def _note(moves: Moves, act: Act, shard: int, magazine: Magazine, messages: int) -> None:
    """Note messages of a shard that an act changes."""
    if act is Act.RELOAD:
        source = magazine.name.lower()
        moves.count(shard, messages, f"in flight from {source}", source)
    else:
        _MOVES[act].note(moves, shard, magazine, messages)


def _request(queue: QueueInfo, intervention: Intervention, magazine: Magazine) -> FireRequest:
    rules = movable(queue) if intervention.act is Act.REQUEUE else ()
    horizon = (intervention.horizons or {}).get(magazine)
    return FireRequest(queue_ids=(queue.id,), magazine=magazine, rules=rules, horizon=horizon)


def _waiting(
    connection: Connection, queue: QueueInfo, intervention: Intervention, part: RoundPart
) -> list[Taken]:
    """Lock and return the messages of a part that wait."""
    request = _request(queue, intervention, part.magazine)
    request = replace(request, within=part.within, shards=part.shards)
    chosen = Candidates(part.ids)
    if intervention.act is Act.REQUEUE:
        taken = take_fitting(connection, queue, request, chosen) or []
    else:
        taken = acquire(connection, request, "wait", chosen).taken
    # Those that were moved since the horizon stay as they are.
    return by_horizon(taken, request)


def _reload(
    connection: Connection, queue: QueueInfo, intervention: Intervention, part: RoundPart
) -> list[Taken]:
    located = id_map.located(connection, [queue.id], part.ids)
    holder = _holder(connection, queue, intervention)
    where, given = abandoned.held_within(
        queue.id, part.magazine, part.within, located.segments, holder
    )
    held = fetch(connection, *where, given=given, lock="wait")
    taken = having(_not_anew(intervention, held), located)
    changes, moves = Changes([queue]), Moves()
    for piece, rows in taken:
        changes.reload(piece, rows)
        _note(moves, Act.RELOAD, piece.shard, piece.magazine, len(rows))
    changes.apply(connection)
    moves.record(connection, queue.id, BY_HAND)
    return taken


def _not_anew(intervention: Intervention, held: Sequence[Slice]) -> Sequence[Slice]:
    """Leave out slices that have come back since the horizons, and were fired again."""
    if intervention.horizons is None:
        return held
    return [
        each for each in held if (each.fired_at or 0) <= intervention.horizons[each.magazine].at
    ]


def _holder(connection: Connection, queue: QueueInfo, intervention: Intervention) -> Rules:
    """Return the conditions of slices that the intervention may take from their holders."""
    if intervention.consumer is not None:
        _check_query(connection, queue, intervention.consumer)
        return abandoned.held_by_few(holders.id_of(connection, intervention.consumer))
    # A firing is a sign of life too, even of a consumer without heartbeats.
    age = intervention.dead_after
    return (*abandoned.fired_before(age), *abandoned.unattended(age))


def _check_query(connection: Connection, queue: QueueInfo, name: str) -> None:
    """Refuse a query that deletes messages when it commits: its sink may have them already."""
    if ack_of(connection, name) == DELETES_ON_COMMIT:
        raise BadOption(
            f"consumer={name!r} is a query whose source has ack=onCommit, and its batch may have "
            "arrived already; if the query will not start again, run: "
            f"ignis sweep {queue.name} --consumer {name}"
        )
