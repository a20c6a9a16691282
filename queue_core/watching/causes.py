"""Causes: what keeps messages of queues from being handled, read with their figures.

Whoever reads them decides nothing: `queue_core.watching.problems` does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection

from queue_core.catalog.holders import holders
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.records import acts, breakers, retries, shared_limits, token_buckets
from queue_core.catalog.records.token_buckets import BucketKey
from queue_core.values import buckets
from queue_core.values.limits import Limit, by_name
from queue_core.values.settings import QueueSettings


@dataclass(frozen=True, slots=True)
class Holder:
    """A consumer that holds messages, of one queue or of all."""

    name: str
    held: int
    #: Since its first firing that is not settled.
    held_for: float | None
    #: Since its last heartbeat; None: it sends none.
    silent_for: float | None
    #: The machine and the process that started it; None: they are not known.
    host: str | None = None
    pid: int | None = None
    #: How its query finishes messages; None: it is not a query.
    ack: str | None = None


class OpenBreaker(NamedTuple):
    """A breaker that lets no messages be fired."""

    name: str
    state: str
    #: Seconds since it opened, whatever its probes have shown, or since a person opened it.
    since: float
    #: Whether a person has opened it.
    forced: bool = False
    #: Who did; None: it is not known, or nobody.
    who: str | None = None
    #: The queues of its handler, as far as they are known.
    queues: tuple[str, ...] = ()


class LimitState(NamedTuple):
    """A limit of a whole queue, or of queues that share it, at a moment."""

    limit: Limit
    #: Messages in flight from main.
    in_flight: int
    #: How many messages may be fired now; None: it has no rate.
    tokens: int | None
    #: Seconds until there are more tokens.
    opens_in: float
    #: The queues that share it, and how many messages of each are in flight, the most first.
    shared_by: tuple[tuple[str, int], ...] = ()

    @property
    def allowed(self) -> int:
        """How many messages it allows to be fired now."""
        most = [] if self.tokens is None else [self.tokens]
        if self.limit.in_flight is not None:
            most.append(max(self.limit.in_flight - self.in_flight, 0))
        return min(most)


class Blocked(NamedTuple):
    """A rule of a queue that holds back each message that waits."""

    #: ``group``, ``limits``, ``hold_until``, ``expires_at`` or ``max_deliveries``.
    rule: str
    #: Its column, its limits, or their number.
    name: str
    #: Seconds until the first message may be fired; None: that depends on others.
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Causes:
    """What keeps the messages of a queue from being handled."""

    holders: tuple[Holder, ...] = ()
    breakers: tuple[OpenBreaker, ...] = ()
    limits: tuple[LimitState, ...] = ()
    #: Of one queue alone: seconds until the first message of the sideline returns.
    next_due: float | None = None

    @property
    def silent(self) -> list[Holder]:
        """The holders that have sent no heartbeat for a minute."""
        return [each for each in self.holders if (each.silent_for or 0) > DEAD_AFTER_SECONDS]


def read(
    connection: Connection,
    now: int,
    queues: Mapping[int, tuple[str, QueueSettings]],
    breakers: Iterable[OpenBreaker],
    in_flight: Mapping[int, int],
    only: int | None = None,
) -> dict[int, Causes]:
    """
    Return the causes of queues by their ids; *queues*: their names and settings.

    *breakers*: those of `read_breakers`. *in_flight*: messages in flight from main. *only*: one
    queue, if these are not all.
    """
    holding = read_holders(connection, now, None if only is None else [only])
    states = _states(connection, now, queues, in_flight)
    due = {} if only is None else retries.next_due(connection, [queues[only][0]])
    left = {each.queue: each.left / 1e6 for each in due if each.job is None}
    by_queue: dict[str, list[OpenBreaker]] = defaultdict(list)
    for breaker in breakers:
        for name in breaker.queues:
            by_queue[name].append(breaker)
    return {
        queue_id: Causes(
            tuple(holding[queue_id]),
            tuple(by_queue[name]),
            tuple(states[queue_id]),
            left.get(name),
        )
        for queue_id, (name, _) in queues.items()
    }


def read_holders(
    connection: Connection, now: int, queue_ids: Collection[int] | None
) -> dict[int, list[Holder]]:
    """Return the consumers that hold messages, of some queues or of all, by the queues' ids."""
    found: dict[int, list[Holder]] = defaultdict(list)
    for row in holders.holding(connection, queue_ids):
        holder = Holder(
            name=row.name,
            held=int(row.held),
            held_for=since(row.fired_at, now),
            silent_for=since(row.heartbeat_at, now),
            host=row.host,
            pid=row.pid,
            ack=row.ack,
        )
        found[row.queue_id].append(holder)
    return found


def read_breakers(
    connection: Connection, now: int, names: Mapping[int, str]
) -> tuple[OpenBreaker, ...]:
    """
    Return the breakers that are not closed.

    *names*: those of the queues by their ids. The queues of a breaker are those that its name
    consists of, and those of the consumer that has opened it.
    """
    rows = breakers.opened(connection)
    of = holders.queues_of(connection, {row["consumer"] for row in rows if row["consumer"]})
    opened = {row["name"]: row["since_at"] for row in rows if row["forced"]}
    who = acts.doers(connection, "breaker open", opened)
    known, found = set(names.values()), []
    for row in rows:
        own = known.intersection(row["name"].split(","))
        own.update(names[id] for id in of.get(row["consumer"], ()) if id in names)
        is_own = row["forced"] or row["opened_at"] is None
        opened_at = row["since_at"] if is_own else row["opened_at"]
        open_for = since(opened_at, now) or 0.0
        found.append(
            OpenBreaker(
                row["name"],
                row["state"],
                open_for,
                bool(row["forced"]),
                who.get(row["name"]),
                tuple(sorted(own)),
            )
        )
    return tuple(found)


def _states(
    connection: Connection,
    now: int,
    queues: Mapping[int, tuple[str, QueueSettings]],
    in_flight: Mapping[int, int],
) -> dict[int, list[LimitState]]:
    """Return the limits of whole queues, not those of values, by the ids of the queues."""
    spent = token_buckets.read_all(connection)
    found: dict[int, list[LimitState]] = defaultdict(list)
    is_shared = any(by_name(settings.limits) for _, settings in queues.values())
    users = shared_limits.users(connection) if is_shared else {}
    for queue_id, (_, settings) in queues.items():
        for each in settings.limits:
            if each.column is None:
                sharing = users.get(each.name or "", [])
                flying = (
                    sum(count for _, count in sharing) if sharing else in_flight.get(queue_id, 0)
                )
                state = _state(each, spent.get(BucketKey.of(queue_id, each)), flying, now)
                found[queue_id].append(state._replace(shared_by=tuple(sharing)))
    return found


def _state(limit: Limit, spent: int | None, in_flight: int, now: int) -> LimitState:
    if limit.per_second is None:
        return LimitState(limit, in_flight, None, 0.0)
    tokens = buckets.tokens(limit, spent, now)
    return LimitState(
        limit, in_flight, tokens, 0.0 if tokens else buckets.wait(limit, spent, now) / 1e6
    )


def since(at: int | None, now: int) -> float | None:
    """Return the seconds from a time to another one, which are 0 if the clock was set back."""
    return None if at is None else max(now - at, 0) / 1e6
