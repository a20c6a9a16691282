"""The source of a browsing pool: it shows each message once, and takes none.

Changes: keeps the browser's position. Crash: the next browser of this name goes on behind its last
ticket.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa

from queue_core.catalog.holders.tickets import Window, close_tickets
from queue_core.catalog.slices.slices import ShardKey
from queue_core.errors import ConsumerFenced
from queue_core.handling.failure_log import FAILURES
from queue_core.pool.held import HeldBatch, HeldBytes
from queue_core.pool.output import PoolOutcomes, Settled
from queue_core.pool.prefetch import Prefetch
from queue_core.pool.source import Columns, MessageSource
from queue_core.queue import Queue
from queue_core.segments.reader import read_table
from queue_core.selection.request import Demand
from queue_core.support.coalescing import Coalescer
from queue_core.values.model import Consumer, Ticket
from queue_core.values.outcomes import Settlement
from queue_core.verbs.browse import browse, browse_next


class BrowsingSource(MessageSource):
    """Shows each message once, whether it waits or is in flight, and takes none."""

    def __init__(
        self,
        queue: Queue,
        consumer: Consumer,
        columns: Columns,
        demand: Demand,
        on_available: Callable[[], None],
        held: HeldBytes | None = None,
    ) -> None:
        super().__init__(queue, consumer, columns, demand, on_available, held)
        #: The mean size of the messages that were shown last, in bytes; at first, it is unknown.
        self._mean: float | None = None
        #: Where the last window ended, by shard.
        self._seen: dict[ShardKey, int] = {}
        #: A ticket whose messages could not be read yet, and its windows.
        self._unread: tuple[Ticket, Window] | None = None
        self._browse = Coalescer(self._in_room, threading.Lock())
        #: Messages of the last ticket that were too large for one batch with the others.
        self._left = Prefetch(1)

    def take(self, limit: int) -> HeldBatch | None:
        """Return messages that were not shown yet."""
        return self._left.next(limit) or self._browse(limit)

    def settle(self, outcomes: PoolOutcomes) -> Settled:
        """Log the failures of the handler, which are recorded nowhere else."""
        rows = PoolOutcomes.joint([outcomes]).settlement
        FAILURES.note(self._queue.name, Settlement.of(rows), self._queue.store.catalog.url)
        return super().settle(outcomes)

    def _take_for(self, limits: list[int], room: int | None) -> Sequence[HeldBatch | None]:
        most = sum(limits)
        if room is not None:
            # A browser's ticket names places, and does not know the sizes of the messages there.
            fitting = len(limits) if self._mean is None else int(room / max(self._mean, 1.0))
            most = min(most, max(fitting, 1))
        with self.trouble.attempt():
            messages = self._next(most)
        if messages is None:
            return [None] * len(limits)
        parts, left = self._divided(messages, limits)
        self._left.put(*left)
        size = sum(part.bytes for part in [*parts, *left] if part is not None)
        self._mean = size / messages.num_rows
        return parts

    def _next(self, limit: int) -> pa.Table | None:
        store, info = self._queue.store, self._queue.info
        catalog, demand = store.catalog, replace(self._demand, max_messages=limit)
        request = demand.request([info], None, store.storage.uri)
        while True:
            found = self._unread or browse_next(catalog, self._consumer, request, self._seen)
            if found is None:
                return None
            self._unread = None
            try:
                with self._queue.opened.quarantining():
                    messages = self._read(*found)
            except BaseException:
                # Read it again: by then, damaged messages are set apart or repaired.
                self._unread = found
                raise
            # Meanwhile, all messages of the ticket may be gone.
            if messages.num_rows:
                return messages

    def _read(self, ticket: Ticket, window: Window) -> pa.Table:
        catalog, uri = self._queue.store.catalog, self._queue.store.storage.uri
        # By its windows, since another queue's thread may have closed the ticket meanwhile.
        info, magazine = self._queue.info, self._demand.magazine
        messages = read_table(browse(catalog, uri, [info], magazine, window))
        # The last ticket is kept, because it holds the browser's positions. If another process has
        # taken the name over, it goes on behind this ticket, so these messages are shown here.
        with suppress(ConsumerFenced):
            catalog.write(
                lambda connection: close_tickets(connection, self._consumer, ticket.number - 1)
            )
        return messages
