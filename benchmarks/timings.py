"""What it costs a pool to measure how long messages wait and handlers take.

A pool handles messages while the processor time of what measures is added up, by the clock of each
thread: counting outcomes and their times, adding them in memory, and writing them to the catalog.
Two looks at the clock around each call, 0.1 µs, are not in it. The rates of pools with and without
measurement differ by less than their noise. A pool that ends soon pays most for its last writing,
so each works for some seconds. Run it: python -m benchmarks.timings [rounds] [messages]
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import pyarrow as pa

from queue_core import ConsumerPool, Store, batch_handler
from queue_core.catalog.records.timings import Timings
from queue_core.handling.took import measure
from queue_core.pool import outcome_buffer
from queue_core.values.histogram import Measured

SCHEMA = pa.schema([("n", pa.int64())])


@batch_handler
def batches(batch: pa.RecordBatch) -> list[bool]:
    """Finish all messages of a batch."""
    return [True] * batch.num_rows


def single(_: dict[str, int]) -> bool:
    """Finish a message."""
    return True


class Meter:
    """Adds up the processor time of calls."""

    def __init__(self) -> None:
        self.seconds = 0.0
        #: What the clock itself adds to each call.
        self._own = 0.0
        nothing = self.metered(lambda: None)
        for _ in range(10_000):
            nothing()
        self._own, self.seconds = self.seconds / 10_000, 0.0

    def metered(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that adds its time; functions called by others must not be metered."""

        def call(*arguments: Any, **options: Any) -> Any:
            began = time.thread_time()
            try:
                return work(*arguments, **options)
            finally:
                self.seconds += time.thread_time() - began - self._own

        return call

    @contextmanager
    def of_measurement(self) -> Iterator[None]:
        """Meter all that measures."""
        with ExitStack() as patches:
            for place, name, work in (
                (outcome_buffer, "measure", measure),
                (Timings, "add", Timings.add),
                (Timings, "flush", Timings.flush),
                (Measured, "of_one", Measured.of_one),
            ):
                patches.enter_context(mock.patch.object(place, name, self.metered(work)))
            yield


def share(store: Store, name: str, handler: object, messages: int) -> float:
    """Return which part of a pool's processor time measures."""
    queue = store.create_queue(name, SCHEMA)
    queue.load(pa.table({"n": range(messages)}))
    meter, began = Meter(), time.process_time()
    with (
        meter.of_measurement(),
        ConsumerPool(store, name, handler, concurrency=2, batch=100, tasks=()) as pool,
    ):
        pool.drain()
    return meter.seconds / (time.process_time() - began)


def main(rounds: int, messages: int) -> None:
    """Print the part of each round's time, and the median."""
    for title, handler in (("single", single), ("batches of 100", batches)):
        with tempfile.TemporaryDirectory() as folder, Store.open(folder) as store:
            share(store, "warm", handler, messages)
            found = [share(store, f"queue{n}", handler, messages) for n in range(rounds)]
            print(
                f"{title}: {statistics.median(found):.2%} of the pool's time measures", flush=True
            )


if __name__ == "__main__":
    given = [int(each) for each in sys.argv[1:]]
    main(*(given + [5, 500_000][len(given) :]))
