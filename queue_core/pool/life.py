"""`PoolLife`: a pool from its start to its stop, with its consumer, its workers and its watcher.

Changes: registers a consumer and its interest, and removes the interest at the end. Messages that
were fired ahead are reloaded. Crash: the messages that it holds are swept, like all messages of a
dead consumer, or the next pool of its name continues with them.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from math import inf

from queue_core.catalog.holders import interests
from queue_core.catalog.queues import concurrency_of, dropped
from queue_core.consumers.consumer import SuspendReason
from queue_core.consumers.presence import Presence
from queue_core.errors import IgnisError, Unavailable
from queue_core.handling.breaker import name_for
from queue_core.handling.failure_log import FAILURES
from queue_core.handling.handler import HandlerRunner
from queue_core.handling.output import Output
from queue_core.handling.results import name_of
from queue_core.pool.breaking import PoolBreaker
from queue_core.pool.browsing import BrowsingSource
from queue_core.pool.config import PoolConfig
from queue_core.pool.dispatcher import QueueDispatcher, close_dispatcher, open_dispatcher
from queue_core.pool.held import Credit, HeldBytes
from queue_core.pool.source import AcquiringSource, MessageSource
from queue_core.pool.transactions import Transactions
from queue_core.pool.worker import WorkerContext, Workers
from queue_core.queue import Queue
from queue_core.store import Store
from queue_core.support.interruption import check
from queue_core.support.loop import Loop
from queue_core.upkeep.tasks import background
from queue_core.upkeep.tasks.background import TASK_SECONDS, TaskThread
from queue_core.values.model import Consumer, QueueInfo
from queue_core.values.names import check_consumer, listed, of_process, speaking
from queue_core.values.outcomes import DELETE
from queue_core.verbs.lose import start_again

#: Seconds between two looks at whether the pool has failed.
_LOOK_SECONDS = 0.5

_log = logging.getLogger(__name__)


class PoolLife:
    """
    What a pool has between its start and its stop. It begins when it is made.

    Args:
        store: The store that has the queues.
        config: The pool's arguments.
        timeout: The seconds that a call of the handler may take.
        follows: Whether the number of workers follows the queues' setting now.
        count: Called with the number of messages per outcome after each settlement.
    """

    def __init__(
        self,
        store: Store,
        config: PoolConfig,
        timeout: float,
        follows: Callable[[], bool],
        count: Callable[[Counter[str]], None],
    ) -> None:
        self._store = store
        self._config = config
        self._infos = [queue.info for queue in config.queues]
        self._names = [info.name for info in self._infos]
        self._timeout = timeout
        self._limit = config.contract.limit_for(self._infos)
        self._follows = follows
        self._lock = threading.Lock()
        #: When the last heartbeat began, and the `concurrency_of` of the queues then.
        self._seen_at, self._numbers = -inf, dict[str, int]()
        #: The queues that were deactivated or dropped since the start.
        self._ended_queues: set[str] = set()
        #: Whether messages that were fired ahead are in nobody's hands just now.
        self._gives_back = False
        #: The error that ended the pool early, if one did.
        self.error: BaseException | None = None
        self.ended = threading.Event()
        self._stopped = False
        self._process = os.getpid()
        self.credit = Credit(config.max_in_flight, self._credit_changed)
        #: None until the pool is registered with its queues.
        self._workers: Workers | None = None
        self._breaker: PoolBreaker | None = None
        self._transactions: Transactions | None = None
        self._side_tasks: TaskThread | None = None
        #: When the time that `stop` gives the handlers is over; -inf before `stop`.
        self._stop_at = -inf
        # What has begun is ended in reverse order, even if a later step fails.
        with ExitStack() as ends:
            self._begin(ends, count)
            self._ends = ends.pop_all()

    def _begin(self, ends: ExitStack, count: Callable[[Counter[str]], None]) -> None:
        # Stopped last: a task may take long, and messages must not wait for it.
        ends.callback(self._stop_side_tasks)
        store, config = self._store, self._config
        catalog, contract = store.catalog, config.contract
        told = speaking(name_of(contract.handler).rpartition("<locals>.")[2])
        made = f"pool:{told}@{of_process()}"
        consumer = start_again(catalog, check_consumer(config.name or made), browses=config.browse)
        self.name = consumer.name
        self._presence = Presence(
            catalog,
            consumer,
            [info.id for info in self._infos],
            lambda _: config.precedes and self._is_interested(),
            priority=config.priority,
            claim=config.claim,
            at_first=config.precedes,
            saw=self._saw,
        )
        ends.callback(self._presence.leave)
        dispatchers: list[QueueDispatcher] = []
        ends.callback(lambda: close_dispatcher(*dispatchers))
        for queue in config.queues:
            dispatchers.append(open_dispatcher(catalog, queue.info, config.magazine_of(queue)))
        self._breaker = self._start_breaker(consumer, dispatchers)
        if self._breaker is not None:
            ends.callback(self._breaker.stop)
        ends.callback(self._flush_timings, at_once=True)
        if contract.transactional:
            self._transactions = Transactions(catalog, contract.handler, contract.on_none)
            ends.callback(self._transactions.close)
        held = HeldBytes(config.max_bytes, lambda: self.concurrency)
        gate = None if self._breaker is None else self._breaker.gate
        output = None if config.output is None else Output(config.output.info)
        if config.browse and contract.on_none is None:
            # A browser takes no messages, so its handler decides nothing.
            contract = replace(contract, on_none=DELETE)
        self._sources = {
            dispatcher: self._source_of(queue, consumer, dispatcher, held)
            for dispatcher, queue in zip(dispatchers, config.queues, strict=True)
        }
        ends.callback(self._give_back)
        context = WorkerContext(
            name=consumer.name,
            config=config,
            sources=self._sources,
            runner=HandlerRunner(contract, gate=gate, output=output),
            credit=self.credit,
            held=held,
            transactions=self._transactions,
            count=count,
            fail=self._fail,
            ended=self._ended_queues,
            end_queue=self._end_queue,
        )
        self._watcher = Loop("pool watcher", self._watch, every=min(self._timeout / 4, 1.0))
        self._workers = Workers(context)
        # The watcher may be reloading messages, and the caller may close the store next.
        ends.callback(lambda: self._watcher.stop(self._left(TASK_SECONDS)))
        ends.callback(self.ended.set)
        ends.callback(lambda: self.workers.stop(self._left))
        self._watcher.start()
        self.workers.increase(config.workers)
        self._say(f"begins (concurrency {self.concurrency})")
        if config.side_tasks:
            self._side_tasks = background.background_tasks(
                catalog,
                store.storage,
                self._names,
                tasks=config.side_tasks,
                quiet=lambda: min(dispatcher.quiet_at for dispatcher in dispatchers),
            )
            self._side_tasks.start()

    @property
    def workers(self) -> Workers:
        """The workers."""
        assert self._workers is not None
        return self._workers

    @property
    def is_stopped(self) -> bool:
        """Whether it has ended, or is that of the process from which this one was forked."""
        return self._stopped or self._process != os.getpid()

    @property
    def concurrency(self) -> int:
        """The number of workers; 0 before they were started, and after `stop`."""
        return 0 if self._workers is None else len(self._workers)

    @property
    def state(self) -> str:
        """Which of its queues are paused, and what ended it, as the end of a sentence."""
        paused = f", {', '.join(self.paused_queues)} paused" if self.paused_queues else ""
        return paused + (f", ended by {self.error!r}" if self.error is not None else "")

    def wait(self, asked: threading.Event) -> None:
        """Wait until the pool is *asked* to end, or has failed."""
        while not (self.ended.is_set() or asked.wait(_LOOK_SECONDS)):
            pass

    def set_paused(self, paused: bool) -> None:
        """Fire no more messages, or fire them again."""
        self.workers.set_suspended(SuspendReason.FLOW_CONTROL, paused)

    def drain(self, seconds: float | None) -> bool:
        """Wait until no message is left, or *seconds* are over; return whether none is left."""
        end = None if seconds is None else time.monotonic() + seconds
        # A paused queue looks empty, until a heartbeat has seen it.
        since = time.monotonic()
        self._presence.hurry()
        self.workers.check_queues()
        warned = False
        while not self._is_idle(since):
            check()
            warned = warned or self._warn_of_rest()
            if self.ended.wait(0.01) or (end is not None and time.monotonic() > end):
                return self._is_idle(since)
        return True

    def stop(self, seconds: float) -> None:
        """Stop the workers; after *seconds*, reload what they have not finished."""
        # A call by a signal handler during another call only changes how long that one waits.
        is_within, self._stop_at = self._stop_at != -inf, time.monotonic() + seconds
        if is_within:
            return
        try:
            self._ends.close()
        finally:
            self._stopped = True
            FAILURES.flush(*self._names, catalog=self._store.catalog.url)
            self._say("ends")

    def _left(self, least: float = 0.0) -> float:
        """Return the seconds that are left for what is stopped, *least* or more."""
        return max(self._stop_at - time.monotonic(), least)

    def _stop_side_tasks(self) -> None:
        if self._side_tasks is not None:
            self._side_tasks.stop(self._left(TASK_SECONDS))

    def _say(self, what: str) -> None:
        queue = ", ".join(self._names)
        fields = {"consumer": self.name, "queue": queue, "workers": self.concurrency}
        shown = listed(self._names, quoted=True)
        _log.info("queue %s: the pool of consumer %s %s", shown, self.name, what, extra=fields)

    def _flush_timings(self, *, at_once: bool = False) -> None:
        catalog = self._store.catalog
        catalog.timings.flush(catalog.write, at_once=at_once)

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
            config.breaker.name or name_for(self._names),
            consumer.name,
            len(dispatchers),
            changed,
        )

    def _source_of(
        self, queue: Queue, consumer: Consumer, dispatcher: QueueDispatcher, held: HeldBytes
    ) -> MessageSource:
        config, read = self._config, self._config.contract.read
        on_available = dispatcher.manager.notify_arrival
        if config.browse:
            return BrowsingSource(queue, consumer, read, config.demand, on_available, held)
        return AcquiringSource(
            queue,
            consumer,
            read,
            config.demand,
            prefetch=config.may_prefetch,
            on_available=on_available,
            held=held,
            retry=config.contract.retry,
            breaker=self._breaker,
            output=config.output,
        )

    def _is_interested(self) -> bool:
        """Whether the pool wants messages; a short lack of credit does not count."""
        pressure = self._config.pressure
        pressed = pressure is not None and pressure.applied
        stopped = self._breaker is not None and self._breaker.gate.stopped
        suspended = pressed or stopped or not self.concurrency
        suspended = suspended or SuspendReason.FLOW_CONTROL in self.workers.suspended
        return not suspended and self.credit.missing_for() < interests.BEAT_SECONDS

    @property
    def paused_queues(self) -> list[str]:
        """The queues that a person or their setting has paused, as of the last heartbeat."""
        return sorted({info.name for info in self._in_use if self._numbers.get(info.name) == 0})

    def _saw(self, at: float, seen: interests.Seen) -> None:
        """Follow what a heartbeat has seen of the queues."""
        if self._workers is None:
            return
        if seen.quiet:
            for dispatcher in self._sources:
                dispatcher.quiet_at = at
        try:
            numbers = {row.name: concurrency_of(row) for row in seen.queues}
        except IgnisError as error:
            self._fail(error)
            return
        for info in self._in_use:
            if info.name not in numbers:
                self._end_queue(info.name, dropped(info))
        if numbers != self._numbers and not self._config.browse:
            if self.paused_queues:
                # What a worker found empty was perhaps only paused.
                self._workers.check_queues()
            self._numbers = numbers
            self._watcher.wake()
        self._seen_at = at

    def _follow_settings(self) -> None:
        """Follow the queues' `concurrency`."""
        # Where a queue is paused, the others keep their workers.
        running = [number for info in self._in_use if (number := self._numbers.get(info.name))]
        if self._follows() and running:
            more = min(running) - self.concurrency
            (self.workers.increase if more > 0 else self.workers.decrease)(abs(more))

    def _warn_of_rest(self) -> bool:
        """Warn if `drain` waits for something that does not end by itself; return whether so."""
        names = ", ".join(map(repr, self.paused_queues))
        if names:
            _log.warning(
                "drain waits, since queue %s is paused and may have messages; let it go on with "
                "ignis resume, with queue.admin.resume(), or with its setting concurrency above 0",
                names,
            )
        elif not self.concurrency and not self.ended.is_set():
            _log.warning(
                "drain waits, since the pool of queue %s has no workers; add some with "
                "ConsumerPool.increase()",
                ", ".join(map(repr, self._names)),
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
            for dispatcher, source in self._sources.items():
                if self._breaker is not None and dispatcher.manager.queue == name:
                    self._breaker.found_nothing(source, lost=True)

    def _give_back(self) -> None:
        """Reload the messages that were fired ahead."""
        self._gives_back = True
        try:
            for source in self._sources.values():
                source.give_back()
        finally:
            self._gives_back = False

    def _is_idle(self, since: float) -> bool:
        if self._seen_at < since:
            return False
        arrivals = self.workers.arrivals
        # A paused queue gives no messages, but it may have some.
        is_idle = not self.paused_queues and self.workers.found_nothing and self.credit.used == 0
        # A consumer that could not take messages has found nothing either.
        is_idle = is_idle and not self._is_hindered
        # Between the two looks, messages may have gone back, or a batch may have been settled,
        # which frees others of its groups.
        return is_idle and not self._gives_back and self.workers.arrivals == arrivals

    @property
    def _is_hindered(self) -> bool:
        """Whether an outage, limits or a breaker keep messages, or suspects need empty hands."""
        return any(
            source.trouble.error is not None or source.refused_for is not None
            for dispatcher, source in self._sources.items()
            if dispatcher.manager.queue not in self._ended_queues
        )

    def _credit_changed(self, left: bool) -> None:
        self.workers.set_suspended(SuspendReason.CREDIT, not left)

    def _fail(self, error: BaseException) -> None:
        """End all workers, because of an error that the pool cannot survive."""
        if self.error is None:
            self.error = error
            names = ", ".join(map(repr, self._names))
            _log.error("pool of queue %s ended: %s", names, error)
        self.workers.end()
        self.ended.set()

    def _watch(self) -> None:
        """Time out late calls, settle and reload what waits, and notice a second pool."""
        if self.ended.is_set():
            return
        for worker in self.workers.at_work:
            worker.time_out_after(self._timeout, self._limit)
        try:
            self._presence.check()
            # The transaction of a handler may have the database; only this thread can end it.
            is_free = self._transactions is None or not self._transactions.are_open
            if is_free:
                self._flush_timings()
            # A slow call of a transactional pool has its transaction open.
            if self._transactions is None and self._config.output is None:
                for worker in self.workers.at_work:
                    worker.settle_early()
            if is_free and (not self._is_interested() or self.paused_queues):
                self._give_back()
            # Last, since there may be no thread for a worker.
            self._follow_settings()
        except Unavailable:
            return
        except IgnisError as error:
            self._fail(error)
