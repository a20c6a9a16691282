"""Fired: what a firing has found: its ticket, or why it has none and when to look again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from queue_core.values.model import ReadPlan, Ticket
from queue_core.values.plan import Taken
from queue_core.values.rows import Numbers

if TYPE_CHECKING:
    from queue_core.catalog.slices.shard_locks import Backlog
    from queue_core.catalog.slices.slices import ShardKey

#: Seconds after which to look again for room below a limit of messages in flight. The settlement
#: that makes room also wakes those who wait.
IN_FLIGHT_SECONDS = 1.0

#: Seconds after which to look again for messages that another transaction keeps. Nobody is notified
#: when it is rolled back.
LOCKED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Refusal:
    """Messages wait that a firing may not take now."""

    #: Seconds after which to look again.
    seconds: float
    #: Whether they may be taken then without a settlement, as time passes.
    by_time: bool

    @staticmethod
    def by_limits(waits: Sequence[float]) -> Refusal:
        """Return a refusal until the least of these seconds; infinite: until a settlement."""
        least = min(waits)
        seconds = min(least, IN_FLIGHT_SECONDS) if inf in waits else least
        return Refusal(_apart(seconds), by_time=least < inf)

    @staticmethod
    def by_lock() -> Refusal:
        """Return the refusal of messages whose lock could not be had in time."""
        return Refusal(_apart(LOCKED_SECONDS), by_time=True)


class Choice(NamedTuple):
    """The rows that a firing takes, and what it leaves."""

    taken: list[Taken]
    #: Whether a limit of bytes has left messages that it could have taken.
    full: bool = False
    #: How many messages waited before it, by the counters of its shards; None: unknown.
    waited: int | None = None
    #: The backlogs of the shards that it has locked, if it takes the next messages of each.
    backlog: Mapping[ShardKey, Backlog] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What a firing has taken, or why it has taken nothing."""

    #: None if it has taken nothing.
    ticket: Ticket | None = None
    #: How to read its messages; None: nobody asked for a plan, or the ticket will give it.
    plan: ReadPlan | None = None
    #: As in `Choice`.
    full: bool = False
    #: Whether it may have left messages that could be fired now.
    more: bool = True
    #: How long its messages waited in main: the id of their queue, microseconds, and how many.
    waits: tuple[tuple[int, int, int], ...] = ()
    #: Messages that limits have refused.
    refused: Refusal | None = None
    #: Messages that another transaction has kept, such as a caller's own.
    locked: Refusal | None = None
    #: Whether it has left messages for later, when its consumer holds nothing.
    stalled: bool = False
    #: Whether these are suspects; otherwise, they wait until its suspects are settled.
    suspects: bool = False
    #: The ticket numbers that it has reserved for later firings.
    reserved: range = range(0)

    @property
    def opens_in(self) -> float | None:
        """Seconds after which to fire again, since messages were refused; None if none were."""
        return min((refusal.seconds for refusal in self._refusals), default=None)

    @property
    def by_time(self) -> bool:
        """Whether refused messages may be fired later without a settlement, as time passes."""
        return any(refusal.by_time for refusal in self._refusals)

    @property
    def _refusals(self) -> list[Refusal]:
        return [each for each in (self.refused, self.locked) if each is not None]


def fitting(ids: Numbers, sizes: npt.NDArray[np.float64], most: int) -> tuple[Numbers, bool]:
    """Return the first messages of *most* bytes, one at least; and whether some are left."""
    count = int((np.cumsum(sizes) <= most).sum())
    return ids[: max(count, 1)], count < len(ids)


def _apart(seconds: float) -> float:
    """Make a wait longer at random, so that those who wait do not all come at once."""
    return seconds * random.uniform(1, 1.25)
