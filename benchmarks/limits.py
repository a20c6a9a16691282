"""Measure how exactly several processes keep a limit of messages per second.

    python -m benchmarks.limits [--postgresql] [--seconds 120] [--processes 8] [--rate 100]

Each process has a pool whose handler only notes the time of its call. The rate error compares all
firings with the limit. The worst window is the most messages that were fired within any second.
Afterwards, the transactions per second of a pool that waits for messages, and for tokens.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, address_in
from benchmarks.costs import Meter
from queue_core import ConsumerPool, Store, batch_handler, limit
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64())])


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_catalog(arguments)
    arguments.add_argument("--seconds", type=float, default=120.0)
    arguments.add_argument("--processes", type=int, default=8)
    arguments.add_argument("--rate", type=float, default=100.0)
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, address_in(folder, given) as address:
        fired = measured(address, folder, given.seconds, given.processes, given.rate)
        idle, waiting = cost(address, "idle", None), cost(address, "waiting", 0.001)
    fired = fired[fired < fired[0] + given.seconds]
    seconds = fired[-1] - fired[0]
    allowed = given.rate * given.seconds
    ends = np.searchsorted(fired, fired + 1.0)
    table = Table(title=f"{given.rate:g} a second, {given.processes} processes")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("messages fired", f"{len(fired):,} in {seconds:.1f} s")
    table.add_row("rate", f"{len(fired) / given.seconds:.2f} a second")
    table.add_row("error", f"{100 * (len(fired) / allowed - 1):+.2f} %")
    table.add_row("worst second", f"{int((ends - np.arange(len(fired))).max())} messages")
    table.add_row("most above the rate", f"{above(fired, given.rate):.1f} messages")
    table.add_row("idle pool", f"{idle:.1f} transactions a second")
    table.add_row("pool that waits for tokens", f"{waiting:.1f} transactions a second")
    Console().print(table)


def above(fired: np.ndarray[Any, Any], rate: float) -> float:
    """Return by how many messages any interval between two firings exceeds the rate."""
    surplus = np.arange(1, len(fired) + 1) - rate * (fired - fired[0])
    before = np.minimum.accumulate(np.concatenate([[0.0], surplus[:-1]]))
    return float((surplus - before).max())


def measured(
    address: Address, folder: str, seconds: float, processes: int, rate: float
) -> np.ndarray[Any, Any]:
    """Return the times at which messages were fired by processes that share a limit."""
    with Store(address) as store:
        queue = store.create_queue("limited", SCHEMA, limits=limit(per_second=rate))
        queue.load(pa.table({"number": np.arange(int(2 * rate * (seconds + 30)))}))
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    workers = [
        context.Process(target=work, args=(address, f"{folder}/{n}.npy", seconds, ready, go))
        for n in range(processes)
    ]
    for worker in workers:
        worker.start()
    for _ in workers:
        ready.acquire()
    go.set()
    for worker in workers:
        worker.join()
    times = [np.load(f"{folder}/{n}.npy") for n in range(processes)]
    Console().print("by process: " + ", ".join(f"{len(each):,}" for each in times))
    return np.sort(np.concatenate(times))


def work(address: Address, path: str, seconds: float, ready: Any, go: Any) -> None:
    """Handle messages for some seconds; write the times of their firings."""
    times: list[float] = []

    @batch_handler
    def handler(batch: pa.RecordBatch) -> list[bool]:
        times.extend(batch.column("_fired_at").cast(pa.int64()).to_numpy() / 1e6)
        return [True] * batch.num_rows

    with Store(address) as store:
        ready.release()
        go.wait()
        pool = ConsumerPool(
            store, "limited", handler, columns=["_fired_at"], concurrency=2, batch=10, tasks=()
        )
        with pool:
            # A process that begins late ends late.
            time.sleep(seconds + 1)
    np.save(path, np.array(times))


def cost(address: Address, name: str, rate: float | None) -> float:
    """Return the transactions per second of a pool that finds no message, or no token."""
    with Store(address) as store:
        limits = None if rate is None else limit(per_second=rate)
        queue = store.create_queue(name, SCHEMA, limits=limits)
        if rate is not None:
            queue.load(pa.table({"number": np.arange(10)}))
        with ConsumerPool(store, name, lambda _: True, tasks=()):
            time.sleep(2)
            meter = Meter(store)
            before = meter.now()
            time.sleep(10)
            return meter.since(before).transactions / 10


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
