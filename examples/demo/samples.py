"""Sample the queues while queries run, for the progress bars and the pictures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from queue_core import Queue

INTERVAL = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The messages of a queue, and the progress of the next queue, at one moment."""

    #: Seconds since the sampler began.
    seconds: float
    loaded: int
    #: Waiting in main, and in the sideline.
    waiting: int
    sideline: int
    #: In flight from either magazine.
    in_flight: int
    deleted: int
    expired: int
    #: Moves to the sideline.
    sidelined: int
    #: Messages that the next queue has finished.
    passed_on: int

    @property
    def settled(self) -> int:
        """Number of messages with an outcome."""
        return self.deleted + self.sidelined


class Sampler:
    """Samples a queue and the next queue in a thread, until the block ends."""

    def __init__(
        self, queue: Queue, show: Callable[[Sample], None], next_queue: Queue | None = None
    ) -> None:
        self.samples: list[Sample] = []
        self._queue = queue
        self._next = next_queue
        self._show = show
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def __enter__(self) -> Sampler:
        self._begin = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        self.take()

    def _run(self) -> None:
        while not self._ended.wait(INTERVAL):
            self.take()

    def take(self) -> Sample:
        """Take one sample now."""
        shards = self._queue.metadata()
        main = shards.filter(pc.equal(shards["magazine"], "main"))
        sideline = shards.filter(pc.equal(shards["magazine"], "sideline"))
        sample = Sample(
            seconds=time.monotonic() - self._begin,
            sideline=_sum(sideline, "waiting"),
            passed_on=_sum(self._next.metadata(), "deleted") if self._next else 0,
            **{column: _sum(main, column) for column in ("loaded", "waiting", "sidelined")},
            **{column: _sum(shards, column) for column in ("in_flight", "deleted", "expired")},
        )
        self.samples.append(sample)
        self._show(sample)
        return sample


def _sum(counters: pa.Table, column: str) -> int:
    return int(pc.sum(counters[column]).as_py())
