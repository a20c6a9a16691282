"""`Worker`: a thread of a pool, which handles one batch at a time; and `Workers`: all of a pool.

A notification of one of its consumers wakes the thread. It visits the ready consumers in turn: each
pulls a batch, which is handled before the next consumer's turn, until no consumer gets any message.
If a call of the handler takes too long, another thread takes over the worker. It continues with the
rest of the batch, and then with the ready consumers. The late thread is interrupted if it runs
Python code of the handler; if it blocks, or is in a call of ignis, it ends when that call returns.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Set
from contextlib import ExitStack
from contextvars import ContextVar
from dataclasses import dataclass, field

from queue_core.consumers.consumer import QueueConsumer, SuspendReason
from queue_core.consumers.trace import Step, record
from queue_core.errors import IgnisError, NoSuchQueue, QueueDeactivated
from queue_core.handling.batch_call import BatchCall
from queue_core.handling.calls import Superseded
from queue_core.handling.handler import HandlerRunner
from queue_core.handling.results import refusal
from queue_core.handling.traces import trace_of_thread
from queue_core.pool.batch import PoolBatch
from queue_core.pool.config import PoolConfig
from queue_core.pool.dispatcher import QueueDispatcher
from queue_core.pool.held import Credit, HeldBatch, HeldBytes
from queue_core.pool.outage import PASSING
from queue_core.pool.outcome_buffer import OutcomeBuffer
from queue_core.pool.ready_set import ReadySet
from queue_core.pool.source import MessageSource
from queue_core.pool.timings import RETRY_SECONDS
from queue_core.pool.transactions import Transactions
from queue_core.support.interruption import Interruptible, TimedOut, bind
from queue_core.values.settings import MAX_CONCURRENCY

_log = logging.getLogger(__name__)

#: The arguments of the pool for which this thread is a worker, or adds or removes workers; None
#: elsewhere. The pool can end only after that.
working_for: ContextVar[PoolConfig | None] = ContextVar("working_for", default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What all workers of a pool share."""

    #: The pool's consumer, by name.
    name: str
    config: PoolConfig
    sources: Mapping[QueueDispatcher, MessageSource]
    runner: HandlerRunner
    credit: Credit
    held: HeldBytes
    #: The transactions of the handler, if it has some.
    transactions: Transactions | None = None
    #: Called with the number of messages per outcome after each settlement.
    count: Callable[[Counter[str]], None]
    #: Called with an error that the pool cannot survive.
    fail: Callable[[BaseException], None]
    #: The names of queues that were deactivated or dropped, and what is called with such an error.
    ended: Set[str]
    end_queue: Callable[[str, IgnisError], None]
    #: Set when the pool ends: what cannot be settled then is left to others.
    stopping: threading.Event = field(default_factory=threading.Event)


class Worker:
    """A position in a pool: a consumer of each queue, and the thread that works for them."""

    def __init__(self, context: WorkerContext, name: str) -> None:
        self.name = name
        self.ending = threading.Event()
        #: The batch that is being handled, and the consumer that has pulled it.
        self.batch: PoolBatch | None = None
        self._serves: QueueConsumer[HeldBatch] | None = None
        self._outcomes = OutcomeBuffer(self._settled, at_once=context.credit.limit is not None)
        self._context = context
        self._wake = threading.Event()
        self._is_awake = False
        self._thread: threading.Thread | None = None
        #: Held while the batch goes from one thread to another, or another one settles for it.
        self._taking_over = threading.RLock()
        #: The calls that the thread makes.
        self._calls = Interruptible()
        #: The call that was in progress at the last check, and when a check first saw it.
        self._seen: tuple[PoolBatch | None, int] = (None, 0)
        self._since = 0.0
        self._ready: ReadySet[QueueConsumer[HeldBatch]] = ReadySet(
            name, context.name, self._wake.set
        )
        self.consumers: dict[QueueConsumer[HeldBatch], QueueDispatcher] = {
            QueueConsumer(
                f"{name} of {dispatcher.manager.queue}",
                source.take,
                self._ready.notify_work,
                priority=context.config.priority,
                acquires=not context.config.browse,
                selective=context.config.selective,
                busy=self._busy,
            ): dispatcher
            for dispatcher, source in context.sources.items()
        }

    def start(self) -> None:
        """Register the consumers, and start the thread."""
        pressure = self._context.config.pressure
        for consumer, dispatcher in self.consumers.items():
            if pressure is not None:
                pressure.watch(consumer)
            consumer.join(dispatcher.manager)
        self._start_thread()

    def end(self) -> None:
        """Take no more messages, and end after the current batch."""
        for consumer in self.consumers:
            consumer.leave()
        self.ending.set()
        self._wake.set()

    @property
    def is_working(self) -> bool:
        """Whether the thread has not ended yet."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait until the worker has ended; False when that takes longer than *seconds*."""
        with self._taking_over:
            thread = self._thread
        if thread is None or thread.ident is None or thread is threading.current_thread():
            return True
        thread.join(max(seconds, 0.0))
        # Another thread may have taken over meanwhile.
        return not thread.is_alive() and self._thread is thread

    def cancel(self) -> bool:
        """Cancel the current batch, and let `settle` reload the rest of it; False without one."""
        with self._taking_over:
            batch = self.batch
            if batch is None or not batch.calls.cancel():
                return False
            self._abort(self._thread)
            self._thread = None
            self._outcomes.add(batch)
            return True

    def settle(self) -> None:
        """Settle the outcomes of a batch that was cancelled."""
        self._outcomes.settle(self._context.stopping)

    def settle_early(self) -> None:
        """Try to settle outcomes that would wait for a call in progress; raises `Unavailable`."""
        with self._taking_over:
            # While it has a batch, its thread leaves them alone; without a thread, `stop` has them.
            if self.batch is not None and self._thread is not None and self._outcomes.is_due:
                self._outcomes.settle(None)

    def time_out_after(self, seconds: float, limit: str) -> None:
        """Time out the call in progress after *seconds*, the limit of a name."""
        with self._taking_over:
            if self._thread is not None and self._thread.ident is None:
                # There was no thread that could take over.
                self._start_thread()
        batch = self.batch
        seen = (batch, batch.calls.completed if batch is not None else 0)
        if batch is None or seen != self._seen or batch.waits:
            self._seen, self._since = seen, time.monotonic()
        elif time.monotonic() - self._since > seconds:
            reason = f"not done after {seconds:g} s"
            with self._taking_over:
                at = None if self._thread is None else trace_of_thread(self._thread)
                if not batch.calls.time_out(seen[1], reason, at):
                    return
                if batch.flows is not None:
                    # Other messages of its value would be late too, and keep the rest waiting.
                    batch.calls.cancel()
                # The late thread has consumed the wake-up of its consumers.
                self._wake.set()
                self._abort(self._thread)
                self._calls.interrupt(TimedOut(reason))
                self._start_thread()
            queue, messages = batch.source.trouble.queue, batch.messages
            at_once = messages.num_rows if isinstance(batch.calls, BatchCall) else 1
            row = 0 if at_once > 1 else min(seen[1], messages.num_rows - 1)
            message = messages.column("_message_id")[row].as_py()
            _log.warning(
                "queue %r: the call of the handler for message %d%s took longer than %g s, the "
                "limit of %s; another thread goes on for %s of %s",
                queue,
                message,
                f" and {at_once - 1} others" if at_once > 1 else "",
                seconds,
                limit,
                self.name,
                self._context.name,
                extra={"queue": queue, "message_id": message, "limit": limit, "seconds": seconds},
            )

    def _busy(self) -> int:
        """Return 0 with nothing to do, 2 in a call, which may take long, and otherwise 1."""
        if self.batch is not None:
            return 2
        return int(self._is_awake or self._wake.is_set())

    def _abort(self, late: threading.Thread | None) -> None:
        """End the transaction of a late call: its locks would keep others waiting."""
        if self._context.transactions is not None and late is not None:
            self._context.transactions.abort(late)

    def _start_thread(self) -> None:
        with self._taking_over:
            self._calls = Interruptible()
            self._thread = threading.Thread(
                target=self._run, args=(self._calls,), name=self.name, daemon=True
            )
            self._thread.start()

    def _run(self, calls: Interruptible) -> None:
        bind(calls)
        working_for.set(self._context.config)
        try:
            # Finish the batch of a thread that this one took over from.
            self._finish()
            self._outcomes.settle(self._context.stopping)
            while not self.ending.is_set():
                self._is_awake = False
                self._wake.wait()
                self._is_awake = True
                self._wake.clear()
                record(Step.SCHEDULER_BEGINS_WORK, self.name)
                for consumer in self._ready.visit():
                    self._serve(consumer)
                self._outcomes.settle(self._context.stopping)
        except Superseded:
            # Another thread continues.
            return
        except BaseException as error:  # noqa: BLE001 - the pool's owner must hear of any error
            # A handler may even call `sys.exit`, which would end this thread in silence.
            if self._thread is threading.current_thread():
                self._context.fail(error)

    def _serve(self, consumer: QueueConsumer[HeldBatch]) -> None:
        """Have a consumer pull once, and handle its batch."""
        credit, dispatcher = self._context.credit, self.consumers[consumer]
        source = self._context.sources[dispatcher]
        if self.ending.is_set():
            return
        granted = credit.reserve(self._context.config.batch)
        if not granted:
            # The consumer is notified again when there is credit.
            return
        try:
            taken = consumer.pull(granted)
            yields = taken is None and self._context.config.yields
            held_back = source.held_back() if yields else None
        except (NoSuchQueue, QueueDeactivated) as error:
            credit.give_back(granted)
            consumer.leave()
            self._context.end_queue(dispatcher.manager.queue, error)
            return
        except PASSING:
            # Damaged messages are quarantined; the next consumer is notified of the others.
            credit.give_back(granted)
            self.ending.wait(RETRY_SECONDS)
            return
        except Exception:
            # It ends the pool. What was handled before is done, and must not be handled again.
            self._outcomes.settle(self._context.stopping)
            raise
        credit.give_back(granted - (0 if taken is None else len(taken)))
        if taken is None:
            if self._outcomes.is_due:
                # Suspects may wait for these outcomes, and notifications may follow without end.
                self._outcomes.settle(self._context.stopping)
            for seconds in (held_back, source.refused_for):
                if seconds is not None:
                    dispatcher.look_in(seconds)
            return
        self._serves = consumer
        context = self._context
        self.batch = PoolBatch(taken, source, context.runner, context.transactions)
        if self.ending.is_set() and not context.config.browse:
            # The pool stopped during the firing, so nobody would end a late call. A browser still
            # shows its messages, because it would not see them again.
            self.batch.calls.cancel()
            source.give_back()
        self._finish()

    def _finish(self) -> None:
        if self.batch is not None:
            self.batch.handle()
            with self._taking_over:
                if self._thread is not threading.current_thread():
                    # The pool has stopped, and settles it.
                    raise Superseded
                self._outcomes.add(self.batch)
                self.batch = None
            if self._serves is not None and self._serves.goes_on():
                self._ready.put_back(self._serves)
            refused = self._context.runner.refusal
            # During a slow call, outcomes of large messages would take the room of other workers.
            is_large = self._outcomes.bytes > self._context.held.few
            if refused is not None or is_large or self._outcomes.is_due:
                self._outcomes.settle(self._context.stopping)
            if refused is not None:
                raise refusal(refused, [each.manager.queue for each in self._context.sources])

    def _settled(self, outcomes: Counter[str], bytes: int) -> None:
        self._context.count(outcomes)
        self._context.held.give_back(bytes)
        self._context.credit.give_back(outcomes.total())


class Workers:
    """The workers of one pool. Thread-safe."""

    def __init__(self, context: WorkerContext) -> None:
        self._context = context
        self._lock = threading.Lock()
        #: Held while workers are added or removed, so that each of them was started before it ends.
        self._scaling = threading.Lock()
        self._workers: list[Worker] = []
        #: Removed workers, which finish their current batch.
        self._leaving: list[Worker] = []
        #: How many workers there have ever been; the next one gets this number.
        self._started = 0
        #: Why all of them are suspended.
        self.suspended: set[SuspendReason] = set()

    def __len__(self) -> int:
        return len(self._workers)

    def increase(self, by: int) -> int:
        """Add up to *by* workers, to 100 in all; return their new number, 0 after `stop`."""
        with self._scaling:
            with self._lock:
                room = MAX_CONCURRENCY - len(self._workers)
                more = 0 if self._context.stopping.is_set() else max(min(by, room), 0)
                first = self._started + 1
                self._started += more
                added = [Worker(self._context, f"worker {first + n}") for n in range(more)]
                # Before any of them starts, since all of them share the bytes of the pool.
                self._workers += added
                for worker in added:
                    for reason in self.suspended:
                        self._follow(worker, reason)
            for n, worker in enumerate(added):
                try:
                    worker.start()
                except RuntimeError:
                    # There is no thread for it.
                    for left in added[n:]:
                        self._workers.remove(left)
                        left.end()
                    raise
            return len(self)

    def decrease(self, by: int) -> int:
        """Remove up to *by* workers, which finish their batch; return how many are left."""
        with self._scaling:
            with self._lock:
                left = max(len(self._workers) - max(by, 0), 0)
                removed, self._workers = self._workers[left:], self._workers[:left]
                self._leaving = [worker for worker in self._leaving if worker.is_working] + removed
            for worker in removed:
                worker.end()
            return len(self)

    def set_suspended(self, reason: SuspendReason, suspended: bool) -> None:
        """Suspend all workers, including later ones, for a reason, or resume them."""
        with self._lock:
            (self.suspended.add if suspended else self.suspended.discard)(reason)
            workers = list(self._workers)
        for worker in workers:
            self._follow(worker, reason)

    def end(self) -> None:
        """Have all workers take no more messages."""
        self._context.stopping.set()
        for worker in self._current():
            worker.end()

    def stop(self, left: Callable[[], float]) -> None:
        """Remove all workers; once no seconds are *left*, cancel what is not finished."""
        with self._scaling, self._lock:
            self._context.stopping.set()
            workers, self._workers, self._leaving = self._workers + self._leaving, [], []
        for worker in workers:
            worker.end()
        for worker in workers:
            # In short waits, since a signal handler may shorten the time.
            while not worker.join(min(left(), 0.5)) and left():
                continue
        # Cancel all before any settles: the transaction of one may block another's settlement.
        with ExitStack() as settlements:
            # Settle all, even if one fails: nobody else puts their messages back.
            for cancelled in [worker for worker in workers if worker.cancel()]:
                settlements.callback(cancelled.settle)

    @property
    def at_work(self) -> list[Worker]:
        """All workers, and those that finish their last batch."""
        return [*self._current(), *self._leaving]

    def check_queues(self) -> None:
        """Have a worker check each queue for messages."""
        for dispatcher in self._context.sources:
            dispatcher.manager.notify_arrival()

    @property
    def arrivals(self) -> list[int]:
        """The number of the last arrival in each queue."""
        return [dispatcher.manager.arrival for dispatcher in self._context.sources]

    @property
    def found_nothing(self) -> bool:
        """Whether a worker has found each queue empty since the last arrival."""
        workers = self._current()
        for dispatcher in self._context.sources:
            if dispatcher.manager.queue in self._context.ended:
                continue
            consumers = (
                consumer
                for worker in workers
                for consumer, of in worker.consumers.items()
                if of is dispatcher
            )
            if not any(dispatcher.manager.has_nothing_for(consumer) for consumer in consumers):
                return False
        return True

    def _current(self) -> list[Worker]:
        with self._lock:
            return list(self._workers)

    def _follow(self, worker: Worker, reason: SuspendReason) -> None:
        for consumer in worker.consumers:
            consumer.follow(reason, lambda: reason in self.suspended)
