"""The tickets of a query: one class for queries that take messages, one for browsers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ignis_source.handle import StoreHandle
from ignis_source.options import SourceOptions
from ignis_source.queue_refresh import Queues
from queue_core.selection.fired import Fired
from queue_core.selection.request import FireRequest
from queue_core.values.model import Consumer, QueueInfo, ReadPlan, TicketRange


class Tickets(Protocol):
    """The tickets of a query, in order."""

    #: The condition by which executors select messages; None if the firing selects them.
    selector: str | None

    @property
    def fireable_queues(self) -> Sequence[QueueInfo]:
        """The queues that may give messages now."""

    def fire(self, consumer: Consumer, request: FireRequest) -> Fired:
        """Write the next ticket, if there are messages."""

    def acknowledge(self, consumer: Consumer, ticket: int) -> None:
        """Note that the batches of all tickets up to *ticket* are committed."""

    def plan(self, consumer: Consumer, tickets: TicketRange) -> ReadPlan:
        """Return the plan to read the messages of a consumer's tickets."""


def tickets_of(store: StoreHandle, queues: Queues, options: SourceOptions) -> Tickets:
    """Return the tickets of a query that browses, or of one that takes messages."""
    # Each imports only its own verbs.
    if options.ack == "browse":
        from ignis_source.browsing import BrowsingTickets

        return BrowsingTickets(store, queues, options.magazine, options.selector)
    from ignis_source.acquiring import AcquiringTickets

    return AcquiringTickets(store, queues, deletes=options.ack == "onCommit")
