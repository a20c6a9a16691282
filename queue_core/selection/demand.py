"""`Demand`: what a consumer takes, and the request that it becomes by the settings of queues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from queue_core.catalog.slices.conditions import fireable
from queue_core.selection.queue_rules import of_firing
from queue_core.selection.request import FireRequest
from queue_core.selection.selection import AnySelector, Selection
from queue_core.selection.terms import terms_of
from queue_core.values.model import BY_SHARD, Magazine, QueueInfo, check_roots

if TYPE_CHECKING:
    from queue_core.selector import NoneOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Which messages a consumer takes, how many of them, and in which order."""

    #: None for no limit.
    max_messages: int | None = None
    max_bytes: int | None = None
    magazine: Magazine = Magazine.MAIN
    #: SQL, or a function of Arrow columns.
    selector: AnySelector | None = None
    #: Which of these are left for later firings.
    left_out: NoneOf | None = None
    order_by: str | None = None
    #: The order without *order_by*.
    order: str = BY_SHARD
    #: Whether to take the oldest message if none meets *selector*.
    fallback: bool = False
    #: Also from a paused queue.
    even_if_paused: bool = False

    def selection(self, queues: Sequence[QueueInfo], storage: str) -> Selection | None:
        """
        Return the messages that it may take, and their order; raises as `Selection.parse` does.

        *storage* is the URI of the storage that has them.
        """
        return Selection.parse(
            queues,
            storage,
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
            max_messages=self.max_messages,
            max_bytes=self.max_bytes,
            selection=selection,
            rules=fireable(queues, self.magazine),
            terms=terms_of(queues, self.magazine, self.order_by, self.order, storage),
            even_if_paused=self.even_if_paused,
        )
