"""The source of a pool: one transaction takes messages of a queue for all workers.

`AcquiringSource` fires and settles. A pool that browses has one of its own: `browsing.py`.

Changes: fires, settles and reloads messages. Crash: messages that were fired ahead are swept, like
all messages of a dead consumer.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import Connection

from queue_core.catalog.holders import interests
from queue_core.errors import Damaged, Unavailable
from queue_core.handling.traces import Tracer
from queue_core.pool.breaking import OPEN_SECONDS, PoolBreaker
from queue_core.pool.held import HeldBatch, HeldBytes, divided
from queue_core.pool.late_flows import LateFlows
from queue_core.pool.outage import Trouble
from queue_core.pool.output import PoolOutcomes, PoolOutput, Settled, settle_rows
from queue_core.pool.prefetch import MAX_FACTOR, Prefetch
from queue_core.pool.timings import STALL_SECONDS
from queue_core.queue import Queue
from queue_core.selection.request import Demand
from queue_core.support.coalescing import Coalescer
from queue_core.values.histogram import Measured
from queue_core.values.ids import IdSet
from queue_core.values.model import Consumer, Magazine
from queue_core.values.outcomes import RELOAD, UNHANDLED, Settlement
from queue_core.values.retry import Retry
from queue_core.waiting.firing import Firing

if TYPE_CHECKING:
    from queue_core.handling.calls import HandlerCalls

#: Returns the columns to hand out, of those that messages have.
Columns = Callable[[Sequence[str]], Sequence[str]]


class MessageSource(ABC):
    """
    The messages of one queue, as a pool takes and settles them. Thread-safe.

    *on_available* is called when others can be taken. *held* counts the bytes of those that it
    gives, until the caller gives them back; without it, there is no limit of bytes.
    """

    def __init__(
        self,
        queue: Queue,
        consumer: Consumer,
        columns: Columns,
        demand: Demand,
        on_available: Callable[[], None],
        held: HeldBytes | None,
    ) -> None:
        self._queue = queue
        self._consumer = consumer
        self._demand = queue.opened.demanded(demand)
        #: The names of both.
        self.names = (queue.name, consumer.name)
        self._columns = columns
        self._on_available = on_available
        self._held = held
        #: The queue for the rows of the handler, if it has one.
        self.output: PoolOutput | None = None
        #: What keeps the pool from taking messages.
        self.trouble = Trouble(queue.name, on_available)
        #: Makes the traces of failures.
        self.tracer = Tracer()
        #: Seconds after which to look again, since limits, a breaker or suspects that wait for
        #: empty hands have refused messages; None if none were refused lately.
        self.refused_for: float | None = None
        #: Whether its messages are those of a sideline.
        self.is_sideline = self._demand.magazine is Magazine.SIDELINE

    @abstractmethod
    def take(self, limit: int) -> HeldBatch | None:
        """Take up to *limit* messages; None when there are none. The caller gives bytes back."""

    def settle(self, outcomes: PoolOutcomes) -> Settled:
        """Settle messages that were taken, and load the rows for the output queue."""
        return Settled(outcomes.settlement, np.empty(0, np.int64))

    def settle_within(self, connection: Connection, settlement: pa.Table) -> None:  # noqa: B027
        """Settle messages that were taken, in the transaction of a handler."""

    def note_handled(  # noqa: B027 - what a browser shows is not handled
        self, took: Mapping[str, Measured]
    ) -> None:
        """Note how long messages took the handler, by outcome."""

    def give_back(self) -> None:  # noqa: B027 - a source that fires nothing has none
        """Reload the messages that were fired ahead, because no worker will ask for them."""

    def handed_out(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Return messages with the columns of the handler."""
        return messages

    def flows(self, messages: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the ids of messages with their values of the column of a fair queue."""
        return None

    def ended(self, flows: pa.RecordBatch, calls: HandlerCalls[Any]) -> None:  # noqa: B027
        """Note that the calls for messages of these `flows` have ended."""

    def held_back(self) -> float | None:
        """Return in how many seconds preceding consumers may be gone; None if none precedes."""
        return None

    def _in_room(self, limits: list[int]) -> Sequence[HeldBatch | None]:
        """Take messages for some workers, if the pool has room for their bytes."""
        if self._held is None:
            return self._take_for(limits, None)
        room = self._held.reserve(len(limits), self._on_available)
        if not room:
            return [None] * len(limits)
        try:
            return self._take_for(limits, room)
        finally:
            self._held.give_back(room)

    @abstractmethod
    def _take_for(self, limits: list[int], room: int | None) -> Sequence[HeldBatch | None]: ...

    def _kept(self, names: Sequence[str]) -> Sequence[str]:
        """Return the columns of messages that the pool holds."""
        return self._columns(names)

    def _divided(
        self, messages: pa.Table, limits: list[int], *, more: bool = True
    ) -> tuple[list[HeldBatch | None], list[HeldBatch]]:
        """Return the parts for the workers, and the rest; all of them are held from now on."""
        chosen = messages.select(self._kept(messages.column_names))
        parts, left = divided(chosen, limits, more=more)
        if self._held is not None:
            self._held.add(sum(part.bytes for part in [*parts, *left] if part is not None))
        return parts, left


class AcquiringSource(MessageSource):
    """Fires messages, and settles them."""

    _held: HeldBytes

    def __init__(
        self,
        queue: Queue,
        consumer: Consumer,
        columns: Columns,
        demand: Demand,
        *,
        prefetch: bool,
        on_available: Callable[[], None],
        held: HeldBytes,
        retry: Retry | None = None,
        breaker: PoolBreaker | None = None,
        output: Queue | None = None,
    ) -> None:
        super().__init__(queue, consumer, columns, demand, on_available, held)
        self._breaker = breaker
        self._retry = None if retry is None else retry.by_kinds()
        self._prefetch = Prefetch(MAX_FACTOR if prefetch else 1)
        #: Messages of late values, each for a batch of its own.
        self._alone = Prefetch(1)
        #: The late values of a fair queue.
        self._late: LateFlows | None = None
        self._follow_fair_by()
        #: Whether to give back what was fired ahead, since some of its values may have become late.
        self._is_outdated = False
        # SQLite has one writer at a time, and others would poll for their turn.
        exclusion = threading.Lock()
        self._fire = Coalescer(self._in_room, exclusion)
        self._settle = Coalescer(self._settle_all, exclusion)
        if output is not None:
            self.output = PoolOutput(output, retry, queue, consumer, exclusion)
            # It may wait for room in the output queue.
            self._settle_and_load = Coalescer(self.output.settle_all, threading.Lock())

    def take(self, limit: int) -> HeldBatch | None:
        """Return messages that were fired ahead, or fire some."""
        if self._breaker is not None:
            most = self._breaker.plan(self)
            if most is not None:
                return self._take_probe(self._breaker, most)
        if self._is_outdated:
            self._is_outdated = False
            self.give_back()
        # A firing may find nothing but messages to be handled alone.
        return (
            self._next_alone()
            or self._prefetch.next(limit)
            or self._fire(limit)
            or self._next_alone()
        )

    def _next_alone(self) -> HeldBatch | None:
        return self._alone.next(1) if self._late else None

    def settle(self, outcomes: PoolOutcomes) -> Settled:
        """Settle; then reloaded messages, or others of their groups and limits, can be fired."""
        settled = (self._settle if outcomes.output is None else self._settle_and_load)(outcomes)
        settings = self._queue.info.settings
        limited = any(limit.in_flight is not None for limit in settings.limits)
        reloads = pc.index(settled.settlement.column("outcome"), RELOAD).as_py() >= 0
        if reloads or limited or settings.group is not None:
            self._on_available()
        return settled

    def settle_within(self, connection: Connection, settlement: pa.Table) -> None:
        """Settle; raises `NotHeld` if one of the messages is not held any more."""
        outcomes = Settlement.of(settlement)
        self._queue.within(connection).settle(outcomes, self._consumer, retry=self._retry)

    def note_handled(self, took: Mapping[str, Measured]) -> None:
        """Note how long messages took the handler, by outcome."""
        for outcome, measured in took.items():
            self._queue.store.catalog.timings.add(self._queue.info.id, measured, outcome)

    def give_back(self) -> None:
        """Reload the messages that were fired ahead."""
        alone = self._alone.clear()
        left = [*self._prefetch.clear(), *alone]
        if not left:
            return
        try:
            self._reload(pa.chunked_array([each.messages.column("_message_id") for each in left]))
        except (Unavailable, Damaged):
            # They are handled, or given back later.
            self._prefetch.put(*left)
            raise
        finally:
            for each in alone:
                if self._late is not None:
                    self._late.ended(each.messages, pa.repeat(UNHANDLED, len(each)))
        self._held.give_back(sum(each.bytes for each in left))
        self._on_available()

    def _reload(self, ids: pa.ChunkedArray) -> None:
        """Reload messages that no handler was called for."""
        all_ids = IdSet.of(ids)
        self._queue.settle(Settlement(reloaded=all_ids, unhandled=all_ids), self._consumer)

    def handed_out(self, messages: pa.RecordBatch) -> pa.RecordBatch:
        """Leave out the column of a fair queue if the handler does not take it."""
        if self._late is None:
            return messages
        return messages.select(self._columns(messages.schema.names))

    def flows(self, messages: pa.RecordBatch) -> pa.RecordBatch | None:
        """Return the ids of messages with their values of the column of a fair queue."""
        if self._late is None or self._late.column not in messages.schema.names:
            return None
        return messages.select(["_message_id", self._late.column])

    def ended(self, flows: pa.RecordBatch, calls: HandlerCalls[Any]) -> None:
        """Note which values are late, and which are no more."""
        # A message that is handled alone is a batch.
        late = self._late
        if late is not None and (calls.timed_out or (late and flows.num_rows == 1)):
            if late.ended(flows, calls.verdicts.kinds):
                self._on_available()
            if calls.timed_out:
                self._is_outdated = True

    def held_back(self) -> float | None:
        """Ask the catalog; another heartbeat of a preceding consumer extends the time."""
        with self._queue.store.catalog.read(apart=True) as connection:
            return interests.held_back(connection, self._consumer, self._queue.info.id)

    def _take_probe(self, breaker: PoolBreaker, most: int) -> HeldBatch | None:
        """Fire the message of a probe, whatever its size, or nothing while the breaker is open."""
        if not most:
            self.give_back()
            # A pool whose probe has found no message is idle.
            self.refused_for = None if breaker.gate.vacant else OPEN_SECONDS
            return None
        firing = self._fire_now(1, room=1)
        (probe,), _ = self._divided(firing.messages, [1], more=firing.more)
        # Not as of `refused_for`, which another worker may have set meanwhile.
        if probe is None and (firing.stalled or firing.opens_in is not None):
            breaker.gate.refused(self)
        elif probe is None:
            breaker.found_nothing(self)
        return probe

    def _take_for(self, limits: list[int], room: int | None) -> Sequence[HeldBatch | None]:
        if self._held.stalls.keep_back(self._queue.name):
            self.refused_for = STALL_SECONDS
            return [None] * len(limits)
        most = sum(limits)
        # A limit counts messages when they are fired, so their calls should follow at once.
        ahead = most if self._queue.info.settings.limits else self._prefetch.amount(most)
        firing = self._fire_now(ahead, room)
        messages = self._screened(firing.messages)
        parts, left = self._divided(messages, limits, more=firing.more)
        if any(part is not None for part in parts):
            self._prefetch.put(*left)
        return parts

    def _fire_now(self, most: int, room: int | None) -> Firing:
        with self.trouble.attempt():
            left_out = None if self._late is None else self._late.left_out()
            demand = replace(self._demand, max_messages=most, max_bytes=room, left_out=left_out)
            firing = self._queue.opened.fire(demand, lambda: self._consumer, timeout=0.0)
        self._held.stalls.note(self._queue.name, waits=firing.suspects)
        self.refused_for = STALL_SECONDS if firing.stalled else firing.opens_in
        if firing.full:
            # Another worker may take what had no room; this one got less than it could handle.
            self._on_available()
        return firing

    def _screened(self, messages: pa.Table) -> pa.Table:
        """Return fired messages without those of late values, which are handled alone."""
        self._follow_fair_by()
        if not self._late or not messages.num_rows:
            return messages
        together, alone, rest = self._late.screened(messages)
        self._alone.put(*self._divided(alone, [])[1])
        if rest.num_rows:
            try:
                self._reload(rest.column("_message_id"))
            except (Unavailable, Damaged):
                # It is better to handle them than to keep them.
                together = pa.concat_tables([together, rest])
        if together.num_rows < messages.num_rows:
            self._on_available()
        return together

    def _kept(self, names: Sequence[str]) -> Sequence[str]:
        columns = self._columns(names)
        if self._late is None or self._late.column in columns:
            return columns
        return [*columns, self._late.column]

    def _follow_fair_by(self) -> None:
        column = None if self.is_sideline else self._queue.opened.info.settings.fair_by
        if column != (None if self._late is None else self._late.column):
            self._late = None if column is None else LateFlows(column, self._held.workers)
            self._is_outdated = True

    def _settle_all(self, outcomes: list[PoolOutcomes]) -> Sequence[Settled]:
        catalog, queue = self._queue.store.catalog, self._queue.info
        rows = PoolOutcomes.joint(outcomes).settlement
        lost = settle_rows(catalog, queue, rows, self._consumer, self._retry)
        return [Settled(each.settlement, lost) for each in outcomes]
