"""The workers of a pool: added and removed, suspended and resumed together."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

from queue_core.consumers.consumer import SuspendReason
from queue_core.pool.worker import Worker, WorkerContext
from queue_core.values.settings import MAX_CONCURRENCY


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
        self._suspended: set[SuspendReason] = set()

    def __len__(self) -> int:
        return len(self._workers)

    def increase(self, by: int) -> int:
        """Add up to *by* workers, to 100 in all; return their new number, 0 after `stop`."""
        with self._scaling:
            with self._lock:
                room = (
                    0 if self._context.stopping.is_set() else MAX_CONCURRENCY - len(self._workers)
                )
                more = max(min(by, room), 0)
                first = self._started + 1
                self._started += more
                added = [Worker(self._context, f"worker {first + n}") for n in range(more)]
                self._workers += added
                suspended = set(self._suspended)
            for worker in added:
                for reason in suspended:
                    _set(worker, reason, suspended=True)
                worker.start()
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
            (self._suspended.add if suspended else self._suspended.discard)(reason)
            workers = list(self._workers)
        for worker in workers:
            _set(worker, reason, suspended=suspended)

    def end(self) -> None:
        """Have all workers take no more messages."""
        self._context.stopping.set()
        for worker in self._current():
            worker.end()

    def stop(self, seconds: float) -> None:
        """Remove all workers; after *seconds*, cancel the batches that are not finished."""
        with self._scaling, self._lock:
            self._context.stopping.set()
            workers, self._workers, self._leaving = self._workers + self._leaving, [], []
        for worker in workers:
            worker.end()
        end = time.monotonic() + seconds
        for worker in workers:
            while not worker.join(end - time.monotonic()) and time.monotonic() < end:
                continue
        # First all of them: the transaction of one may keep the settlement of another waiting.
        with ExitStack() as settlements:
            # All of them, although one may fail: nobody else puts their messages back.
            for cancelled in [worker for worker in workers if worker.cancel()]:
                settlements.callback(cancelled.settle)

    def time_out_after(self, seconds: float, limit: str) -> None:
        """Time out calls of the handler that take longer than *seconds*."""
        for worker in [*self._current(), *self._leaving]:
            worker.time_out_after(seconds, limit)

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


def _set(worker: Worker, reason: SuspendReason, *, suspended: bool) -> None:
    for consumer in worker.consumers:
        if suspended:
            consumer.suspend(reason)
        else:
            consumer.resume(reason)
