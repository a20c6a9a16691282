"""`QueueInTransaction`: the verbs of one queue within a transaction of the caller."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from queue_core.catalog.callers import callers
from queue_core.queue.loading import load_each
from queue_core.queue.opened import OpenedQueue, checked_consumer
from queue_core.queue.settling import Settling
from queue_core.segments.buffers import Buffer
from queue_core.selection.demand import Demand
from queue_core.selection.request import Count, most_messages
from queue_core.support.interruption import shielded
from queue_core.values.durations import Duration
from queue_core.values.model import BY_SHARD, Consumer, Holder, QueueInfo
from queue_core.values.outcomes import Settlement
from queue_core.values.retry import Retry
from queue_core.values.schema import Loadable
from queue_core.values.settings import check_count
from queue_core.waiting.external.fire import fire
from queue_core.waiting.external.load import load
from queue_core.waiting.external.settle import settle
from queue_core.waiting.firing import Firing
from queue_core.waiting.smart.decide import LoadPolicy

if TYPE_CHECKING:
    from queue_core.catalog.callers import CallersConnection
    from queue_core.handling.objects.fields import DataclassObject
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check
    from queue_core.selection.selection import AnySelector


@shielded
class QueueInTransaction(Settling):
    """
    A queue whose verbs are a part of your transaction. Get it from `Queue.within`.

    What the verbs change is committed together with your own changes, or never. Nobody else sees it
    before that. Each call has a savepoint: a call that fails changes nothing, even if you commit.
    No call waits for room or for messages, since those for whom it would wait may wait for your
    transaction.

    Args:
        queue: The queue, with what is known of it.
        connection: The connection whose transaction it is.
    """

    def __init__(self, queue: OpenedQueue, connection: CallersConnection) -> None:
        self._queue = queue
        self._connection = connection

    def __repr__(self) -> str:
        return f"<{self._queue.name!r} within the transaction of {self._connection!r}>"

    def load(
        self,
        rows: Loadable | Buffer | Iterable[object] | DataclassObject,
        *,
        policy: Policy | Check | str | None = None,
        ttl: Duration | None = None,
        hold: Duration | None = None,
    ) -> pa.Array:
        """
        Publish messages when you commit, all or none, and never if you roll back.

        Until then, no consumer sees them, and other loads into the same shards wait.

        Args:
            rows: As in `Queue.load`.
            policy: As in `Queue.load`.
            ttl: As in `Queue.load`. The queue must have a column for it.
            hold: As in `Queue.load`. The queue must have a column for it.

        Returns:
            The message ids, as from `Queue.load`.

        Raises:
            SchemaMismatch: As in `Queue.load`.
            BadOption: As in `Queue.load`; or the connection uses another database, is closed or may
                not write; or the queue keeps no messages, or has no column for *ttl* or *hold*.
            QueueFull: The queue is full.
            QueueDeactivated: The queue was deactivated.
            NoSuchQueue: The queue was dropped.
            Conflict: Another transaction was in the way: roll yours back, and run it again.
            DamagedSegment: A queued message that a policy needs cannot be read. It is quarantined;
                load again.
        """
        catalog, storage = self._queue.catalog, self._queue.storage

        def run(info: QueueInfo, table: pa.Table) -> pa.Array:
            load_policy = LoadPolicy.of(info, policy)
            stage = partial(self._queue.spread.staged, info)
            with callers(catalog, self._connection) as theirs:
                return load(theirs, storage, info, table, load_policy, stage)

        return load_each(self._queue, rows, (ttl, hold), run, may_add=False)

    def fire(
        self,
        max_messages: Count | None = None,
        *,
        max_bytes: int | None = None,
        selector: AnySelector | None = None,
        order_by: str | None = None,
        order: str = BY_SHARD,
        fallback: bool = False,
        magazine: str = "main",
        consumer: Consumer | None = None,
        even_if_paused: bool = False,
    ) -> Firing:
        """
        Take the next message, or the next messages: if you roll back, they were never fired.

        Settle them in the same transaction. Until its end, other firings pass over the shards of
        the messages.

        Args:
            max_messages: As in `Queue.fire`.
            max_bytes: As in `Queue.fire`.
            selector: As in `Queue.fire`.
            order_by: As in `Queue.fire`.
            order: As in `Queue.fire`.
            fallback: As in `Queue.fire`.
            magazine: As in `Queue.fire`.
            consumer: The consumer that takes the messages. By default, one of the connection.
            even_if_paused: As in `Queue.fire`.

        Returns:
            A `Firing` with the messages and their ticket; empty if there is no message.

        Raises:
            BadOption: An argument is out of range; or the connection uses another database, is
                closed or may not write.
            BadSelector: As in `Queue.fire`.
            ConsumerFenced: The same consumer was started again elsewhere.
            QueueDeactivated: The queue was deactivated.
            QueueTaken: Another consumer has the queue to itself.
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. The next firing without your transaction
                quarantines them.
            Conflict: Another transaction was in the way: roll yours back, and run it again.
        """
        demand = Demand(
            max_messages=most_messages(max_messages, max_bytes),
            max_bytes=check_count("max_bytes", max_bytes),
            magazine=self._queue.magazine(magazine),
            selector=selector,
            order_by=order_by,
            order=order,
            fallback=fallback,
            even_if_paused=even_if_paused,
        )
        info = self._queue.follow()
        request = self._queue.request(demand, info)
        with callers(self._queue.catalog, self._connection) as theirs:
            return fire(theirs, self._queue.storage.uri, info, request, checked_consumer(consumer))

    def _settle(self, settlement: Settlement, holder: Holder, policy: Retry | None) -> int:
        with callers(self._queue.catalog, self._connection) as theirs:
            return settle(theirs, self._queue.info, settlement, holder, policy)
