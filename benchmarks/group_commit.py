"""Durable single messages of many threads of one process: ``python -m benchmarks.group_commit``.

Threads load one message at a time, and each load is durable when it returns; then a pool with as
many workers handles messages one by one (``batch=1``), while the threads load them. Each line
prints the rate, the transactions that wrote for a message, and the slowest percent of the loads.
``--postgresql`` measures on PostgreSQL.
"""

from __future__ import annotations

import argparse
import threading
import time

import pyarrow as pa

from benchmarks.arguments import add_catalog, store_of
from benchmarks.costs import writes
from queue_core import ConsumerPool, Queue, Store
from queue_core.waiting.joint_load import JointLoads

SCHEMA = pa.schema([("number", pa.int64()), ("customer", pa.string())])
THREADS = (1, 4, 16)


def load(queue: Queue, threads: int, seconds: float) -> list[float]:
    """Load single messages from threads for some seconds; return how long each load took."""
    took: list[list[float]] = [[] for _ in range(threads)]
    end = time.perf_counter() + seconds

    def produce(own: list[float]) -> None:
        begun = time.perf_counter()
        while begun < end:
            queue.load([{"number": len(own), "customer": "customer-42"}])
            now = time.perf_counter()
            own.append(now - begun)
            begun = now

    workers = [threading.Thread(target=produce, args=(own,)) for own in took]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sorted(each for own in took for each in own)


def loads(store: Store, threads: int, seconds: float) -> None:
    """Load only."""
    queue = store.create_queue(f"loads-{threads}", SCHEMA)
    queue.load([{"number": 0, "customer": "first"}])
    with writes(store) as written:
        begun, used = time.perf_counter(), time.process_time()
        took = load(queue, threads, seconds)
        _print("load", threads, len(took), time.perf_counter() - begun, used, len(written), took)


def pools(store: Store, threads: int, seconds: float) -> None:
    """Load, fire and delete: a pool handles messages one by one as they are loaded."""
    queue = store.create_queue(f"pool-{threads}", SCHEMA)
    with writes(store) as written:
        begun, used = time.perf_counter(), time.process_time()
        handler = lambda _: True  # noqa: E731
        with ConsumerPool(store, queue.name, handler, concurrency=threads, batch=1) as pool:
            took = load(queue, threads, seconds)
            assert pool.drain(600)
        spent = time.perf_counter() - begun
        _print("load, fire, delete", threads, len(took), spent, used, len(written), took)
    assert sum(queue.metadata()["deleted"].to_pylist()) == len(took)


def _print(
    label: str,
    threads: int,
    count: int,
    spent: float,
    used: float,
    transactions: int,
    took: list[float],
) -> None:
    used = time.process_time() - used
    print(
        f"{label:20} {threads:>3} threads {count / spent:>8,.0f} a second "
        f" {used / count * 1e6:>6.0f} us CPU  {transactions / count:>6.3f} transactions each "
        f" median {took[count // 2] * 1e3:>6.2f} ms  p99 {took[int(count * 0.99)] * 1e3:>7.2f} ms",
        flush=True,
    )


def main() -> None:
    """Measure each number of threads."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_catalog(arguments)
    arguments.add_argument("--seconds", type=float, default=5.0)
    arguments.add_argument("--apart", action="store_true", help="join no loads")
    given = arguments.parse_args()
    if given.apart:
        JointLoads.joins = lambda *_: False
    with store_of(given, under=".") as store:
        for row in (loads, pools):
            for threads in THREADS:
                row(store, threads, given.seconds)


if __name__ == "__main__":
    main()
