"""`ConsumerTarget`: a client of your own, which is notified of work and pulls it when it likes.

It is for programs that have a scheduler already: an event loop, a connection to a client, a thread
that serves several sources. A `ConsumerPool` brings threads and calls a handler; a target only says
which of its consumers have work. Source: Qpid, ConsumerTarget.

Crash: the messages that it holds are swept, like all messages of a dead consumer.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace

import pyarrow as pa

from queue_core.catalog.holders import interests
from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.presence import Presence
from queue_core.errors import BadOption, ConsumerFenced, IgnisError
from queue_core.handling.contract import Contract
from queue_core.pool.browsing import BrowsingSource
from queue_core.pool.config import PoolConfig, checked
from queue_core.pool.dispatcher import QueueDispatcher, close_dispatcher, open_dispatcher
from queue_core.pool.held import Stalls
from queue_core.pool.pressure import Pressure
from queue_core.pool.ready_set import ReadySet
from queue_core.pool.timings import STALL_SECONDS
from queue_core.queue import Queue
from queue_core.selection.request import Demand
from queue_core.selection.selection import AnySelector
from queue_core.store import Store
from queue_core.support.interruption import shielded
from queue_core.values.durations import check_whole
from queue_core.values.model import BY_SHARD, Consumer, magazine_of
from queue_core.values.names import check_consumer, of_process
from queue_core.verbs.lose import start_again
from queue_core.verbs.reset import put_back
from queue_core.waiting.firing import Firing


@shielded
class TargetConsumer(QueueConsumer[Firing]):
    """
    A consumer of one queue, which a `ConsumerTarget` has made.

    Attributes:
        queue: The queue that it consumes. Settle with it: ``consumer.queue.delete(firing)``.
    """

    def __init__(
        self,
        queue: Queue,
        take: Callable[[int], Firing | None],
        ready: ReadySet[TargetConsumer],
        config: PoolConfig,
    ) -> None:
        self.queue = queue
        self._ready = ready
        super().__init__(
            f"target of {queue.name}",
            take,
            lambda _: ready.notify_work(self),
            priority=config.priority,
            acquires=not config.browse,
            selective=config.selective,
        )

    def pull(self, limit: int = 1) -> Firing | None:
        """
        Take the next messages of the queue.

        Pull until you get None, or `suspend` the consumer: until then, the queue expects it to
        continue, and notifies no other consumer of the same messages.

        Args:
            limit: At most this many messages, 1 or more.

        Returns:
            The messages, to be settled with `queue`; a browser's have no ticket. None if there are
            none for this consumer now, or if others go first. The target is woken when there may be
            some again.

        Raises:
            BadOption: *limit* is not a whole number of 1 or more, or the target was not started.
            ConsumerFenced: A target of the same name was started again elsewhere.
            QueueDeactivated: The queue was deactivated.
            SubscriptionDetached: As in `Queue.fire`.
            QueueTaken: Another consumer has the queue to itself.
            NoSuchQueue: The queue was dropped.
            DamagedSegment: Messages cannot be read. They are quarantined; pull again.
            Unavailable: The catalog or the storage cannot be reached. The target is woken again
                within about a second.
        """
        check_whole("limit", limit, 1)
        # Before the pull: a notification during the pull must not be lost.
        self._ready.discard(self)
        firing = super().pull(limit)
        if firing is not None:
            self._ready.put_back(self)
        return firing

    def suspend(self, reason: SuspendReason = SuspendReason.FLOW_CONTROL) -> None:
        """
        Want no work, until `resume` has been called for each reason.

        Args:
            reason: Why: by default, `SuspendReason.FLOW_CONTROL`. Use ``CREDIT`` when the client
                has as many messages as it may have, and ``BACK_PRESSURE`` when it cannot keep up.
        """
        self._ready.discard(self)
        super().suspend(reason)

    def resume(self, reason: SuspendReason = SuspendReason.FLOW_CONTROL) -> None:
        """
        Want work again.

        Args:
            reason: The reason of the `suspend` call that ends now; other reasons remain. By
                default, `SuspendReason.FLOW_CONTROL`.
        """
        super().resume(reason)


@shielded
class ConsumerTarget(AbstractContextManager["ConsumerTarget"]):
    """
    A consumer of one or several queues that is notified of work, and pulls it when it likes.

    Use it in a ``with`` statement, or call `start` and `stop`. When there may be messages, *wake*
    is called. Then, in any thread, pull from each consumer that `ready` returns, and settle the
    messages with its queue. The target keeps no thread busy meanwhile. It runs no side tasks:
    `Store.side_tasks` does. Source: Qpid, ConsumerTarget.

    Args:
        store: The store that has the queues.
        queue: The name of a queue, or of several.
        wake: Called without arguments, in any thread, when a consumer becomes ready. It must not
            wait: it sets an event, or schedules the work, such as
            ``lambda: loop.call_soon_threadsafe(event.set)``.
        magazine: ``main`` or ``sideline``.
        selector: Take only messages that meet a condition, as in `Queue.fire`.
        order_by: The order in which messages are chosen, as in `Queue.fire`.
        order: ``"shard"`` or ``"global"``, as in `Queue.fire`; global for one queue only.
        priority: Consumers with a higher number go first, in this process and in all others. By
            default, the target goes before all consumers with a priority.
        exclusive: Whether no other consumer may use the queues.
        single_active: Whether one of all consumers that set this is active, and the others stand
            by.
        browse: Whether to see each message that is still there once, instead of taking it.
            Cannot be combined with *selector*, *order_by*, *order*, *exclusive* or *single_active*.
        pressure: A `Pressure` that suspends the target's consumers while it is applied.
        name: The consumer's name, unique by default. Starting a target ends a running target or
            pool of the same name: its next call raises `ConsumerFenced`.

    Raises:
        BadOption: An argument is not valid, or two cannot be combined.
        BadSelector: *selector* or *order_by* cannot be parsed, or names an unknown column.
        NoSuchQueue: The store has no queue of that name.
    """

    def __init__(
        self,
        store: Store,
        queue: str | Sequence[str],
        wake: Callable[[], object],
        *,
        magazine: str = "main",
        selector: AnySelector | None = None,
        order_by: str | None = None,
        order: str = BY_SHARD,
        priority: int | None = None,
        exclusive: bool = False,
        single_active: bool = False,
        browse: bool = False,
        pressure: Pressure | None = None,
        name: str | None = None,
    ) -> None:
        if not callable(wake):
            raise BadOption(f"wake={wake!r}: give a function without arguments")
        names = [queue] if isinstance(queue, str) else queue
        self._config = checked(
            PoolConfig(
                queues=[store.queue(each) for each in names],
                # What concerns handlers has no meaning here.
                contract=Contract(handler=wake),
                demand=Demand(
                    magazine=magazine_of(magazine),
                    selector=selector,
                    order_by=order_by,
                    order=order,
                ),
                priority=priority,
                exclusive=exclusive,
                single_active=single_active,
                browse=browse,
                pressure=pressure,
                name=name,
                tasks=(),
            )
        )
        self._store = store
        self._wake = wake
        self._presence: Presence | None = None
        #: The process that has started it.
        self._process = 0
        self._ready: ReadySet[TargetConsumer] = ReadySet("target", "target", wake)
        self._consumers: list[TargetConsumer] = []
        self._dispatchers: list[QueueDispatcher] = []

    def start(self) -> ConsumerTarget:
        """
        Register with the queues. A ``with`` statement calls this.

        Returns:
            The target itself. It is woken at once if its queues may have messages.

        Raises:
            BadName: The name of the consumer is not allowed.
            BadOption: The target is started already.
            QueueTaken: Another consumer has one of the queues to itself, or *exclusive* is set and
                a queue has another consumer.
            CatalogUnavailable: The catalog cannot be reached.
        """
        if self._presence is not None:
            raise BadOption("the target is started already: stop it first")
        config, catalog = self._config, self._store.catalog
        name = check_consumer(config.name or f"target:{of_process()}")
        consumer = start_again(catalog, name, browses=config.browse)
        self._ready = ReadySet(name, name, self._wake)
        self._process = os.getpid()
        self._presence = Presence(
            catalog,
            consumer,
            [queue.info.id for queue in config.queues],
            lambda _: config.precedes and any(each.desires_work for each in self._consumers),
            priority=config.priority,
            claim=config.claim,
            at_first=config.precedes,
        )
        try:
            self._join(consumer)
        except BaseException:
            # The caller's `wake` may raise. A half-started target would hold others back for ever.
            with suppress(IgnisError):
                self.stop()
            raise
        return self

    def _join(self, consumer: Consumer) -> None:
        """Register a consumer for each queue, which may have work at once."""
        config, stalls = self._config, Stalls()
        for queue in config.queues:
            dispatcher = open_dispatcher(self._store.catalog, queue.info, config.magazine_of(queue))
            self._dispatchers.append(dispatcher)
            if config.browse:
                take = _browse(queue, consumer, dispatcher, config)
            else:
                take = _acquire(queue, consumer, dispatcher, config, stalls)
            member = TargetConsumer(queue, take, self._ready, config)
            self._consumers.append(member)
            if config.pressure is not None:
                config.pressure.watch(member)
            member.join(dispatcher.manager)

    @property
    def consumers(self) -> list[TargetConsumer]:
        """The consumers, one per queue in the order of *queue*; none before `start`."""
        return list(self._consumers)

    def ready(self) -> list[TargetConsumer]:
        """
        Return the consumers that were notified of work and have not finished it.

        Returns:
            The consumers, in the order in which they were notified. One leaves the list when a pull
            gives it None, or when it is suspended.

        Raises:
            ConsumerFenced: A target of the same name was started again elsewhere.
        """
        if self._presence is not None:
            self._presence.check()
        return self._ready.members()

    def stop(self) -> None:
        """
        Leave the queues. A ``with`` statement calls this.

        Messages that were pulled and not settled return to their places. Their firing
        counts for the setting ``max_deliveries``.

        Raises:
            CatalogUnavailable: The catalog cannot be reached; the messages are swept later.
        """
        presence, self._presence = self._presence, None
        if presence is None:
            return
        members, self._consumers = self._consumers, []
        dispatchers, self._dispatchers = self._dispatchers, []
        self._ready = ReadySet("target", "target", self._wake)
        if self._process != os.getpid():
            # The messages are those of the process from which this one was forked.
            return
        for member in members:
            member.leave()
        close_dispatcher(*dispatchers)
        try:
            if not self._config.browse:
                # Another target of this name goes on with the messages.
                with suppress(ConsumerFenced):
                    for queue in self._config.queues:
                        put_back(self._store.catalog, queue.info, presence.consumer)
        finally:
            # Last: consumers that it holds back would take later messages before these are back.
            presence.leave()

    def __enter__(self) -> ConsumerTarget:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        names = ", ".join(queue.name for queue in self._config.queues)
        return f"<ConsumerTarget of {names}: {len(self._ready.members())} consumers ready>"


def _acquire(
    queue: Queue,
    consumer: Consumer,
    dispatcher: QueueDispatcher,
    config: PoolConfig,
    stalls: Stalls,
) -> Callable[[int], Firing | None]:
    """Return the function that fires messages."""
    demand = queue.opened.demanded(config.demand)

    def take(limit: int) -> Firing | None:
        if stalls.keep_back(queue.name):
            dispatcher.look_in(STALL_SECONDS)
            return None
        wanted = replace(demand, max_messages=limit)
        firing = queue.opened.fire(wanted, lambda: consumer, timeout=0.0)
        stalls.note(queue.name, waits=firing.suspects)
        if firing.ticket is not None:
            return firing
        if firing.stalled:
            # A suspect waits until the target has settled what it holds.
            dispatcher.look_in(STALL_SECONDS)
        if firing.opens_in is not None:
            dispatcher.look_in(firing.opens_in)
        if config.yields:
            with queue.store.catalog.read() as connection:
                seconds = interests.held_back(connection, consumer, queue.info.id)
            if seconds is not None:
                dispatcher.look_in(seconds)
        return None

    return take


def _browse(
    queue: Queue, consumer: Consumer, dispatcher: QueueDispatcher, config: PoolConfig
) -> Callable[[int], Firing | None]:
    """Return the function that shows messages and takes none."""
    source = BrowsingSource(
        queue, consumer, lambda names: names, config.demand, dispatcher.manager.notify_arrival
    )

    def take(limit: int) -> Firing | None:
        taken = source.take(limit)
        return None if taken is None else Firing(pa.Table.from_batches([taken.messages]))

    return take
