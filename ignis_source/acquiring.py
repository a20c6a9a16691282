"""A query that takes messages: it fires tickets, and deletes their messages or leaves them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from ignis_source.options import SourceOptions
from ignis_source.queue_refresh import Queues
from queue_core.catalog.holders import consumers
from queue_core.catalog.holders.consumers import Unacknowledged
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.slices import amounts
from queue_core.catalog.slices.conditions import IN_FLIGHT, of_tickets
from queue_core.selection.fired import Fired
from queue_core.selection.request import FireRequest
from queue_core.values.model import Consumer, QueueInfo, ReadPlan, TicketRange
from queue_core.values.names import listed
from queue_core.verbs.acknowledge import acknowledge
from queue_core.verbs.fire import fire
from queue_core.verbs.read_tickets import read_tickets

Result = TypeVar("Result")

_log = logging.getLogger(__name__)


class AcquiringTickets:
    """Tickets that hold messages until these are settled: here with ack=onCommit."""

    def __init__(self, store: StoreHandle, queues: Queues, options: SourceOptions) -> None:
        self._store = store
        self._queues = queues
        self._all_columns = options.all_columns
        self._deletes = options.ack == consumers.DELETES_ON_COMMIT
        self._settles = options.ack == consumers.SETTLES
        #: Whether nothing was fired yet.
        self._is_first = True
        # The planned tickets, with their messages, until it is known that a sink settles them.
        self._unsettled: dict[TicketRange, int] | None = {} if self._settles else None

    @property
    def fireable_queues(self) -> Sequence[QueueInfo]:
        """The queues that are not paused."""
        return self._queues.running

    def fire(self, consumer: Consumer, request: FireRequest) -> Fired:
        """Fire a ticket, if there are messages."""
        catalog = self._store.catalog
        fired = self._after(
            consumer, request.after, lambda: fire(catalog, consumer, request, seen=False)
        )
        if self._is_first or fired.ticket is None:
            # Spark may end this process without notice, a short run after its first batch.
            self._is_first = False
            catalog.timings.flush(catalog.write, at_once=True)
        return fired

    def acknowledge(self, consumer: Consumer, ticket: int) -> None:
        """Note that all tickets up to *ticket* are committed."""
        acknowledge(
            self._store.catalog,
            consumer,
            ticket,
            delete=self._deletes,
            settles=self._settles,
            queues=self._queues.infos,
        )
        if self._unsettled is not None:
            self._check_settled(consumer, ticket, self._unsettled)

    def plan(self, tickets: TicketRange) -> ReadPlan:
        """Return the plan to read the messages of tickets."""
        catalog, uri = self._store.catalog, self._store.storage.uri
        after, infos, whole = tickets.after, self._queues.infos, self._all_columns
        plan = self._after(
            tickets.consumer,
            after,
            lambda: read_tickets(catalog, uri, infos, tickets, committed=after, all_columns=whole),
        )
        if self._unsettled is not None:
            self._unsettled[tickets] = len(plan)
        return plan

    def _after(self, consumer: Consumer, committed: int, work: Callable[[], Result]) -> Result:
        """Run a verb; first acknowledge the *committed* ticket if a restore has forgotten that."""
        while True:
            try:
                return work()
            except Unacknowledged:
                self.acknowledge(consumer, committed)

    def _check_settled(
        self, consumer: Consumer, ticket: int, planned: dict[TicketRange, int]
    ) -> None:
        """Warn if no message of the first batch was settled: the query may have no such sink."""
        first = [tickets for tickets in planned if tickets.upto <= ticket]
        count = sum(planned.pop(tickets) for tickets in first)
        if not count:
            return
        self._unsettled = None
        with self._store.catalog.read() as connection:
            of_each = [(*of_tickets(tickets), *IN_FLIGHT) for tickets in first]
            held = sum(amounts.messages(connection, *where) for where in of_each)
        if held >= count:
            names = listed([queue.name for queue in self._queues.infos], quoted=True)
            _log.warning(
                "queue %s, consumer %r: none of the %d messages of the first batch was settled. "
                "With ack=settle they stay in flight until a sweep sidelines them: write their "
                "outcomes to a sink with mode=settle, or use ack=onCommit",
                names,
                consumer.name,
                count,
            )
