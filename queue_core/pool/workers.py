"""The crew of a pool: its workers, more or fewer of them, held and released together."""

from __future__ import annotations

import threading
import time

from queue_core.consumers.consumer import Hold
from queue_core.pool.worker import Worker, WorkerContext
from queue_core.settings import MAX_CONCURRENCY


class Workers:
    """Workers of one duty. Safe for threads."""

    def __init__(self, duty: WorkerContext) -> None:
        self._duty = duty
        self._lock = threading.Lock()
        self._workers: list[Worker] = []
        #: Those who only finish what is in their hands.
        self._leaving: list[Worker] = []
        self._numbers = 0
        self._holds: set[Hold] = set()

    def __len__(self) -> int:
        return len(self._workers)

    def grow(self, by: int) -> int:
        """So many more, up to 100 in all; how many there are then."""
        with self._lock:
            more = max(min(by, MAX_CONCURRENCY - len(self._workers)), 0)
            first = self._numbers + 1
            self._numbers += more
            fresh = [Worker(self._duty, f"worker {first + n}") for n in range(more)]
            self._workers += fresh
            holds = set(self._holds)
        for worker in fresh:
            for why in holds:
                _turn(worker, why, held=True)
            worker.start()
        return len(self)

    def shrink(self, by: int) -> int:
        """So many fewer, each of which ends with the batch in its hands; how many are left."""
        with self._lock:
            left = max(len(self._workers) - max(by, 0), 0)
            gone, self._workers = self._workers[left:], self._workers[:left]
            self._leaving = [worker for worker in self._leaving if worker.is_working] + gone
        for worker in gone:
            worker.end()
        return len(self)

    def hold(self, why: Hold, *, held: bool) -> None:
        """None of them wants work any more for this reason; or they do again."""
        with self._lock:
            (self._holds.add if held else self._holds.discard)(why)
            workers = list(self._workers)
        for worker in workers:
            _turn(worker, why, held=held)

    def end(self) -> None:
        """Nobody takes anything more."""
        for worker in self._there():
            worker.end()

    def dismiss(self, seconds: float) -> None:
        """Wait until all have finished; after so many seconds, give up what they work on."""
        with self._lock:
            workers, self._workers, self._leaving = self._workers + self._leaving, [], []
        for worker in workers:
            worker.end()
        end = time.monotonic() + seconds
        for worker in workers:
            while not worker.join(end - time.monotonic()) and time.monotonic() < end:
                continue
            worker.abandon()

    def give_up_after(self, seconds: float) -> None:
        """Give up calls of the handler that have been made for so long."""
        for worker in [*self._there(), *self._leaving]:
            worker.give_up_after(seconds)

    def look(self) -> None:
        """Have somebody look in each queue whether there is work."""
        for desk in self._duty.sources:
            desk.manager.notify_arrival()

    @property
    def has_looked(self) -> bool:
        """Whether in each queue somebody has found nothing since the last arrival."""
        workers = self._there()
        for desk in self._duty.sources:
            own = (c for worker in workers for c, at in worker.consumers.items() if at is desk)
            if not any(desk.manager.has_looked(consumer) for consumer in own):
                return False
        return True

    def _there(self) -> list[Worker]:
        with self._lock:
            return list(self._workers)


def _turn(worker: Worker, why: Hold, *, held: bool) -> None:
    for consumer in worker.consumers:
        if held:
            consumer.hold(why)
        else:
            consumer.release(why)
