"""
`QueueInTransaction`: the verbs of one queue within a transaction of the caller.

Changes: those of a load, a firing or a settlement; a firing makes the caller's connection a
consumer. Guard: as for these verbs, and every lock lasts until the caller commits. Crash or
rollback: nothing was loaded, fired or settled, and vacuum removes the files of a load.

A load with a policy or a de-duplication decides with the shards locked, since a decision outside of
the transaction could not see the caller's changes. It never waits for room: consumers that would
free it may wait for the caller. A firing locks as few shards as it can: other firings take from the
other shards, and wait for these half a second (`verbs.fire`). With limits, it also locks the
buckets of the queue, and other firings find no message until then. A settlement is refused if a
message is no longer held: it may have been handled elsewhere, and then the caller's rows must not
be committed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary, finalize

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect, queues
from queue_core.catalog.damage import beside_settlements
from queue_core.catalog.database import Catalog
from queue_core.catalog.external_transactions import CallersCatalog, callers
from queue_core.catalog.holders import consumers
from queue_core.catalog.slices import shard_locks
from queue_core.errors import BadOption, Conflict, IgnisError, QueueFull
from queue_core.queue.loading import load_each
from queue_core.queue.opened import OpenedQueue, checked_consumer
from queue_core.queue.settling import Settling
from queue_core.segments.buffers import Buffer
from queue_core.segments.reader import read_table
from queue_core.segments.stager import removed_if_refused
from queue_core.selection.fired import Fired
from queue_core.selection.request import Count, Demand, FireRequest, most_messages
from queue_core.support.interruption import shielded
from queue_core.values.durations import Duration
from queue_core.values.ids import ids_in_order
from queue_core.values.model import BY_SHARD, Consumer, Holder, QueueInfo
from queue_core.values.names import of_process
from queue_core.values.outcomes import Settlement
from queue_core.values.retry import Retry
from queue_core.values.schema import Loadable, output_schema
from queue_core.values.settings import check_count
from queue_core.verbs.capacity.bounds import CapacityExceeded, check_keeps
from queue_core.verbs.fire import fire
from queue_core.verbs.read_tickets import plan_firing
from queue_core.verbs.settle import settle
from queue_core.waiting.bounded_load import load_bounded
from queue_core.waiting.firing import Firing, of_plan
from queue_core.waiting.smart.load import ids_of_rows, of_rows

if TYPE_CHECKING:
    from queue_core.catalog.external_transactions import CallersConnection
    from queue_core.handling.objects.fields import DataclassObject
    from queue_core.policies.builtin import Policy
    from queue_core.policies.checks import Check
    from queue_core.selection.selection import AnySelector


@dataclass(slots=True)
class _Taker:
    """A consumer of this process that fires in callers' transactions; None: not enlisted yet."""

    name: str
    consumer: Consumer | None = None


#: The takers in use, by connection or catalog; and free ones of connections gone, by catalog.
_takers: WeakKeyDictionary[object, _Taker] = WeakKeyDictionary()
_free: WeakKeyDictionary[Catalog, list[_Taker]] = WeakKeyDictionary()
# A forked child needs consumers of its own.
os.register_at_fork(after_in_child=_takers.clear)
os.register_at_fork(after_in_child=_free.clear)


class NotHeld(Conflict):
    """Messages are not held any more."""


@shielded
class QueueInTransaction(Settling):
    """
    A queue whose verbs are a part of your transaction. Get it from `Queue.within`.

    What the verbs change is committed together with your own changes, or never. Nobody else sees it
    before that. Each call has a savepoint: a call that fails changes nothing, even if you commit.
    No call waits for room or for messages, since whoever could provide them may wait for your
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
            DamagedSegment: A queued message that a policy needs cannot be read. The next load
                without your transaction quarantines it.
        """
        return load_each(self._queue, rows, (ttl, hold), partial(self._load, policy), may_add=False)

    def _load(
        self, policy: Policy | Check | str | None, queue: QueueInfo, table: pa.Table
    ) -> pa.Array:
        storage = self._queue.storage
        with callers(self._queue.catalog, self._connection) as theirs:
            stage = partial(self._queue.spread.staged, queue, first=theirs.turn)
            smart = of_rows(theirs, storage, queue, table, stage, policy)
            _check(theirs, queue, decides=smart is not None)
            if smart is not None:
                try:
                    return ids_of_rows(smart, _load_once(theirs, smart.load_within))
                except IgnisError as error:
                    smart.refuse(error)
                    raise
            segments, order = stage(table)
            load = partial(load_bounded, storage=storage, queue=queue, staged=segments)
            with removed_if_refused(storage, segments, queues.SettingsChanged):
                first_ids = _load_once(theirs, load)
            return ids_in_order(first_ids, segments, order)

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
        the messages. On PostgreSQL, this takes from one shard if it can, so it may return fewer
        messages than wait.

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
            SubscriptionDetached: The subscription was detached, and no message waits in it.
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
        taker, queue = checked_consumer(consumer), self._queue.follow()
        request = self._queue.request(demand, queue)
        with callers(self._queue.catalog, self._connection) as theirs:
            taker = taker or theirs.write(lambda connection: _consumer(theirs, connection))
            # Others may remove what the selection is about to look at.
            fired = beside_settlements(partial(_fire, theirs, taker, request))
            if fired.ticket is None:
                return Firing(output_schema(queue.schema).empty_table(), fired)
            plan = plan_firing(theirs, fired.ticket, fired, request)
            messages = read_table(plan)
            if request.selection is not None:
                messages = request.selection.sorted(messages, fired.ticket.fired_at)
            return of_plan(fired, messages, plan)

    def _settle(self, settlement: Settlement, holder: Holder, policy: Retry | None) -> int:
        name = self._queue.name
        with callers(self._queue.catalog, self._connection) as theirs:
            settled = settle(theirs, [self._queue.info], settlement, holder, retry=policy)
            given = len(settlement.deleted | settlement.sidelined | settlement.reloaded)
            if settled < given:
                raise NotHeld(
                    f"queue {name!r}: {given - settled} of {given} messages are not held any more, "
                    "since they were settled, swept or never fired, or are of another consumer; "
                    "nothing was settled: roll back your transaction, so that no message counts "
                    "twice"
                )
            return settled


def _check(catalog: CallersCatalog, queue: QueueInfo, *, decides: bool) -> None:
    """Raise `BadOption` for a queue whose loads cannot be a part of this transaction."""
    cannot = "cannot happen before your transaction is committed"
    check_keeps(queue, cannot, "load without Queue.within")
    if (queue.settings.is_bounded or decides) and not catalog.sees_commits():
        raise BadOption(
            f"queue {queue.name!r} has a bound, a policy or dedup, and the transaction of "
            "connection cannot see what other ones have committed since it began; use the "
            "isolation level READ COMMITTED"
        )


def _load_once(catalog: CallersCatalog, load: Callable[[Connection], list[int]]) -> list[int]:
    """Load; raises `QueueFull` where another transaction would wait for room."""
    try:
        return catalog.write(load, grows=True)
    except CapacityExceeded as error:
        raise QueueFull(str(error)) from error


def _fire(catalog: CallersCatalog, consumer: Consumer, request: FireRequest) -> Fired:
    """
    Fire from one shard if that is enough, and wait for other firings only if there is no free one.

    The turn of a shard is locked until the caller commits. With those of all shards, this firing
    would keep every other one waiting.
    """
    with catalog.read() as connection:
        parallel = dialect.of(connection).writes_in_parallel and not request.terms.fair
        if parallel and request.selection is None and request.max_messages is not None:
            backlog = shard_locks.backlog(connection, request.queue_ids, request.magazine)
            shards = [key[2] for key, shard in backlog.items() if shard.waiting > 0]
            # Transactions that begin at the same time take different ones.
            random.shuffle(shards)
            for shard in shards:
                of_one = replace(request, shards=(shard,))
                fired = fire(catalog, consumer, of_one, waits=False)
                if fired.ticket is not None:
                    return fired
    return fire(catalog, consumer, request)


def _consumer(catalog: CallersCatalog, connection: Connection) -> Consumer:
    """
    Return the consumer of the caller's connection, and make it if there is none.

    A firing locks its consumer until the commit, so two connections need two consumers. Where only
    one transaction writes at a time, the process has one. A new connection takes over the consumer
    of one that is gone, so that consumers do not add up.
    """
    parallel = dialect.of(connection).writes_in_parallel
    of = catalog.driver if parallel else catalog.own
    taker = _takers.get(of)
    if taker is None:
        free = _free.setdefault(catalog.own, [])
        try:
            taker = free.pop()
        except IndexError:
            taker = _Taker(f"python:{of_process()}")
        _takers[of] = taker
        finalize(of, free.append, taker).atexit = False
    known = consumers.by_name(connection, taker.name)
    # The caller may have rolled back the transaction that enlisted it.
    if known is None or known != taker.consumer:
        taker.consumer = known = consumers.enlist(connection, taker.name, beats=False)
    return known
