"""Fire the next ticket of a query, or wait a moment for messages."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from ignis_source.options import SourceOptions
from ignis_source.presence import QueryPresence
from ignis_source.requests import Requests
from ignis_source.tickets import Tickets
from queue_core.catalog.notifications import Watch
from queue_core.catalog.poller import Poller
from queue_core.errors import QueueDeactivated
from queue_core.selection.request import FireRequest
from queue_core.support import faults
from queue_core.values.names import listed

if TYPE_CHECKING:
    from ignis_source.breaking import QueryBreaker

_log = logging.getLogger(__name__)

#: Seconds after which an idle query looks again although nothing has changed.
IDLE_SECONDS = 5.0
#: The same if messages may be held or other consumers go first: both can end without a change.
HELD_SECONDS = 0.5


class TicketFirer:
    """Fires tickets for a query, and decides when an idle one looks at the catalog again."""

    def __init__(
        self,
        options: SourceOptions,
        requests: Requests,
        tickets: Tickets,
        watch: Watch,
        breaker: QueryBreaker | None = None,
    ) -> None:
        self._breaker = breaker
        self._options = options
        self._requests = requests
        self._tickets = tickets
        #: The request of the last firing, which says whether messages were refused to it.
        self._request: FireRequest | None = None
        # In a store that others keep busy, five vain looks a second are enough.
        self._poller = Poller(watch, first=0.2, last=0.2, blind=IDLE_SECONDS)

    def next(
        self,
        presence: QueryPresence,
        after: int,
        max_messages: int | None,
        max_bytes: int | None,
    ) -> int | None:
        """Return the number of a new ticket after *after*; None if no message came in time."""
        if self._requests.horizon is not None:
            return self._to_the_end(presence, after, max_messages, max_bytes)
        end = time.monotonic() + self._options.idle_wait
        while self._poller.wait(end):
            self._poller.pause()
            number = self._fire(presence, after, max_messages, max_bytes)
            if number is not None:
                # A limit may have left some messages.
                self._poller.look_at_once()
                return number
            self._poller.looked(blind=self._patience(presence))
            # In a busy store there is always a reason to look: answer Spark in time.
            if time.monotonic() >= end:
                break
        return None

    def look_at_once(self) -> None:
        """Fire at the next call of `next`, without waiting for a reason to."""
        self._poller.look_at_once()

    def close(self) -> None:
        """Stop listening for changes."""
        self._poller.close()

    def _to_the_end(
        self,
        presence: QueryPresence,
        after: int,
        max_messages: int | None,
        max_bytes: int | None,
    ) -> int | None:
        """Fire; without messages, the run ends, so wait for those that time alone brings."""
        while True:
            number = self._fire(presence, after, max_messages, max_bytes)
            request = self._request
            if number is not None or request is None or request.refused_for is None:
                return number
            if not request.by_time:
                return None
            time.sleep(request.refused_for)

    def _fire(
        self,
        presence: QueryPresence,
        after: int,
        max_messages: int | None,
        max_bytes: int | None,
    ) -> int | None:
        self._requests.queues.refresh_if_due()
        self._request = None
        credit = presence.credit()
        if credit is not None:
            max_messages = credit if max_messages is None else min(max_messages, credit)
        plan, condition = None, None
        if self._breaker is not None:
            plan = self._breaker.plan(presence.consumer.name)
            if plan is None:
                return None
            condition = self._breaker.condition(plan)
            if plan.probe is not None:
                max_messages = 1 if max_messages is None else min(max_messages, 1)
        request = self._requests.request(
            self._tickets.fireable_queues, max_messages, max_bytes, after, condition
        )
        ticket, ended = None, False
        self._request = request
        if request.queue_ids and (max_messages is None or max_messages > 0):
            faults.point("source.before_fire")
            try:
                ticket = self._tickets.fire(presence.consumer, request)
            except QueueDeactivated:
                ended = True
            faults.point("source.fired")
        if ticket is None:
            if self._breaker is not None and plan is not None and plan.probe is not None:
                self._breaker.probed(plan.probe, None, presence.consumer.name)
            if not ended:
                return None
            # One of them has ended since they were read; the others may have messages.
            self._requests.queues.refresh()
            return self._fire(presence, after, max_messages, max_bytes)
        presence.announce()
        _log.info(
            "queue %s, consumer %s: fired %d messages as ticket %d",
            listed(self._options.queues), ticket.consumer.name, ticket.messages, ticket.number,
        )  # fmt: skip
        return ticket.number

    def _patience(self, presence: QueryPresence) -> float:
        """Seconds after which to look again although nothing has changed."""
        stops = self._breaker is not None and self._breaker.stops
        by_time = self._requests.holds or self._options.is_ranked or stops
        most = HELD_SECONDS if by_time else IDLE_SECONDS
        # A consumer that goes first may die without notice.
        gone = presence.held_back()
        refused = None if self._request is None else self._request.refused_for
        return min(each for each in (most, gone, refused) if each is not None)
