"""`Worker`: a thread of a pool, which handles one batch at a time.

The thread is woken when one of its consumers is told of work, and visits those who are: each pulls
a batch, which is handled, and then it is the next one's turn, until nobody is given anything. A
call of the handler that takes too long is given up: another thread takes the worker's place and
goes on with the rest of the batch. Python code that goes on for ever is interrupted; what blocks
ends when it returns, and its thread with it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from queue_core.consumers.consumer import QueueConsumer
from queue_core.consumers.trace import Step, say
from queue_core.errors import Damaged, Unavailable
from queue_core.handlers.calls import Superseded
from queue_core.handlers.deadline import TimedOut
from queue_core.handlers.handler import Handling
from queue_core.pool.batch import RETRY_SECONDS, Batch, Handled
from queue_core.pool.credit import Credit
from queue_core.pool.dispatcher import QueueDispatcher
from queue_core.pool.pressure import Pressure
from queue_core.pool.ready_set import Station
from queue_core.pool.source import MessageSource


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerContext:
    """What all workers of a pool do."""

    name: str
    #: Where each queue's messages come from.
    sources: Mapping[QueueDispatcher, MessageSource]
    handling: Handling
    batch: int
    priority: int | None
    #: Whether consumers of other processes may go before these.
    yields: bool
    acquires: bool
    selective: bool
    credit: Credit
    pressure: Pressure | None
    count: Callable[[Counter[str]], None]
    fail: Callable[[BaseException], None]


class Worker:
    """A place in a pool: a consumer of each queue, and the thread that works for them."""

    def __init__(self, duty: WorkerContext, name: str) -> None:
        self.name = name
        self.ending = threading.Event()
        #: The batch in hand, and those before that are not settled.
        self.work: Batch | None = None
        self._handled = Handled(self._settled, at_once=duty.credit.limit is not None)
        self._duty = duty
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        #: The call that was seen to be made last, and since when.
        self._seen: tuple[Batch | None, int] = (None, 0)
        self._since = 0.0
        self._connection: Station[Station[Station[QueueConsumer]]] = Station(
            name,
            Step.CONNECTION_SCHEDULES_ITSELF,
            Step.CONNECTION_VISITS_SESSION,
            self._wake.set,
        )
        self._session: Station[Station[QueueConsumer]] = Station(
            f"{duty.name} in {name}",
            Step.SESSION_NOTIFIES_CONNECTION,
            Step.SESSION_VISITS_TARGET,
            lambda: self._connection.notify_work(self._session),
        )
        self._target: Station[QueueConsumer] = Station(
            f"target of {name}",
            Step.TARGET_NOTIFIES_SESSION,
            Step.TARGET_VISITS_CONSUMER,
            lambda: self._session.notify_work(self._target),
        )
        self.consumers = {
            QueueConsumer(
                f"{name} of {desk.manager.queue}",
                taking.take,
                self._target.notify_work,
                priority=duty.priority,
                acquires=duty.acquires,
                selective=duty.selective,
            ): desk
            for desk, taking in duty.sources.items()
        }

    def start(self) -> None:
        """Take part."""
        for consumer, desk in self.consumers.items():
            if self._duty.pressure is not None:
                self._duty.pressure.watch(consumer)
            consumer.join(desk.manager)
        self._begin()

    def end(self) -> None:
        """Take nothing more; what is in hand is finished."""
        for consumer in self.consumers:
            consumer.leave()
        self.ending.set()
        self._wake.set()

    @property
    def is_working(self) -> bool:
        """Whether it has not ended yet."""
        return self._thread is not None and self._thread.is_alive()

    def join(self, seconds: float) -> bool:
        """Wait until what is in hand is finished; False when that takes longer."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return True
        thread.join(max(seconds, 0.0))
        # Another one may have taken its place meanwhile.
        return not thread.is_alive() and self._thread is thread

    def abandon(self) -> None:
        """Give up the batch in hand: what was not handled goes back to its place."""
        work = self.work
        if work is not None and work.judging.abandon():
            self._thread = None
            self._handled.add(work)
            self._handled.settle(self.ending)

    def give_up_after(self, seconds: float) -> None:
        """Give up the call that is being made if it has been for so long, by looking again."""
        work = self.work
        seen = (work, work.judging.done if work is not None else 0)
        if work is None or seen != self._seen:
            self._seen, self._since = seen, time.monotonic()
        elif time.monotonic() - self._since > seconds:
            late = self._thread
            if work.judging.give_up(seen[1], f"not done after {seconds:g} s"):
                self._begin()
                _interrupt(late)

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            # What a thread has left that was given up.
            self._finish()
            self._handled.settle(self.ending)
            while not self.ending.is_set():
                self._wake.wait()
                self._wake.clear()
                say(Step.SCHEDULER_BEGINS_WORK, self.name)
                for session in self._connection.visit():
                    for target in session.visit():
                        for consumer in target.visit():
                            self._serve(consumer)
                self._handled.settle(self.ending)
        except (Superseded, TimedOut):
            # Another thread goes on.
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, the pool's owner must hear of it
            if self._thread is threading.current_thread():
                self._duty.fail(error)

    def _serve(self, consumer: QueueConsumer) -> None:
        """Let a consumer pull once, and handle what it is given."""
        credit, desk = self._duty.credit, self.consumers[consumer]
        if self.ending.is_set():
            return
        granted = credit.reserve(self._duty.batch)
        if not granted:
            # It is told again when there is credit.
            return
        try:
            batch = consumer.pull(granted)
        except (Unavailable, Damaged):
            # Damaged messages are set apart; as to the rest, whoever is told next may have luck.
            credit.give_back(granted)
            self.ending.wait(RETRY_SECONDS)
            return
        credit.give_back(granted - (0 if batch is None else batch.num_rows))
        taking = self._duty.sources[desk]
        if batch is None:
            seconds = taking.held_back() if self._duty.yields else None
            if seconds is not None:
                desk.look_in(seconds)
            return
        self._target.again(consumer)
        self.work = Batch(batch, taking, self._duty.handling)
        self._finish()

    def _finish(self) -> None:
        if self.work is not None:
            self.work.do()
            self._handled.add(self.work)
            self.work = None
            if self._handled.is_due:
                self._handled.settle(self.ending)

    def _settled(self, outcomes: Counter[str]) -> None:
        self._duty.count(outcomes)
        self._duty.credit.give_back(outcomes.total())


def _interrupt(thread: threading.Thread | None) -> None:
    """Raise `TimedOut` in a thread, as soon as it runs Python code."""
    if thread is not None and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(TimedOut)
        )
