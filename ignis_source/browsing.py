"""A query that takes no messages: its tickets are windows of positions."""

from __future__ import annotations

from collections.abc import Sequence

from ignis_source.options import SourceOptions
from ignis_source.queue_refresh import Queues
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.selection.fired import Fired
from queue_core.selection.request import FireRequest
from queue_core.values.model import Consumer, QueueInfo, ReadPlan, TicketRange
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.browse import browse_next, browsed


class BrowsingTickets:
    """Tickets that each begin where the last one ended."""

    def __init__(self, store: StoreHandle, queues: Queues, options: SourceOptions) -> None:
        self._store = store
        self._queues = queues
        self._options = options

    @property
    def fireable_queues(self) -> Sequence[QueueInfo]:
        """All queues: a pause does not concern a browser."""
        return self._queues.infos

    def fire(self, consumer: Consumer, request: FireRequest) -> Fired:
        """Note the next window, if there are new messages."""
        found = browse_next(self._store.catalog, consumer, request)
        return Fired(ticket=None if found is None else found[0])

    def acknowledge(self, consumer: Consumer, ticket: int) -> None:
        """Forget the tickets before *ticket*, which records where to continue."""
        acknowledge(
            self._store.catalog,
            consumer,
            ticket - 1,
            delete=False,
            queues=self._queues.infos,
            logged=ticket,
        )

    def plan(self, tickets: TicketRange) -> ReadPlan:
        """Return the plan to read the messages in the windows of tickets."""
        catalog, uri, known = self._store.catalog, self._store.storage.uri, self._queues.infos
        magazine, whole = self._options.magazine, self._options.all_columns
        return browsed(catalog, uri, known, magazine, tickets, all_columns=whole)
