"""`ConsumerPool`: handlers in the threads of a plain Python process, without a Spark query."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from queue_core.errors import BadOption, IgnisError
from queue_core.handling.breaker import Breaker
from queue_core.handling.contract import Contract, Ignorable, MagazineHandler
from queue_core.handling.handler import BatchHandler, RowHandler
from queue_core.pool.config import BATCH, PoolConfig, checked
from queue_core.pool.held import MAX_BYTES
from queue_core.pool.life import PoolLife
from queue_core.pool.pressure import Pressure
from queue_core.pool.signals import asked_to_end
from queue_core.pool.timings import STOP_SECONDS
from queue_core.pool.worker import Workers, working_for
from queue_core.selection.request import Demand
from queue_core.selection.selection import AnySelector
from queue_core.store import Store
from queue_core.support.interruption import shielded
from queue_core.upkeep.tasks.registry import check_tasks
from queue_core.values.durations import Duration, check_seconds, check_timeout
from queue_core.values.model import BY_SHARD, magazine_of
from queue_core.values.retry import Retry


@shielded
class ConsumerPool(AbstractContextManager["ConsumerPool"]):
    """
    Worker threads that handle the messages of one or several queues in this process.

    Use it in a ``with`` statement, call `start` and `stop`, or `run` in a process of its own. Each
    worker fires a batch of messages, calls the handler, and settles the batch. It sleeps while no
    message waits, and a load by any process wakes it. While the catalog or the storage is
    unavailable, the pool logs the error once, and tries again once a second. When one of several
    queues is deactivated, dropped or detached from its log, the pool goes on with the others. If
    the handler returns True or raises an *ignorable* exception, the message is deleted. Any other
    result, any other exception, or a call that takes too long sidelines the message, until it is
    tried again. If the handler raises `Later`, it gets the message again after a time, and the
    message has not failed.

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
            The handler then takes an object of it instead of the row; a message that cannot become
            one is sidelined as ``unreadable``. By default, the handler takes rows.
        with_metadata: Whether a handler with a payload or a *message_type* takes the other columns
            too, as a dict and second argument.
        on_none: The outcome of a message when the handler returns None for it: ``delete`` or
            ``sideline``. By default, a handler whose first result is None ends the pool with
            `BadOutcome`: its message is sidelined as ``undecided``, and so are those of other
            workers whose calls are in progress; the others wait. A None after a decision only
            sidelines its message. A handler of a browser has nothing to decide.
        retry: Which failures are tried again, how often and when: a `Retry`, which may name
            exception classes, or its text. By default, the queues' setting ``retry``.
        transactional: Whether each call has a transaction of its own in the database of the
            catalog. The handler then takes a ``Connection`` of SQLAlchemy as its last argument. Its
            rows are committed together with the outcomes of its messages: if a row handler returns
            True, or a batch handler deletes at least one. Otherwise they are rolled back. The
            handler must not commit or roll back itself, or settle its own messages. A call that
            other transactions disturb is repeated. A call that cannot commit sidelines its
            messages. On SQLite, one call runs at a time, and nobody else writes meanwhile; on
            PostgreSQL, 16 run. Waiting for a turn does not count towards *handler_timeout*. Cannot
            be combined with *browse*, or for a batch handler with *payload* or *message_type*.
        columns: The columns that the handler takes, besides ``_message_id``. By default, the
            queue's own columns with ``_queue`` and ``_attempt``; with a payload or a
            *message_type*, only the object.
        magazine: ``main`` or ``sideline``. The sideline is also read if *queue* names it, such as
            ``orders_SIDELINE``.
        selector: A SQL condition or a function of Arrow columns, as in `Queue.fire`; only matching
            messages are fired. A function that fails ends the pool. By default, all messages.
        order_by: The order in which messages are fired, as in SQL. By default, the oldest first.
        order: The order without *order_by*, as in `Queue.fire`; ``"global"`` for one queue only,
            since each firing takes from one. Workers handle their batches at the same time, so only
            a pool with one worker handles messages in this order.
        priority: An integer. While a consumer with a higher priority, in any process, wants
            messages of a queue, this pool gets none of them. By default, the pool goes before all
            consumers with a priority; a pool of a sideline and a browser keep nobody waiting.
        max_bytes: The most bytes of messages that the pool holds at once, fired and not settled, as
            uncompressed Arrow data, 1 or more. The workers share them. Each firing takes one
            message at least, even if it is larger, so a pool can exceed this by one message of
            each queue. By default, 64 MiB. The rows that a handler gets take more memory.
        max_in_flight: The most messages of the pool that may be in flight, 1 or more. While that
            many are, consumers with a lower priority may fire. By default, no limit.
        exclusive: Whether only this pool may fire from the queues while it runs.
        single_active: Whether only one of all consumers that set this is active. The others stand
            by and take over when it stops.
        browse: Whether to show each message once instead of taking it. Messages that others delete
            before the pool looks are not shown. Cannot be combined with *selector*, *order_by*,
            *order*, *max_in_flight*, *exclusive* or *single_active*.
        pressure: A `Pressure` that suspends all pools that share it while it is applied.
        name: The consumer's name, unique by default. Starting a pool ends a running pool of the
            same name. A browser continues where the last browser of its name ended; a batch whose
            process was killed while it was shown is not shown again.
        tasks: The side tasks that the pool runs in the background for its queues, as in
            `Store.side_tasks`. By default, all of them; a browser runs none.
        breaker: A `Breaker`, which stops firing while too many calls of the handler fail. Processes
            whose breakers have the same name share it. Not with *browse*. By default, none.
        output: The name of a queue of the same store for the rows that the handler returns. They
            are loaded in the transaction that settles their message, and only if it is deleted: so
            each message gives its rows exactly once, whatever fails. No transaction is open during
            a call. A handler then returns a row (a dict or an object), rows (a list, a table or a
            data frame), a bool or None as usual, or a tuple ``(outcome, rows)``; rows alone delete
            the message. A batch handler returns one row for each message, in order (a table, or a
            list, whose entries are what a handler of one message returns); a table that names the
            message of each row in a column ``_message_id``; or a tuple of the outcomes and such
            rows. Rows that do not fit the queue, or that it refuses, fail their message as
            ``exception``. While a bounded queue has no room and ``overflow="block"``, the pool
            waits, and fires no more messages. Not with *browse* or *transactional*. By default,
            handlers return only decisions.

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
        output: str | None = None,
    ) -> None:
        contract = Contract.of(
            handler,
            ignorable=ignorable,
            handler_timeout=handler_timeout,
            payload=payload,
            payload_type=payload_type,
            message_type=message_type,
            with_metadata=with_metadata,
            on_none=on_none,
            retry=retry,
            columns=columns,
            transactional=transactional,
        )
        where = magazine_of(magazine)
        names = [queue] if isinstance(queue, str) else queue
        self._config = checked(
            PoolConfig(
                queues=[store.queue(each) for each in names],
                demand=Demand(magazine=where, selector=selector, order_by=order_by, order=order),
                contract=contract,
                concurrency=concurrency,
                batch=batch,
                priority=priority,
                max_bytes=max_bytes,
                max_in_flight=max_in_flight,
                exclusive=exclusive,
                single_active=single_active,
                browse=browse,
                pressure=pressure,
                name=name,
                tasks=None if tasks is None else check_tasks(tasks),
                breaker=breaker,
                output=None if output is None else store.queue(output),
            )
        )
        contract.check()
        self._store = store
        self._timeout = contract.timeout_for([each.info for each in self._config.queues])
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        #: Whether the number of workers follows the queues' setting.
        self._follows = concurrency is None and not browse
        #: From the last start on; None before.
        self._life: PoolLife | None = None
        #: The seconds of the last `stop` that a signal handler called during a start; None: none.
        self._late: float | None = None
        #: Held while the pool is being started or stopped: two threads may do so at once.
        self._changing = threading.RLock()

    def start(self) -> ConsumerPool:
        """
        Register with the queues and start the workers. A ``with`` statement calls this.

        A second call changes nothing. A stopped pool can be started again.

        Returns:
            The pool itself.

        Raises:
            BadName: The name of the consumer is not allowed.
            QueueTaken: Another consumer has one of the queues to itself, or *exclusive* is set and
                a queue has another consumer.
            CatalogUnavailable: The catalog cannot be reached.
            IgnisError: The error that ended the pool early, at the first start after it.
        """
        with self._changing:
            if self.error is not None:
                # It raises the error, unless another call did so.
                self.stop()
            if self._life is None or self._life.is_stopped:
                self._late = None
                self._life = PoolLife(
                    self._store, self._config, self._timeout, lambda: self._follows, self._count
                )
                if self._late is not None:
                    self._life.stop(self._late)
        return self

    def run(self, timeout: Duration = STOP_SECONDS) -> None:
        """
        Start, handle messages until SIGTERM or SIGINT (Ctrl-C) asks to end, and then stop.

        For a process that does nothing else. It can be called in the main thread only. While the
        pool stops, a second signal ends the process at once.

        Args:
            timeout: Seconds, or a text such as ``"20s"`` or a ``timedelta``, to wait for the
                handlers at the end, as in `stop`. Use less than the time that a supervisor waits
                before it kills the process.

        Raises:
            BadOption: This is not the main thread, or *timeout* is out of range.
            IgnisError: What `start` raises, or the error that ended the pool early.
        """
        seconds = check_seconds("timeout", timeout)
        with asked_to_end() as asked:
            self.start()
            try:
                self._started.wait(asked)
            finally:
                self.stop(seconds)

    @property
    def concurrency(self) -> int:
        """The number of workers; 0 before `start` and after `stop`."""
        return 0 if self._life is None else self._life.concurrency

    @property
    def error(self) -> BaseException | None:
        """The error that ended the pool early, if one did."""
        return None if self._life is None else self._life.error

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
        return self._scaled(lambda workers: workers.increase(by))

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
        return self._scaled(lambda workers: workers.decrease(by))

    def pause(self) -> None:
        """
        Fire no more messages until `resume`. The workers finish their current batches.

        Raises:
            BadOption: The pool was not started.
        """
        self._started.set_paused(True)

    def resume(self) -> None:
        """
        Fire messages again after `pause`.

        Raises:
            BadOption: The pool was not started.
        """
        self._started.set_paused(False)

    def drain(self, timeout: Duration | None = None) -> bool:
        """
        Wait until no message is left to handle.

        It does not wait for messages that other pools or processes hold, for messages behind these
        in their groups, or for failed messages before the time of their next attempt. While the
        catalog or the storage is unavailable, the pool logs the error and tries again once a
        second. Its queues may have messages meanwhile, so this method waits. It also waits while
        one of the queues is paused, by a person or by its setting ``concurrency=0``, or while the
        pool has no workers, and logs a warning that says so.

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
        is_done = self._started.drain(check_timeout("timeout", timeout))
        self._raise()
        return is_done

    def stop(self, timeout: Duration = STOP_SECONDS) -> None:
        """
        Stop the workers after their current batches. A ``with`` statement calls this.

        Within a call of the pool's handler, which must end first, it returns at once, and the pool
        stops in a thread of its own. The same holds in the handler of a signal that interrupts
        `increase` or `decrease`.

        Args:
            timeout: Seconds, or a text such as ``"20s"`` or a ``timedelta``, to wait for the
                handlers. After that, unfinished messages are reloaded. They include messages that a
                handler is working on, which are handled a second time.

        Raises:
            BadOption: *timeout* is out of range.
            IgnisError: The error that ended the pool early.
        """
        seconds = check_seconds("timeout", timeout)
        if working_for.get() is self._config:
            threading.Thread(target=self._end, args=(seconds,), name="pool stop").start()
        else:
            self._end(seconds)

    def __enter__(self) -> ConsumerPool:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # An error of the block comes first.
        with nullcontext() if kind is None else suppress(IgnisError):
            self.stop()

    def __repr__(self) -> str:
        names = ", ".join(queue.name for queue in self._config.queues)
        used, state = (0, "") if self._life is None else (self._life.credit.used, self._life.state)
        return (
            f"<ConsumerPool of {names}: {self.concurrency} workers, {used} messages in hand{state}>"
        )

    @property
    def _started(self) -> PoolLife:
        if self._life is None:
            raise BadOption("the pool was not started: use it in a with statement, or call start()")
        return self._life

    def _scaled(self, scale: Callable[[Workers], int]) -> int:
        self._follows = False
        workers = self._started.workers
        # The handler of a signal may stop the pool meanwhile.
        token = working_for.set(self._config)
        try:
            return scale(workers)
        finally:
            working_for.reset(token)

    def _end(self, seconds: float) -> None:
        with self._changing:
            self._late = seconds
            if self._life is None or self._life.is_stopped:
                return
            self._life.stop(seconds)
        self._raise()

    def _count(self, outcomes: Counter[str]) -> None:
        with self._lock:
            self._counts += outcomes

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error
