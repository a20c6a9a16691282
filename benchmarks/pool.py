"""Measure a `ConsumerPool` whose handler does nothing: throughput, how workers share, and idling.

    python -m benchmarks.pool [--messages 50000] [--postgresql]

`benchmarks.single` measures how soon a message reaches its handler, and the workload `handlers` of
`benchmarks.peers` compares pools with handlers of other queues.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, store_of
from benchmarks.costs import Meter
from queue_core import ConsumerPool, Queue, Store, batch_handler

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
BODY = "x" * 100
BATCH = 100
#: Seconds that an idle pool is watched.
WATCH_SECONDS = 10.0


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=50_000)
    add_catalog(arguments)
    given = arguments.parse_args()
    console = Console()
    with store_of(given) as store:
        console.print(throughput(store, given.messages))
        console.print(shares(store, 100_000))
        queue = store.create_queue(f"idle-{os.getpid()}", SCHEMA)
        console.print(f"an idle pool makes {idle(store, queue):.1f} transactions a second")


def throughput(store: Store, messages: int) -> Table:
    """Return messages per second of pools of several sizes."""
    table = Table(title=f"a handler that does nothing, batches of {BATCH}")
    for column in ("", "messages/s"):
        table.add_column(column, justify="right" if column else "left")
    queue = store.create_queue(f"busy-{os.getpid()}", SCHEMA)
    for name, handler in (("message", lambda message: True), ("batch", batch_handler(accept))):
        for workers in (1, 8, 32):
            rate = pool_rate(store, queue, handler, workers, messages)
            table.add_row(f"{workers} workers, by {name}", f"{rate:,.0f}")
    return table


def accept(batch: pa.RecordBatch) -> pa.Array:
    """Mark all messages as done."""
    return pa.repeat(True, batch.num_rows)


def pool_rate(
    store: Store, queue: Queue, handler: Callable[..., Any], workers: int, messages: int
) -> float:
    """Return messages per second of a pool, from its start until all are settled."""
    queue.load(pa.table({"number": range(messages), "text": [BODY] * messages}, schema=SCHEMA))
    began = time.perf_counter()
    with ConsumerPool(store, queue.name, handler, concurrency=workers, batch=BATCH) as pool:
        if not pool.drain(600) or pool.counts != {"deleted": messages}:
            raise RuntimeError(f"{pool!r} did not handle all: {pool.counts}")
        return messages / (time.perf_counter() - began)


def shares(store: Store, messages: int) -> str:
    """Return how evenly ten workers of one pool share the messages."""
    queue = store.create_queue(f"shared-{os.getpid()}", SCHEMA)
    had: Counter[str] = Counter()

    def handler(_: dict[str, Any]) -> bool:
        had[threading.current_thread().name] += 1
        return True

    pool_rate(store, queue, handler, 10, messages)
    return (
        f"{messages:,} messages, 10 equal workers: from {min(had.values()):,} to "
        f"{max(had.values()):,} each"
    )


def idle(store: Store, queue: Queue) -> float:
    """Return the transactions per second of an idle pool."""
    with ConsumerPool(store, queue.name, lambda message: True, concurrency=8) as pool:
        pool.drain(60)
        time.sleep(1.0)
        meter = Meter(store)
        before = meter.now()
        time.sleep(WATCH_SECONDS)
        return meter.since(before).transactions / WATCH_SECONDS


if __name__ == "__main__":
    main()
