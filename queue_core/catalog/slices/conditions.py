"""Conditions on slices, as values that verbs pass on: their place, their holder, and the rules.

A condition is a tuple, so that conditions are joined by unpacking them. The messages of a slice
share all columns of these conditions, except the time of loading: a slice has the time of its
oldest message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sqlalchemy import BigInteger, ColumnElement, bindparam, not_, or_, select, tuple_

from queue_core.catalog import dialect
from queue_core.catalog.tables import id_map, slices
from queue_core.values.due import NEVER
from queue_core.values.model import Magazine, QueueInfo, State, Ticket, TicketRange

if TYPE_CHECKING:
    from queue_core.catalog.slices.shard_locks import Horizon

#: Conditions on slices, all of which must hold.
Rules: TypeAlias = tuple[ColumnElement[bool], ...]
#: A shard and a place in it.
Position: TypeAlias = tuple[int, int]
#: The beginning of a magazine.
START: Position = (0, 0)
#: The first and the last place of a part of a magazine.
Stretch: TypeAlias = tuple[Position, Position]

#: The conditions of slices that wait, that are in flight, and that are damaged or not.
WAITING: Rules = (slices.c.state == int(State.LOADED),)
IN_FLIGHT: Rules = (slices.c.state == int(State.FIRED),)
DAMAGED: Rules = (slices.c.state == int(State.DAMAGED),)
SOUND: Rules = (slices.c.state != int(State.DAMAGED),)
#: The condition of slices in the index of tickets, which has those in flight, and few others. All
#: ids are more than 0, and without it SQLite would look through all slices.
WITH_TICKET: Rules = (slices.c.consumer_id > 0,)

#: The conditions of messages without a time to return to main, of those that are not dead, and of
#: those that may return now.
TIMELESS: Rules = (slices.c.due_at.is_(None),)
ALIVE: Rules = (or_(*TIMELESS, slices.c.due_at < NEVER),)
READY: Rules = (or_(*TIMELESS, slices.c.due_at <= select(dialect.now()).scalar_subquery()),)

#: Where a slice begins in its magazine.
_place = tuple_(slices.c.shard, slices.c.position)
#: Microseconds: later than any clock, and within a database's integers.
_FOR_EVER = 10**17


class Eligible(NamedTuple):
    """Conditions that were built once, and the values of their parameters."""

    where: Rules
    given: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Where the slices are that a request may take, and the rules that they meet."""

    #: The queues, of one schema.
    queue_ids: tuple[int, ...]
    magazine: Magazine = Magazine.MAIN
    #: Only slices that meet all of these: the settings of the queues.
    rules: Rules = ()
    #: Only from these shards; None: from all.
    shards: tuple[int, ...] | None = None
    #: Only slices that begin from one shard and place to another.
    within: Stretch | None = None
    #: Only messages that were loaded by then, and not fired since.
    horizon: Horizon | None = None
    #: Only messages that were lost among so many with their consumer; 0: that are no suspects.
    lost_among: int | None = None

    @property
    def where(self) -> tuple[tuple[int, ...], Magazine, tuple[int, ...] | None]:
        """Its shards: their queues, their magazine, and their numbers if not all."""
        return self.queue_ids, self.magazine, self.shards

    @property
    def is_conditional(self) -> bool:
        """Whether it may leave out messages that wait in its shards."""
        others = (self.within, self.horizon, self.lost_among)
        return bool(self.rules) or any(each is not None for each in others)


def in_queue(queue_id: int, *magazines: Magazine) -> Rules:
    """Return the conditions of slices of a queue, in some magazines or by default in all."""
    return (slices.c.queue_id == queue_id, *(in_magazines(magazines) if magazines else ()))


def in_queues(queue_ids: Collection[int], *magazines: Magazine) -> Rules:
    """Return the conditions of slices of some queues, in some magazines or by default in all."""
    these = dialect.one_of(slices.c.queue_id, queue_ids)
    return (these, *(in_magazines(magazines) if magazines else ()))


def in_magazines(magazines: Sequence[Magazine]) -> Rules:
    """Return the condition of slices in some magazines."""
    if len(magazines) == 1:
        return (slices.c.magazine == int(magazines[0]),)
    return (slices.c.magazine.in_([int(each) for each in magazines]),)


def in_shards(shards: Collection[int]) -> Rules:
    """Return the condition of slices in shards of these numbers."""
    return (dialect.one_of(slices.c.shard, shards),)


def in_shard(key: tuple[int, int, int]) -> Rules:
    """Return the conditions of slices in one shard."""
    queue_id, magazine, shard = key
    return (
        slices.c.queue_id == queue_id,
        slices.c.magazine == magazine,
        slices.c.shard == shard,
    )


def before(place: Position) -> Rules:
    """Return the condition of slices that begin before a place of a magazine."""
    return (_place < place,)


def behind(place: int) -> Rules:
    """Return the condition of slices that begin behind a place of their shard."""
    return (slices.c.position > place,)


def next_in(key: tuple[int, int, int], place: int) -> Eligible:
    """Return the conditions of slices of a shard that begin behind a place."""
    queue_id, _, shard = key
    return Eligible(_BEHIND, {"at_queue": queue_id, "at_shard": shard, "behind": place})


def in_state(*states: State) -> Rules:
    """Return the condition of slices in one of some states."""
    return (slices.c.state.in_([int(state) for state in states]),)


def of_segments(segments: Collection[int]) -> Rules:
    """Return the condition of slices that name rows of some segments."""
    return (dialect.one_of(slices.c.segment_id, segments),)


def of_few_segments(queue_id: int, segments: Collection[int]) -> Rules:
    """Return the same for segments of one queue, which may have many more slices."""
    own = dialect.not_indexed(slices.c.queue_id) == queue_id
    return (own, *of_segments(segments))


def of_compacted_segments(queue_id: int) -> Rules:
    """Return the condition of slices whose messages were compacted, in a queue."""
    compacted = select(id_map.c.segment_id).where(id_map.c.queue_id == queue_id)
    return (slices.c.segment_id.in_(compacted),)


def these(ids: Collection[int]) -> Rules:
    """Return the condition of the slices with these ids."""
    return (dialect.one_of(slices.c.id, ids),)


def numbered_above(slice_id: int) -> Rules:
    """Return the condition of slices with higher ids."""
    return (slices.c.id > slice_id,)


def held_by(consumer_id: int, *, after: int | None = None, upto: int | None = None) -> Rules:
    """Return the conditions of slices that a consumer holds, by some of its tickets or by any."""
    first = () if after is None else (slices.c.ticket > after,)
    last = () if upto is None else (slices.c.ticket <= upto,)
    return (slices.c.consumer_id == consumer_id, *first, *last)


def of_firing(ticket: Ticket) -> Rules:
    """Return the conditions of slices that a ticket of this number and time holds."""
    own = held_by(ticket.consumer.id, after=ticket.number - 1, upto=ticket.number)
    return (*own, slices.c.fired_at == ticket.fired_at)


def of_tickets(tickets: TicketRange) -> Rules:
    """Return the conditions of slices that tickets of a consumer hold."""
    return held_by(tickets.consumer.id, after=tickets.after, upto=tickets.upto)


def ago(seconds: float) -> ColumnElement[int]:
    """Return the time *seconds* before now, computed once for all rows."""
    microseconds = int(min(seconds * 1e6, _FOR_EVER))
    return (select(dialect.now()).scalar_subquery() - microseconds).self_group()


def fireable(queues: Sequence[QueueInfo], magazine: Magazine) -> Rules:
    """Return the rules of a firing: no expired messages, and from main none fired too often."""
    # A rule for each of a thousand queues would be too large for a statement.
    alike: dict[tuple[float | None, int | None], list[QueueInfo]] = defaultdict(list)
    for queue in queues:
        most = queue.settings.max_deliveries if magazine is Magazine.MAIN else None
        alike[expiry_in(queue, magazine), most].append(queue)
    rules: list[ColumnElement[bool]] = []
    for (expiry, most), some in alike.items():
        own = (*_unexpired(expiry), *_rarely_fired(most))
        if len(alike) == 1:
            return own
        others = ~dialect.one_of(slices.c.queue_id, [queue.id for queue in some])
        rules.extend(or_(others, rule) for rule in own)
    return tuple(rules)


def movable(queue: QueueInfo) -> Rules:
    """Return the rules of any shovel: no messages that have expired, or would do so in main."""
    return tuple(rule for magazine in Magazine for rule in unexpired(queue, magazine))


def retriable(queue: QueueInfo) -> Rules:
    """Return the rules of a shovel: movable messages that are not dead."""
    return (*movable(queue), *ALIVE, *_rarely_fired(queue.settings.max_deliveries))


# Each rule is built once: the statements of `eligible` are cached by it.
@lru_cache(maxsize=64)
def _rarely_fired(most: int | None) -> Rules:
    # The column has 32 bits.
    return () if most is None else (slices.c.deliveries < min(most, 2**31 - 1),)


def expired(queue: QueueInfo, magazine: Magazine) -> Rules:
    """Return the rule for slices with a message too old for a magazine; none if all may stay."""
    return _expired(expiry_in(queue, magazine))


def unexpired(queue: QueueInfo, magazine: Magazine) -> Rules:
    """Return the rule for slices without such a message."""
    return _unexpired(expiry_in(queue, magazine))


@lru_cache(maxsize=64)
def _expired(expiry: float | None) -> Rules:
    return () if expiry is None else (slices.c.loaded_at <= ago(expiry),)


@lru_cache(maxsize=64)
def _unexpired(expiry: float | None) -> Rules:
    return tuple(not_(rule) for rule in _expired(expiry))


def expiry_in(queue: QueueInfo, magazine: Magazine) -> float | None:
    """Return the age in seconds at which a message of a magazine expires; None if it does not."""
    settings = queue.settings
    return settings.message_expiry if magazine is Magazine.MAIN else settings.sideline_expiry


def overdelivered(queue: QueueInfo) -> Rules:
    """Return the rule for slices that were fired too often; no rule if there is no limit."""
    return tuple(not_(rule) for rule in _rarely_fired(queue.settings.max_deliveries))


#: The parameters of a part of a magazine, and the conditions of slices that begin in it.
_ENDS = ("first_shard", "first_position", "last_shard", "last_position")
_PARAMETERS = [bindparam(end, type_=BigInteger) for end in _ENDS]
WITHIN_ENDS: Rules = (_place >= tuple_(*_PARAMETERS[:2]), _place <= tuple_(*_PARAMETERS[2:]))


def ends_of(stretch: Stretch) -> dict[str, int]:
    """Return the parameters of `WITHIN_ENDS`."""
    first, last = stretch
    return dict(zip(_ENDS, (*first, *last), strict=True))


def eligible(request: Wanted, *, by_segment: bool = False) -> Eligible:
    """
    Return the conditions on slices that may hold messages for a request, with parameters.

    With *by_segment*, another condition names their segments, and a database without statistics
    must not look through the whole queue instead.
    """
    given: dict[str, Any] = {"in_magazine": int(request.magazine)}
    several = len(request.queue_ids) > 1
    given["of_queues"] = request.queue_ids if several else request.queue_ids[0]
    if request.within is not None:
        given |= ends_of(request.within)
    if request.shards is not None:
        given["of_shards"] = request.shards
    if request.horizon is not None:
        given["horizon"] = request.horizon.at
    if request.lost_among is not None:
        given["among"] = request.lost_among
    where = _eligible(
        request.rules,
        frozenset(given),
        several=several,
        indexed=not by_segment or request.within is not None,
    )
    return Eligible(where, given)


def eligible_of_segments(request: Wanted, segments: Collection[int]) -> Eligible:
    """Return the same for slices that name rows of some segments."""
    where, given = eligible(request, by_segment=True)
    given["of_segments"] = segments
    return Eligible((_OF_SEGMENTS, *where), given)


def fired_of_segments(queue_ids: Collection[int], segments: Collection[int]) -> Eligible:
    """Return the conditions of slices of tickets that name rows of some segments."""
    return Eligible(_FIRED_OF_SEGMENTS, {"of_segments": segments, "of_queues": queue_ids})


_OF_SEGMENTS = dialect.one_of_given(slices.c.segment_id, "of_segments")
_FIRED_OF_SEGMENTS: Rules = (
    _OF_SEGMENTS,
    dialect.one_of_given(dialect.not_indexed(slices.c.queue_id), "of_queues"),
    # Their consumer may have read messages that were quarantined later.
    slices.c.ticket.is_not(None),
)
_BEHIND: Rules = (
    slices.c.queue_id == bindparam("at_queue", type_=slices.c.queue_id.type),
    slices.c.shard == bindparam("at_shard", type_=slices.c.shard.type),
    slices.c.position > bindparam("behind", type_=slices.c.position.type),
)


@lru_cache(maxsize=256)
def _eligible(
    rules: Rules,
    given: frozenset[str],
    *,
    several: bool,
    indexed: bool,
) -> Rules:
    queue_id = slices.c.queue_id if indexed else dialect.not_indexed(slices.c.queue_id)
    number = slices.c.queue_id.type
    conditions = [
        dialect.one_of_given(queue_id, "of_queues")
        if several
        else queue_id == bindparam("of_queues", type_=number),
        slices.c.magazine == bindparam("in_magazine"),
        *WAITING,
        *rules,
    ]
    if "among" in given:
        lost_among = slices.c.lost_among
        conditions.append(lost_among == bindparam("among", type_=lost_among.type))
    if _ENDS[0] in given:
        conditions += WITHIN_ENDS
    if "of_shards" in given:
        conditions.append(dialect.one_of_given(slices.c.shard, "of_shards"))
    if "horizon" in given:
        fired_at, at = slices.c.fired_at, bindparam("horizon", type_=slices.c.fired_at.type)
        # A future time comes from a clock that was ahead; it is not a firing since then.
        conditions.append(fired_at.is_(None) | (fired_at < at) | (fired_at > ago(0)))
    return tuple(conditions)
