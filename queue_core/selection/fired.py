"""Fired: what a firing has found: its ticket, or why it has none and when to look again."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from queue_core.values.model import ReadPlan, Ticket
from queue_core.values.plan import Taken

if TYPE_CHECKING:
    from queue_core.catalog.slices.shard_locks import Backlog
    from queue_core.catalog.slices.slices import ShardKey

#: Seconds after which to look again for room below a limit of messages in flight. The settlement
#: that makes room also wakes those who wait.
IN_FLIGHT_SECONDS = 1.0

#: Seconds after which to look again for messages that another transaction keeps. It may be rolled
#: back, of which nobody is notified.
LOCKED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Refusal:
    """Messages wait that a firing may not take now."""

    #: Seconds after which to look again.
    seconds: float
    #: Whether they may be taken then without a settlement, just because time passes.
    by_time: bool

    @staticmethod
    def by_limits(waits: Sequence[float]) -> Refusal:
        """Return a refusal whose parts end after these seconds; infinite: after a settlement."""
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
    #: How many messages waited before it, by the counters of its shards; None: it is not known.
    waited: int | None = None
    #: The backlogs of the shards that it has locked for it, if the next messages were to be taken.
    backlog: Mapping[ShardKey, Backlog] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fired:
    """What a firing has taken, or why it has taken nothing."""

    #: None if it has taken nothing.
    ticket: Ticket | None = None
    #: How to read its messages; None: it was not asked, or is to be found from the ticket.
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
    #: Whether it has left messages to a time when its consumer holds nothing.
    stalled: bool = False
    #: Whether these are suspects; otherwise, they wait for suspects that it holds.
    suspects: bool = False
    #: The numbers of tickets that it has reserved for later ones.
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


def _apart(seconds: float) -> float:
    """Spread those who wait, so that not all come at one moment, and none always comes first."""
    return seconds * random.uniform(1, 1.25)
