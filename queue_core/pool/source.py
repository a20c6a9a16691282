"""How a pool takes from one queue: for all its workers at once, in one transaction.

`Acquiring` fires and settles; `Browsing` sees every message once and takes none.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from queue_core.catalog import consumers, interests
from queue_core.ids import IdSet
from queue_core.model import Consumer, Magazine
from queue_core.outcomes import Settlement
from queue_core.pool.coalescing import Coalescer
from queue_core.pool.prefetch import Prefetch
from queue_core.segments.reader import read_table
from queue_core.selection.request import FireRequest
from queue_core.verbs.browse import browse_next, browsed

if TYPE_CHECKING:
    from queue_core.queue import Queue


class MessageSource(Protocol):
    """Where the messages of one queue come from, and what becomes of them."""

    def take(self, limit: int) -> pa.RecordBatch | None:
        """At most so many messages; None when there are none."""

    def settle(self, settlement: pa.Table) -> None:
        """What has become of messages that were taken: rows of `SETTLEMENT`."""

    def give_back(self) -> None:
        """Nobody asks any more: what was taken ahead goes back."""

    def held_back(self) -> float | None:
        """After how many seconds it may be that nobody goes first any more; None: nobody does."""


class AcquiringSource:
    """Messages are fired, and settled."""

    def __init__(
        self,
        queue: Queue,
        consumer: Consumer,
        columns: Sequence[str],
        *,
        magazine: str,
        selector: str | None,
        order_by: str | None,
        ahead: bool,
    ) -> None:
        self._queue = queue
        self._consumer = consumer
        self._columns = list(columns)
        self._magazine = magazine
        self._selector = selector
        self._order_by = order_by
        self._ahead = Prefetch() if ahead else Prefetch(1)
        # SQLite has one writer at a time, and lets others look for their turn ever again.
        alone = threading.Lock()
        self._fire = Coalescer(self._fire_for, alone)
        self._settle = Coalescer(self._settle_all, alone)

    def take(self, limit: int) -> pa.RecordBatch | None:
        """Fire, unless that was done already."""
        there = self._ahead.next(limit)
        return self._fire(limit) if there is None else there

    def settle(self, settlement: pa.Table) -> None:
        """Settle."""
        self._settle(settlement)

    def give_back(self) -> None:
        """Reload what nobody has asked for."""
        left = self._ahead.clear()
        if left:
            ids = pa.chunked_array([batch.column("_message_id") for batch in left])
            self._queue.settle(Settlement(reloaded=IdSet.of(ids)), self._consumer)

    def held_back(self) -> float | None:
        """By whoever goes first, unless it says again that it lives."""
        with self._queue.store.catalog.read() as connection:
            return interests.held_back(connection, self._consumer, self._queue.info.id)

    def _fire_for(self, limits: list[int]) -> Sequence[pa.RecordBatch | None]:
        firing = self._queue.fire(
            self._ahead.how_many(sum(limits)),
            magazine=self._magazine,
            selector=self._selector,
            order_by=self._order_by,
            consumer=self._consumer,
        )
        parts, left = _split(firing.messages.select(self._columns), limits)
        self._ahead.put(left)
        return parts

    def _settle_all(self, settlements: list[pa.Table]) -> Sequence[None]:
        merged = Settlement.of(pa.concat_tables(settlements))
        self._queue.settle(merged, self._consumer)
        return [None] * len(settlements)


class BrowsingSource:
    """Messages are looked at, each once, whether they wait or are in flight."""

    def __init__(
        self, queue: Queue, consumer: Consumer, columns: Sequence[str], magazine: Magazine
    ) -> None:
        self._queue = queue
        self._consumer = consumer
        self._columns = list(columns)
        self._magazine = magazine
        self._look = Coalescer(self._look_for, threading.Lock())

    def take(self, limit: int) -> pa.RecordBatch | None:
        """Look at what was not looked at."""
        return self._look(limit)

    def settle(self, settlement: pa.Table) -> None:
        """Nothing is settled that was not taken."""

    def give_back(self) -> None:
        """Nothing is taken ahead."""

    def held_back(self) -> float | None:
        """Nobody stands in the way of who takes nothing."""
        return None

    def _look_for(self, limits: list[int]) -> Sequence[pa.RecordBatch | None]:
        catalog, info = self._queue.store.catalog, self._queue.info
        wanted = FireRequest(
            queue_ids=(info.id,), magazine=self._magazine, max_messages=sum(limits)
        )
        while (ticket := browse_next(catalog, self._consumer, wanted)) is not None:
            messages = self._read(ticket.number)
            # All that it shows may be gone by now.
            if messages.num_rows:
                return _split(messages.select(self._columns), limits)[0]
        return [None] * len(limits)

    def _read(self, number: int) -> pa.Table:
        catalog, uri = self._queue.store.catalog, self._queue.store.storage.uri
        who = self._consumer
        found = browsed(
            catalog, uri, [self._queue.info], self._magazine, who.id, number - 1, number
        )
        messages = read_table(found)
        # The last ticket says where to go on.
        catalog.write(lambda connection: consumers.close_tickets(connection, who, number - 1))
        return messages


def _split(
    messages: pa.Table, limits: Sequence[int]
) -> tuple[list[pa.RecordBatch | None], pa.RecordBatch | None]:
    """Messages for each of those who have asked, evenly, and what is left."""
    left, start = messages.num_rows, 0
    parts: list[pa.RecordBatch | None] = []
    for place, limit in enumerate(limits):
        count = min(limit, -(-left // (len(limits) - place)))
        parts.append(_part(messages, start, count))
        start, left = start + count, left - count
    return parts, _part(messages, start, left)


def _part(messages: pa.Table, start: int, count: int) -> pa.RecordBatch | None:
    return messages.slice(start, count).combine_chunks().to_batches()[0] if count else None
