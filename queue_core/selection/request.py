"""Fire requests: what a consumer takes, under which conditions, its candidates, and their plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog.slices import read_plans
from queue_core.catalog.slices.conditions import Wanted, fireable
from queue_core.catalog.slices.slices import ShardKey
from queue_core.errors import BadOption, DamagedCatalog
from queue_core.selection.fired import Refusal
from queue_core.selection.queue_rules import of_firing
from queue_core.selection.selection import AnySelector, Selection
from queue_core.selection.terms import Terms, terms_of
from queue_core.values.ids import IdSet
from queue_core.values.limits import MANY
from queue_core.values.model import BY_SHARD, Magazine, QueueInfo, ReadPlan, check_roots
from queue_core.values.plan import Taken
from queue_core.values.rows import Numbers
from queue_core.values.settings import check_count

if TYPE_CHECKING:
    from queue_core.selector import NoneOf

#: A number of messages, or all that wait.
Count: TypeAlias = int | Literal["all"]

#: A plan of more slices is made after the transaction, since other firings wait for its end.
MOST_SLICES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FireRequest(Wanted):
    """The limits and conditions of a firing, and where its messages are."""

    max_messages: int | None = None
    #: A firing takes at least one message, even if it is larger.
    max_bytes: int | None = None
    #: The most slices that its transaction takes; None: `quotas.MAX_SLICES`.
    max_slices: int | None = None
    #: Only messages that match it, in its order.
    selection: Selection | None = None
    #: The terms of the queues.
    terms: Terms = field(default_factory=Terms)
    #: Also from a paused queue (its setting ``concurrency`` is 0).
    even_if_paused: bool = False
    #: Whether it takes evenly from all shards, since tasks read them side by side.
    spread: bool = False
    #: The newest ticket of the consumer that Spark has logged; the new ticket follows it.
    after: int = 0
    #: The queues, as their messages are read; empty: it has no selection, and plans nothing.
    queues: tuple[QueueInfo, ...] = ()
    #: URI of the storage; not shown, as it may have credentials.
    storage: str = field(default="", repr=False)

    @property
    def must_see_all(self) -> bool:
        """Whether it chooses among all messages, so that all of the logs must be taken in."""
        return self.selection is not None or self.horizon is not None or self.terms.expires

    @property
    def takes_from_logs(self) -> bool:
        """Whether it may take any messages of logs itself."""
        return self.terms.logged and not (self.must_see_all or self.terms.selective)

    @property
    def must_take_in(self) -> bool:
        """Whether messages of logs must be taken in before it."""
        return self.terms.logged and not self.takes_from_logs

    @property
    def takes_all(self) -> bool:
        """Whether it has no limit, so that its order does not matter."""
        return self.max_messages is None and self.max_bytes is None

    def plan(
        self, connection: Connection, taken: Sequence[Taken], fired_at: int
    ) -> ReadPlan | None:
        """
        Return how to read rows of slices that are fired at this time, which saves a transaction.

        None: the plan must be made from the ticket.
        """
        if not self.queues or len(taken) > MOST_SLICES:
            return None
        # Damage must not keep the messages from being fired: it would stop the queue.
        with suppress(DamagedCatalog):
            return read_plans.build(connection, self.queues, taken, self.storage, fired_at=fired_at)
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Which messages a consumer takes, how many of them, and in which order."""

    #: None for no limit.
    max_messages: int | None = None
    max_bytes: int | None = None
    magazine: Magazine = Magazine.MAIN
    #: SQL, or a function of Arrow columns.
    selector: AnySelector | None = None
    #: Messages that are left for later firings, whether they match or not.
    left_out: NoneOf | None = None
    order_by: str | None = None
    #: The order if *order_by* is None.
    order: str = BY_SHARD
    #: Whether to take the oldest message if none meets *selector*.
    fallback: bool = False
    #: Also from a paused queue.
    even_if_paused: bool = False

    def selection(self, queues: Sequence[QueueInfo]) -> Selection | None:
        """Return what it may take, and in which order; raises as `Selection.parse` does."""
        return Selection.parse(
            queues,
            self.selector,
            self.order_by,
            order=self.order,
            fallback=self.fallback,
            left_out=self.left_out,
            eligibility=partial(of_firing, magazine=self.magazine),
        )

    def request(
        self, queues: Sequence[QueueInfo], selection: Selection | None, storage: str
    ) -> FireRequest:
        """Return the request by the settings that *queues* have; raises `BadOption`."""
        check_roots(queues)
        return FireRequest(
            queue_ids=tuple(queue.id for queue in queues),
            magazine=self.magazine,
            max_messages=self.max_messages and min(self.max_messages, MANY),
            max_bytes=self.max_bytes,
            selection=selection,
            rules=fireable(queues, self.magazine),
            terms=terms_of(queues, self.magazine, self.order_by, self.order),
            even_if_paused=self.even_if_paused,
            queues=tuple(queues),
            storage=storage,
        )


class Candidates(NamedTuple):
    """The matches of a selection, found before the transaction that takes them."""

    ids: IdSet
    #: How many messages had been fired from each shard by then. In a queue with groups, this number
    #: must be unchanged; otherwise, another message may be the head of its group.
    fired: Mapping[ShardKey, int] = {}
    #: The shards whose candidates were found by an order, and already cut to the byte limit by it;
    #: and all ids as they were found.
    ranked: frozenset[ShardKey] = frozenset()
    order: Numbers = np.empty(0, np.int64)
    #: By the id of a queue with limits of values: the ids of its candidates, and these columns.
    values: Mapping[int, pa.Table] = {}
    #: Whether a limit of bytes has left messages.
    full: bool = False
    #: Whether it has found fewer than were wanted: there are no others now.
    complete: bool = False
    #: Messages that limits of values have refused; None if there are candidates.
    refused: Refusal | None = None


def most_messages(max_messages: Count | None, max_bytes: int | None) -> int | None:
    """Return the limit of messages of a firing, None for no limit; raises `BadOption`."""
    if max_messages == "all":
        return None
    if max_messages is None and max_bytes is None:
        return 1
    if isinstance(max_messages, str):
        raise BadOption(f'max_messages={max_messages!r}: use a whole number, 1 or more, or "all"')
    return check_count("max_messages", max_messages)
