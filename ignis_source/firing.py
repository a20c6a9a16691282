"""Fire the next ticket of a query, or wait a moment for messages."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ignis_source.options import SourceOptions
from ignis_source.presence import QueryPresence
from ignis_source.queue_refresh import Queues
from ignis_source.requests import Requests
from queue_core.catalog.identity.handle import StoreHandle
from queue_core.catalog.poller import Poller, Watch
from queue_core.errors import QueueDeactivated, SubscriptionDetached
from queue_core.selection.fired import Fired, Refusal
from queue_core.support import faults
from queue_core.values.names import listed

if TYPE_CHECKING:
    from ignis_source.acquiring import AcquiringTickets
    from ignis_source.browsing import BrowsingTickets
    from queue_core.catalog.records.breakers import SharedBreaker

_log = logging.getLogger(__name__)

#: Seconds after which an idle query looks again although nothing has changed.
IDLE_SECONDS = 5.0
#: The same if messages may be held or other consumers go first: both can end without a change.
HELD_SECONDS = 0.5


#: The tickets of a query, in order.
Tickets: TypeAlias = "AcquiringTickets | BrowsingTickets"
#: The most messages and the most bytes of a batch; None: any number.
Most: TypeAlias = tuple[int | None, int | None]


class TicketFirer:
    """Fires tickets for a query, and decides when an idle one looks at the catalog again."""

    def __init__(
        self,
        options: SourceOptions,
        requests: Requests,
        tickets: Tickets,
        watch: Watch,
        breaker: SharedBreaker | None = None,
    ) -> None:
        self._breaker = breaker
        #: Whether the breaker held messages back at the last look.
        self.stops = False
        self._options = options
        self._requests = requests
        self._tickets = tickets
        # In a store that others keep busy, five empty looks a second are enough.
        self._poller = Poller(watch, first=0.2, last=0.2, blind=IDLE_SECONDS)

    def next(self, presence: QueryPresence, after: int, most: Most) -> int | None:
        """Return the number of a new ticket after *after*; None if no message came in time."""
        if self._requests.horizon is not None:
            return self._to_the_end(presence, after, most)
        end = time.monotonic() + self._options.idle_wait
        while self._poller.wait(end):
            self._poller.pause()
            fired = self._fire(presence, after, most)
            if fired.ticket is not None:
                # A limit may have left some messages.
                self._poller.look_at_once()
                return fired.ticket.number
            self._poller.looked(blind=self._patience(presence, fired))
            # In a busy store there is always a reason to look: answer Spark in time.
            if time.monotonic() >= end:
                break
        return None

    def close(self) -> None:
        """Stop listening for changes."""
        self._poller.close()

    def _to_the_end(self, presence: QueryPresence, after: int, most: Most) -> int | None:
        """Fire. Without messages the run ends, so wait for those that time alone brings."""
        while True:
            fired = self._fire(presence, after, most)
            if fired.ticket is not None:
                return fired.ticket.number
            if fired.opens_in is None or not fired.by_time:
                return None
            time.sleep(fired.opens_in)

    def _fire(self, presence: QueryPresence, after: int, most: Most) -> Fired:
        self._requests.queues.refresh_if_due()
        max_messages, max_bytes = most
        probes = False
        if self._breaker is not None:
            state, probes = self._breaker.look(presence.consumer.name)
            self.stops = state.stops
            if self.stops and not probes:
                return Fired()
        limits = (max_messages, presence.credit(), 1 if probes else None)
        max_messages = min((each for each in limits if each is not None), default=None)
        request = self._requests.request(
            self._tickets.fireable_queues, max_messages, max_bytes, after
        )
        fired, ended, detached = Fired(), False, False
        if max_messages is not None and max_messages <= 0:
            # A settlement restores credit, of which nobody is notified.
            fired = Fired(refused=Refusal(HELD_SECONDS, by_time=False))
        elif request.queue_ids:
            faults.point("source.before_fire")
            try:
                fired = self._tickets.fire(presence.consumer, request)
            except QueueDeactivated as error:
                ended, detached = True, isinstance(error, SubscriptionDetached)
            faults.point("source.fired")
        ticket, horizon = fired.ticket, self._requests.horizon
        if ticket is None:
            if self._breaker is not None and probes:
                self._breaker.probed(None, presence.consumer.name)
            if not ended:
                return fired
            # A queue has ended since the queues were read; the others may have messages.
            self._requests.queues.refresh(detached=detached)
            return self._fire(presence, after, most)
        if horizon is not None and ticket.fired_at < horizon.at:
            # The clock was set back; what it fires comes no second time in this run.
            self._requests.horizon = replace(horizon, at=ticket.fired_at)
        presence.announce()
        _log.info(
            "queue %s, consumer %s: fired %d messages as ticket %d",
            listed(self._options.queues), ticket.consumer.name, ticket.messages, ticket.number,
        )  # fmt: skip
        return fired

    def _patience(self, presence: QueryPresence, fired: Fired) -> float:
        """Seconds after which to look again although nothing has changed."""
        by_time = self._requests.holds or self._options.is_ranked or self.stops
        most = HELD_SECONDS if by_time else IDLE_SECONDS
        # A consumer that goes first may die without notice.
        gone = presence.held_back()
        return min(each for each in (most, gone, fired.opens_in) if each is not None)


class Linger:
    """
    Says whether enough messages wait for a batch, or have waited long enough.

    Source: `minOffsetsPerTrigger` and `maxTriggerDelay` of Kafka's source. *at_least* is the number
    of messages, and *longest* the seconds after which fewer are taken.
    """

    def __init__(self, at_least: int, longest: float) -> None:
        self._at_least = at_least
        self._longest = longest
        #: When the first messages since the last batch were seen to wait.
        self._since: float | None = None

    def is_over(self, waiting: float | None) -> bool:
        """Return whether to fire, while so many messages wait; None: an unknown number."""
        if waiting is None or waiting >= self._at_least:
            return True
        if not waiting:
            self._since = None
            return False
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() - self._since >= self._longest

    def begin_again(self) -> None:
        """Note that messages were fired."""
        self._since = None


def tickets_of(store: StoreHandle, queues: Queues, options: SourceOptions) -> Tickets:
    """Return the tickets of a query that browses, or of one that takes messages."""
    # Each imports only its own verbs.
    if options.ack == "browse":
        from ignis_source.browsing import BrowsingTickets

        return BrowsingTickets(store, queues, options)
    from ignis_source.acquiring import AcquiringTickets

    return AcquiringTickets(store, queues, options)
