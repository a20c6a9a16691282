"""`ConsumerPool`: handlers in the threads of a plain Python process, without a Spark query."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING

from queue_core.catalog import queues as catalog_queues
from queue_core.catalog.holders import interests
from queue_core.catalog.records import pauses
from queue_core.consumers.consumer import SuspendReason
from queue_core.consumers.presence.presence import Presence
from queue_core.errors import BadOption, IgnisError, NoSuchQueue, Unavailable
from queue_core.handling.breaker import Breaker
from queue_core.handling.contract import Contract, Ignorable
from queue_core.handling.handler import BatchHandler, HandlerRunner, RowHandler
from queue_core.handling.magazine_handler import MagazineHandler, unwrapped
from queue_core.handling.results import name_of
from queue_core.pool.breaking import PoolBreaker
from queue_core.pool.config import PoolConfig, checked
from queue_core.pool.credit import Credit
from queue_core.pool.dispatcher import QueueDispatcher, close_dispatcher, open_dispatcher
from queue_core.pool.held_bytes import MAX_BYTES, HeldBytes
from queue_core.pool.pressure import Pressure
from queue_core.pool.signals import asked_to_end
from queue_core.pool.source import AcquiringSource, BrowsingSource, MessageSource
from queue_core.pool.timings import STOP_SECONDS
from queue_core.pool.transactions import Transactions
from queue_core.pool.worker import WorkerContext
from queue_core.pool.workers import Workers
from queue_core.queue import Queue
from queue_core.store import Store
from queue_core.support.interruption import check, shielded
from queue_core.support.loop import Loop
from queue_core.upkeep.tasks import background
from queue_core.upkeep.tasks.thread import TaskThread
from queue_core.values.durations import Duration, check_seconds, check_timeout
from queue_core.values.model import BY_SHARD, Consumer, Magazine, QueueInfo
from queue_core.values.names import check_consumer, of_process, speaking
from queue_core.values.retry import Retry
from queue_core.verbs.lose import start_again

if TYPE_CHECKING:
    from queue_core.selection.selection import AnySelector

#: Seconds between two looks of `run` at whether the pool has failed.
_LOOK_SECONDS = 0.5
#: Messages that a worker fires, handles and settles at once by default.
BATCH = 100

_log = logging.getLogger(__name__)


@shielded
class ConsumerPool(AbstractContextManager["ConsumerPool"]):
    """
    Worker threads that handle the messages of one or several queues in this process.

    Use it in a ``with`` statement, call `start` and `stop`, or `run` in a process of its own. Each
    worker fires a batch of messages, calls the handler, and settles the batch. It sleeps while no
    message waits, and a load by any process wakes it. While the catalog or the storage is
    unavailable, the pool logs the error once, and tries again once a second. When one of several
    queues is deactivated or dropped, the pool goes on with the others. If the handler returns
    True or raises an *ignorable* exception, the message is deleted. Any other result, any other
    exception, or a call that takes too long sidelines the message, until it is tried again. If the
    handler raises `Later`, it gets the message again after a time, and the message has not failed.

    Args:
        store: The store that has the queues.
        queue: The name of a queue, or of several.
        handler: A function that takes one message as a dict of its columns and returns a bool; or a
            function marked by `batch_handler`, which takes a RecordBatch. It may be a coroutine
            function; each call then has its own event loop. Or an object with a method ``handle``
            (`MagazineHandler`). Workers call the handler at the same time, each in its own thread.
        concurrency: The number of workers, 0 or more; more than 100 counts as 100. By default, 1
            for a browser, and otherwise the smallest setting ``concurrency`` of the queues. The
            pool then follows changes of the setting until `increase` or `decrease` is called. A
            paused queue (its setting is 0) gives messages to browsers only.
        batch: The number of messages that a worker fires, handles and settles at once, 1 or more. A
            batch handler takes that many at once.
        ignorable: An exception class, or several, whose exceptions delete the message.
        handler_timeout: Seconds, or a text such as ``"30s"`` or a ``timedelta``, that one call of
            the handler may take, more than 0 and at most half of the queues' ``sweep_after``. By
            default the queues' setting ``handler_timeout``.
        payload: The string or binary column with JSON text. The handler then takes the object
            instead of the row; a message that cannot be read is sidelined as ``unreadable``.
        payload_type: A dataclass or pydantic model to parse the JSON into. By default, dicts and
            lists.
        message_type: A dataclass or pydantic model, each of whose fields is a column of the queues.
            The handler then takes an object of it instead of the row; a message of which none can
            be made is sidelined as ``unreadable``. By default, the handler takes rows.
        with_metadata: Whether a handler with a payload or a *message_type* takes the other columns
            too, as a dict and second argument.
        on_none: The outcome of a message for which the handler returns None: ``delete`` or
            ``sideline``. By default, a handler whose first result is None ends the pool with
            `BadOutcome`: its message is sidelined as ``undecided``, and so are those of other
            workers whose calls are in progress; the others wait. A None after a decision only
            sidelines its message.
        retry: Which failures are tried again, how often and when: a `Retry`, which may name
            exception classes, or its text. By default, the queues' setting ``retry``.
        transactional: Whether each call has a transaction of its own in the database of the
            catalog. The handler then takes a ``Connection`` of SQLAlchemy as its last argument. Its
            rows are committed together with the outcomes of its messages: if a row handler returns
            True, or a batch handler deletes at least one. Otherwise they are rolled back. The
            handler must not commit or roll back itself, or settle its own messages. A call that
            other transactions disturb is repeated. A call that cannot commit sidelines its
            messages. On SQLite, one call runs at a time, and nobody else writes meanwhile; on
            PostgreSQL, 16 do. To wait for a turn takes none of *handler_timeout*. Cannot be
            combined with *browse*, or for a batch handler with *payload* or *message_type*.
        columns: The columns that the handler takes, besides ``_message_id``. By default, the
            queue's own columns with ``_queue`` and ``_attempt``; with a payload or a
            *message_type*, only the object.
        magazine: ``main`` or ``sideline``. The sideline is also read if *queue* names it, such as
            ``orders_SIDELINE``.
        selector: A SQL condition or a function of Arrow columns, as in `Queue.fire`; only matching
            messages are fired. A function that fails ends the pool. By default, all messages.
        order_by: The order in which messages are fired, as in SQL. By default, the oldest first.
        order: The order without *order_by*, as in `Queue.fire`. ``"shard"``: the oldest of each
            shard. ``"global"``: by the time of loading over all shards of the queue, which takes
            longer. Workers handle their batches at the same time, so only a pool with one worker
            handles messages in this order. Cannot be combined with several queues, since each
            firing takes from one.
        priority: An integer. While a consumer with a higher priority, in any process, wants
            messages of a queue, this pool gets none of them. By default, the pool has no priority:
            it does not wait for consumers with one, and they do not wait for it.
        max_bytes: The most bytes of messages that the pool holds at once, fired and not settled, as
            uncompressed Arrow data, 1 or more. The workers share them. Each firing takes one
            message at least, even if it is larger, so a pool can hold one message of each queue
            more. By default, 64 MiB. The rows that a handler gets take more memory.
        max_in_flight: The most messages of the pool that may be in flight, 1 or more. While that
            many are, consumers with a lower priority may fire. By default, no limit.
        exclusive: Whether only this pool may fire from the queues while it runs.
        single_active: Whether only one of all consumers that set this is active. The others stand
            by and take over when it stops.
        browse: Whether to show every message once and take none. Cannot be combined with
            *selector*, *order_by*, *order*, *max_in_flight*, *exclusive* or *single_active*.
        pressure: A `Pressure` that suspends all pools that share it while it is applied.
        name: The consumer's name, unique by default. Starting a pool ends a running pool of the
            same name. A browser continues where the last browser of its name ended; a batch whose
            process was killed while it was shown is not shown again.
        tasks: The side tasks that the pool runs in the background when they are due: any of
            ``shovel``, ``sweep``, ``expire``, ``compact``, ``vacuum``, ``fsck`` and ``sample``.
            They are run for the pool's queues; the leader sweeps all queues of the store, and
            ``vacuum``, ``fsck`` and ``sample`` concern all as well. By default, all of them; a
            browser runs none.
        breaker: A `Breaker`, which stops firing while too many calls of the handler fail. Processes
            whose breakers have the same name share it. Not with *browse*. By default, none.

    Raises:
        BadOption: An argument is not valid, two cannot be combined, or the handler cannot take its
            arguments.
        BadSelector: *selector* or *order_by* cannot be parsed, or names an unknown column.
        NoSuchQueue: The store has no queue of that name.
        SchemaMismatch: A queue lacks one of *columns*, or the column *payload*, or does not fit
            *message_type*.
    """

    def __init__(
        self,
        store: Store,
        queue: str | Sequence[str],
        handler: RowHandler | BatchHandler | MagazineHandler,
        *,
        concurrency: int | None = None,
        batch: int = BATCH,
        ignorable: Ignorable = (),
        handler_timeout: Duration | None = None,
        payload: str | None = None,
        payload_type: type | None = None,
        message_type: type | None = None,
        with_metadata: bool = False,
        on_none: str | None = None,
        retry: Retry | str | None = None,
        transactional: bool = False,
        columns: Sequence[str] | None = None,
        magazine: str = "main",
        selector: AnySelector | None = None,
        order_by: str | None = None,
        order: str = BY_SHARD,
        priority: int | None = None,
        max_bytes: int = MAX_BYTES,
        max_in_flight: int | None = None,
        exclusive: bool = False,
        single_active: bool = False,
        browse: bool = False,
        pressure: Pressure | None = None,
        name: str | None = None,
        tasks: Sequence[str] | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        function, exceptions = unwrapped(handler, ignorable)
        contract = Contract.of(
            exceptions,
            handler_timeout,
            payload,
            payload_type,
            with_metadata,
            message_type,
            on_none,
            retry,
        )
        self._config = checked(
            PoolConfig(
                queues=[
                    store.queue(each) for each in ([queue] if isinstance(queue, str) else queue)
                ],
                handler=function,
                payload=contract.payload,
                columns=columns,
                concurrency=concurrency,
                batch=batch,
                magazine=magazine,
                selector=selector,
                order_by=order_by,
                order=order,
                priority=priority,
                max_bytes=max_bytes,
                max_in_flight=max_in_flight,
                exclusive=exclusive,
                single_active=single_active,
                browse=browse,
                transactional=transactional,
                tasks=tasks,
                breaker=breaker,
            )
        )
        contract.check_handler(function, transactional=transactional)
        self._store = store
        self._infos = [each.info for each in self._config.queues]
        self._timeout = contract.timeout_for(self._infos)
        self._runner = HandlerRunner(
            function,
            contract.ignorable,
            None,
            contract.payload,
            contract.on_none,
            contract.retry,
            may_put_off=any(
                each.opened.magazine(magazine) is Magazine.MAIN for each in self._config.queues
            ),
        )
        self._pressure = pressure
        self._name = name
        self._credit = Credit(max_in_flight, self._credit_changed)
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._paused = False
        #: Whether the number of workers follows the queues' setting.
        self._follows = concurrency is None and not browse
        #: The queues that a person or their setting has paused, as of the last look.
        self._paused_queues: list[str] = []
        #: The queues that were deactivated or dropped since the start.
        self._ended_queues: set[str] = set()
        self._ended = threading.Event()
        self._presence: Presence | None = None
        #: Held while the pool is being stopped: two threads may do so at once.
        self._stopping = threading.RLock()
        self._breaker: PoolBreaker | None = None
        self._context: WorkerContext | None = None
        self._transactions: Transactions | None = None
        self._workers: Workers | None = None
        self._watcher: Loop | None = None
        self._side_tasks: TaskThread | None = None
        #: The error that ended the pool early, if one did.
        self.error: BaseException | None = None

    def start(self) -> ConsumerPool:
        """
        Register with the queues and start the workers. A ``with`` statement calls this.

        A stopped pool can be started again.

        Returns:
            The pool itself.

        Raises:
            BadName: The name of the consumer is not allowed.
            QueueTaken: Another consumer has one of the queues to itself, or *exclusive* is set and
                a queue has another consumer.
            CatalogUnavailable: The catalog cannot be reached.
        """
        config = self._config
        self.error = None
        self._ended_queues.clear()
        told = speaking(name_of(config.handler).rpartition("<locals>.")[2])
        made = f"pool:{told}@{of_process()}"
        name = check_consumer(self._name or made)
        consumer = start_again(self._store.catalog, name, browses=config.browse)
        self._presence = Presence(
            self._store.catalog,
            consumer,
            [info.id for info in self._infos],
            lambda _: self._is_interested(),
            priority=config.priority,
            claim=config.claim,
        )
        if config.transactional:
            self._transactions = Transactions(
                self._store.catalog, config.handler, self._runner.on_none
            )
        dispatchers = [open_dispatcher(self._store.catalog, info) for info in self._infos]
        self._breaker = self._start_breaker(consumer, dispatchers)
        held = HeldBytes(config.max_bytes, lambda: self.concurrency)
        # Without the results of an earlier life.
        runner = replace(self._runner, gate=None if self._breaker is None else self._breaker.gate)
        self._context = WorkerContext(
            name=consumer.name,
            sources={
                dispatcher: self._source(queue, consumer, dispatcher.manager.notify_arrival, held)
                for dispatcher, queue in zip(dispatchers, config.queues, strict=True)
            },
            runner=runner,
            sideline_runner=runner.of_sideline(),
            batch=config.batch,
            priority=config.priority,
            yields=config.priority is not None or config.single_active,
            acquires=not config.browse,
            # What a breaker holds back is left to other handlers.
            selective=config.selector is not None or config.breaker is not None,
            credit=self._credit,
            held=held,
            pressure=self._pressure,
            transactions=self._transactions,
            count=self._count,
            fail=self._fail,
            ended=self._ended_queues,
            end_queue=self._end_queue,
        )
        self._workers = Workers(self._context)
        self._ended = threading.Event()
        self._watcher = Loop("pool watcher", self._watch, every=min(self._timeout / 4, 1.0))
        self._watcher.start()
        self._workers.increase(config.workers)
        if config.side_tasks:
            names = [info.name for info in self._infos]
            self._side_tasks = background.background_tasks(
                self._store.catalog,
                self._store.storage,
                names,
                tasks=config.side_tasks,
                start=background.LOOK_SECONDS,
            )
            self._side_tasks.start()
        return self

    def run(self, timeout: Duration = STOP_SECONDS) -> None:
        """
        Start, handle messages until SIGTERM or SIGINT (Ctrl-C) asks to end, and then stop.

        For a process that does nothing else. It can be called in the main thread only. While the
        pool stops, a second signal ends the process at once.

        Args:
            timeout: Seconds, or a text such as ``"20s"`` or a ``timedelta``, to wait for the
                handlers at the end, as in `stop`. Less than the time that a supervisor waits before
                it kills the process.

        Raises:
            BadOption: This is not the main thread, or *timeout* is out of range.
            IgnisError: What `start` raises, or the error that ended the pool early.
        """
        seconds = check_seconds("timeout", timeout)
        with asked_to_end() as asked:
            self.start()
            try:
                # The watcher sets *_ended* if the pool fails.
                while not (self._ended.is_set() or asked.wait(_LOOK_SECONDS)):
                    pass
            finally:
                self.stop(seconds)

    @property
    def concurrency(self) -> int:
        """The number of workers; 0 before `start` and after `stop`."""
        return 0 if self._workers is None else len(self._workers)

    @property
    def counts(self) -> dict[str, int]:
        """
        The number of handled messages by their outcome, as settled.

        The keys are ``deleted``, ``sidelined``, ``ignored``, ``reloaded``, and ``lost``: messages
        that the pool did not hold any more when they were to be settled, because a sweep or a
        person had taken them. Keys of outcomes that did not occur are missing.
        """
        with self._lock:
            return dict(self._counts)

    def increase(self, by: int = 1) -> int:
        """
        Add workers.

        Args:
            by: How many to add. A pool has at most 100 workers.

        Returns:
            The number of workers now.

        Raises:
            BadOption: The pool was not started.
        """
        self._follows = False
        return self._started.increase(by)

    def decrease(self, by: int = 1) -> int:
        """
        Remove workers. Each ends after its current batch.

        Args:
            by: How many to remove, at most all.

        Returns:
            The number of workers that are left.

        Raises:
            BadOption: The pool was not started.
        """
        self._follows = False
        return self._started.decrease(by)

    def pause(self) -> None:
        """
        Fire no more messages until `resume`. The workers finish their current batches.

        Raises:
            BadOption: The pool was not started.
        """
        self._paused = True
        self._started.set_suspended(SuspendReason.FLOW_CONTROL, True)

    def resume(self) -> None:
        """
        Fire messages again after `pause`.

        Raises:
            BadOption: The pool was not started.
        """
        self._paused = False
        self._started.set_suspended(SuspendReason.FLOW_CONTROL, False)

    def drain(self, timeout: Duration | None = None) -> bool:
        """
        Wait until no message is left to handle.

        Messages that other pools or processes hold are not waited for, nor those that wait for them
        in their groups. While the catalog or the storage is unavailable, the pool logs the error
        and tries again once a second. Its queues may have messages meanwhile, so this method waits.
        It also waits while one of the queues is paused, by a person or by its setting
        ``concurrency=0``, or while the pool has no workers, and logs a warning that says so.

        Args:
            timeout: The longest time to wait: seconds, a text such as ``"1m"``, or a ``timedelta``.
                By default, no limit.

        Returns:
            True if no message is left. False if the time ran out: messages may be left, or the
            catalog or the storage was still unavailable.

        Raises:
            BadOption: The pool was not started, or *timeout* is out of range.
            IgnisError: The error that ended the pool early.
        """
        seconds = check_timeout("timeout", timeout)
        end = None if seconds is None else time.monotonic() + seconds
        # The watcher may not have looked yet, and a paused queue looks empty.
        with suppress(Unavailable):
            self._concurrencies()
        self._started.check_queues()
        warned = False
        while not self._is_idle():
            check()
            warned = warned or self._warn_of_rest()
            if self._ended.wait(0.01) or (end is not None and time.monotonic() > end):
                self._raise()
                return self._is_idle()
        self._raise()
        return True

    def stop(self, timeout: Duration = STOP_SECONDS) -> None:
        """
        Stop the workers after their current batches. A ``with`` statement calls this.

        Args:
            timeout: Seconds, or a text such as ``"20s"`` or a ``timedelta``, to wait for the
                handlers. After that, unfinished messages are reloaded. They include messages that a
                handler is working on, which are handled a second time.

        Raises:
            BadOption: *timeout* is out of range.
            IgnisError: The error that ended the pool early.
        """
        seconds = check_seconds("timeout", timeout)
        with self._stopping:
            if self._presence is None:
                return
            self._stop(seconds)
        self._raise()

    def _stop(self, seconds: float) -> None:
        assert self._presence is not None
        self._started.stop(seconds)
        self._ended.set()
        if self._side_tasks is not None:
            self._side_tasks.stop()
            self._side_tasks = None
        if self._watcher is not None:
            # It may be reloading messages, and the caller may close the store next.
            self._watcher.stop(seconds)
        self._give_back()
        if self._transactions is not None:
            self._transactions.close()
        if self._breaker is not None:
            self._breaker.stop()
            self._breaker = None
        for info in self._infos:
            close_dispatcher(self._store.catalog, info)
        self._presence.leave()
        self._presence = None

    def __enter__(self) -> ConsumerPool:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except IgnisError:
            if kind is None:
                raise

    def __repr__(self) -> str:
        names = ", ".join(info.name for info in self._infos)
        paused = f", {', '.join(self._paused_queues)} paused" if self._paused_queues else ""
        ended = f", ended by {self.error!r}" if self.error is not None else ""
        return (
            f"<ConsumerPool of {names}: {self.concurrency} workers, {self._credit.used} messages "
            f"in hand{paused}{ended}>"
        )

    def _start_breaker(
        self, consumer: Consumer, dispatchers: Sequence[QueueDispatcher]
    ) -> PoolBreaker | None:
        config = self._config
        if config.breaker is None:
            return None

        def changed() -> None:
            for dispatcher in dispatchers:
                dispatcher.manager.notify_arrival()

        return PoolBreaker(
            self._store.catalog,
            config.breaker,
            config.breaker_name,
            consumer.name,
            len(dispatchers),
            changed,
        )

    def _source(
        self,
        queue: Queue,
        consumer: Consumer,
        on_available: Callable[[], None],
        held: HeldBytes,
    ) -> MessageSource:
        config = self._config
        if config.browse:
            named = queue.opened.magazine(config.magazine)
            return BrowsingSource(queue, consumer, config.read, named, on_available, held)
        return AcquiringSource(
            queue,
            consumer,
            config.read,
            magazine=config.magazine,
            selector=config.selector,
            order_by=config.order_by,
            order=config.order,
            prefetch=config.may_prefetch,
            on_available=on_available,
            held=held,
            retry=None if self._runner.retry is None else self._runner.retry.by_kinds(),
            breaker=self._breaker,
        )

    def _is_interested(self) -> bool:
        """Whether the pool wants messages; a short lack of credit does not count."""
        pressed = self._pressure is not None and self._pressure.applied
        stopped = self._breaker is not None and self._breaker.gate.stopped
        suspended = self._paused or pressed or stopped or not self.concurrency
        return not suspended and self._credit.missing_for() < interests.BEAT_SECONDS

    def _follow_settings(self) -> None:
        """Follow the queues' `concurrency`, and note whether one of the queues is paused."""
        if self._config.browse:
            with self._store.catalog.read() as connection:
                for info in self._in_use:
                    try:
                        catalog_queues.still_there(connection, info)
                    except NoSuchQueue as error:
                        self._end_queue(info.name, error)
            return
        # Where a queue is paused, the others keep their workers.
        running = [number for number in self._concurrencies() if number]
        if self._follows and running:
            more = min(running) - self.concurrency
            (self._started.increase if more > 0 else self._started.decrease)(abs(more))

    def _concurrencies(self) -> Collection[int]:
        """Return the queues' `concurrency`, and note which of them are paused."""
        if self._config.browse:
            return []
        with self._store.catalog.read() as connection:
            numbers = pauses.concurrencies(connection, [info.id for info in self._in_use])
        paused = sorted(name for name, number in numbers.items() if not number)
        if self._paused_queues and paused != self._paused_queues:
            # What a worker found empty was perhaps only paused.
            self._started.check_queues()
        self._paused_queues = paused
        return numbers.values()

    def _warn_of_rest(self) -> bool:
        """Say in the log why `drain` waits for nothing that happens by itself, if so."""
        names = ", ".join(map(repr, self._paused_queues))
        if names:
            _log.warning(
                "drain waits, since queue %s is paused and may have messages; let it go on with "
                "ignis resume, with queue.admin.resume(), or with its setting concurrency above 0",
                names,
            )
        elif not self.concurrency and not self._ended.is_set():
            _log.warning(
                "drain waits, since the pool of queue %s has no workers; add some with "
                "ConsumerPool.increase()",
                ", ".join(repr(info.name) for info in self._infos),
            )
        else:
            return False
        return True

    @property
    def _in_use(self) -> list[QueueInfo]:
        """The queues that may give messages."""
        return [info for info in self._infos if info.name not in self._ended_queues]

    def _end_queue(self, name: str, error: IgnisError) -> None:
        """Go on without a queue that was deactivated or dropped; fail without the last one."""
        with self._lock:
            is_known = name in self._ended_queues
            self._ended_queues.add(name)
        if not self._in_use:
            self._fail(error)
        elif not is_known:
            _log.warning("%s. The pool goes on with its other queues", error)

    def _give_back(self) -> None:
        """Reload the messages that were fired ahead."""
        if self._context is not None:
            for source in self._context.sources.values():
                source.give_back()

    def _is_idle(self) -> bool:
        arrivals = self._started.arrivals
        # A paused queue gives no messages, but it may have some.
        is_idle = not self._paused_queues and self._started.found_nothing and self._credit.used == 0
        # A consumer that could not take messages has found nothing either.
        is_idle = is_idle and not self._is_in_trouble and not self._is_refused
        # A batch may have been settled between the two looks, which frees others of its groups.
        return is_idle and self._started.arrivals == arrivals

    @property
    def _is_in_trouble(self) -> bool:
        return any(source.trouble.error is not None for source in self._sources)

    @property
    def _is_refused(self) -> bool:
        """Whether limits or a breaker refuse messages, or suspects wait for empty hands."""
        return any(source.refused_for is not None for source in self._sources)

    @property
    def _sources(self) -> list[MessageSource]:
        """The sources of the queues that may give messages."""
        sources = {} if self._context is None else self._context.sources
        return [
            source
            for dispatcher, source in sources.items()
            if dispatcher.manager.queue not in self._ended_queues
        ]

    def _credit_changed(self, left: bool) -> None:
        self._started.set_suspended(SuspendReason.CREDIT, not left)

    @property
    def _started(self) -> Workers:
        if self._workers is None:
            raise BadOption("the pool was not started: use it in a with statement, or call start()")
        return self._workers

    def _count(self, outcomes: Counter[str]) -> None:
        with self._lock:
            self._counts += outcomes

    def _fail(self, error: BaseException) -> None:
        """End all workers, because of an error that the pool cannot survive."""
        if self.error is None:
            self.error = error
            names = ", ".join(repr(info.name) for info in self._infos)
            _log.error("pool of queue %s ended: %s", names, error)
        self._started.end()
        self._ended.set()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error

    def _watch(self) -> None:
        """Time out late calls, reload messages while suspended, and notice a second pool."""
        if self._ended.is_set():
            return
        self._started.time_out_after(self._timeout)
        presence = self._presence
        try:
            if presence is not None:
                presence.check()
            self._follow_settings()
            # The transaction of a handler may have the database; only this thread can end it.
            is_free = self._transactions is None or not self._transactions.are_open
            if is_free and (not self._is_interested() or self._paused_queues):
                self._give_back()
        except Unavailable:
            return
        except IgnisError as error:
            self._fail(error)
