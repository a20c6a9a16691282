"""Fire requests: the limits and conditions of a firing, and its candidates."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog.database import Catalog
from queue_core.catalog.slices import turns
from queue_core.catalog.slices.conditions import Wanted
from queue_core.catalog.slices.slices import ShardKey
from queue_core.errors import BadOption
from queue_core.selection.reading import Reading
from queue_core.selection.selection import Selection
from queue_core.selection.terms import Terms
from queue_core.values.ids import IdSet
from queue_core.values.limits import Limit
from queue_core.values.model import Magazine
from queue_core.values.rows import Numbers
from queue_core.values.settings import check_count

#: Seconds after which to look again for room below a limit of messages in flight. The settlement
#: that makes room also wakes those who wait.
IN_FLIGHT_SECONDS = 1.0

#: Seconds after which to look again for messages that another transaction keeps. It may be rolled
#: back, of which nobody is notified.
LOCKED_SECONDS = 0.5

#: A number of messages, or all that wait.
Count: TypeAlias = int | Literal["all"]


@dataclass(slots=True)
class Stall:
    """Whether a firing has left suspects to a time when its consumer holds nothing."""

    stalled: bool = False


@dataclass(slots=True)
class Cut:
    """What a firing leaves: whether a limit of bytes has left messages that it could have taken."""

    by_bytes: bool = False
    #: How many messages waited before it, by the counters of its shards; None: it is not known.
    waited: int | None = None

    def to_bytes(self, ids: Numbers, sizes: npt.NDArray[np.float64], most: int) -> Numbers:
        """Return the first messages of *most* bytes, one at least; note if some are left."""
        fitting = int((np.cumsum(sizes) <= most).sum())
        self.by_bytes |= fitting < len(ids)
        return ids[: max(fitting, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRequest(Wanted):
    """The limits and conditions of a firing."""

    max_messages: int | None = None
    #: A firing takes at least one message, even if it is larger.
    max_bytes: int | None = None
    #: The most slices that its transaction takes; None: `shares.MAX_SLICES`.
    max_slices: int | None = None
    #: Only messages that were loaded by then.
    horizon: Horizon | None = None
    #: Only messages that match it, in its order.
    selection: Selection | None = None
    #: The limits of the queues, if they have some.
    limits: Limits | None = None
    #: Also from a paused queue (its setting ``concurrency`` is 0).
    even_if_paused: bool = False
    #: The other terms of the queues.
    terms: Terms = field(default_factory=Terms)
    #: Whether it takes evenly from all shards, since tasks read them side by side.
    spread: bool = False
    #: The newest ticket of the consumer that Spark has logged; the new ticket follows it.
    after: int = 0
    #: Whether other transactions kept messages from it.
    beside: Beside = field(default_factory=lambda: Beside())
    #: The plan to read the messages, if they are read at once.
    reading: Reading | None = field(default=None, compare=False)
    #: What the firing notes about suspects.
    stall: Stall = field(default_factory=Stall, compare=False)
    #: What the firing notes about the messages that it leaves.
    cut: Cut = field(default_factory=Cut, compare=False)

    @property
    def takes_all(self) -> bool:
        """Whether it has no limit, so that its order does not matter."""
        return self.max_messages is None and self.max_bytes is None

    @property
    def refused_for(self) -> float | None:
        """Seconds after which to fire again, since messages were refused; None if none were."""
        of_limits = None if self.limits is None else self.limits.refused_for
        known = [each for each in (of_limits, self.beside.refused_for) if each is not None]
        return min(known, default=None)

    @property
    def by_time(self) -> bool:
        """Whether refused messages may be fired later without a settlement, as time passes."""
        by_limits = self.limits is not None and self.limits.by_time
        return by_limits or self.beside.refused_for is not None


@dataclass(slots=True)
class Beside:
    """Whether another transaction has kept messages from a firing, such as a caller's own."""

    #: Seconds after which to look again; None if none has.
    refused_for: float | None = None

    def refuse(self) -> None:
        """Note that a lock could not be had in time."""
        self.refused_for = LOCKED_SECONDS * random.uniform(1, 1.25)


@dataclass(slots=True)
class Limits:
    """The limits of the queues of a firing, and whether they have refused messages to it."""

    #: Each limit with its queue's id.
    each: tuple[tuple[int, Limit], ...]
    #: Seconds after which they may allow messages; None if they have refused none.
    refused_for: float | None = None
    #: Whether messages are allowed then without a settlement, just because time passes.
    by_time: bool = False

    def refuse(self, waits: Sequence[float]) -> None:
        """Note a refusal, and the seconds after which its parts end; infinite: a settlement."""
        least = min(waits)
        self.by_time = least < inf
        # Those who wait should not all come at the same moment, so that none always comes first.
        seconds = min(least, IN_FLIGHT_SECONDS) if inf in waits else least
        self.refused_for = seconds * random.uniform(1, 1.25)


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """A moment. A query that handles only messages loaded by then ends."""

    #: The load pointer of each shard: only messages before it are fired.
    pointers: Mapping[ShardKey, int]
    #: The catalog's time: only messages without a firing since then are fired.
    at: int

    @staticmethod
    def now(catalog: Catalog, queue_ids: Sequence[int], magazine: Magazine) -> Horizon:
        """Return the present moment of some queues."""
        with catalog.read() as connection:
            return Horizon.of(connection, queue_ids, magazine)

    @staticmethod
    def of(connection: Connection, queue_ids: Sequence[int], magazine: Magazine) -> Horizon:
        """Return the moment that a transaction sees."""
        pointers, at = turns.load_pointers_now(connection, queue_ids, magazine)
        return Horizon(pointers=pointers, at=at)


class Candidates(NamedTuple):
    """The matches of a selection, found before the transaction that takes them."""

    ids: IdSet
    #: How many messages had been fired from each shard by then. In a queue with groups, this number
    #: must be unchanged; otherwise, another message may be the head of its group.
    fired: Mapping[ShardKey, int]
    #: The shards whose candidates were already cut to the byte limit, by an order.
    ranked: frozenset[ShardKey]
    #: By the id of a queue with limits of values: the ids of its candidates, and these columns.
    values: Mapping[int, pa.Table] = {}


def most_messages(max_messages: Count | None, max_bytes: int | None) -> int | None:
    """Return the limit of messages of a firing, None for no limit; raises `BadOption`."""
    if max_messages == "all":
        return None
    if max_messages is None and max_bytes is None:
        return 1
    if isinstance(max_messages, str):
        raise BadOption(f'max_messages={max_messages!r}: use a whole number, 1 or more, or "all"')
    return check_count("max_messages", max_messages)
