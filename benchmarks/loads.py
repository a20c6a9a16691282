"""Measure durable loads of one message at a time from one process: loads per second and latency.

    python -m benchmarks.loads [--loads 5000] [--postgresql]

The same run measures how long this disk takes to sync four kilobytes: no durable load is faster.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, address_in
from queue_core import Store

MESSAGE = {"order_id": 1, "customer": "customer-42", "amount": 17.5}
#: A bound that is checked and never reached.
MAX_SIZE = 1 << 30
SCHEMA = pa.schema([("order_id", pa.int64()), ("customer", pa.string()), ("amount", pa.float64())])


def measure(times: int, *works: Callable[[], object]) -> list[list[float]]:
    """
    Return the seconds that each call took, ascending, after a tenth as many calls to warm up.

    Several *works* take turns, so that other load on the machine affects all alike.
    """
    for work in works:
        for _ in range(times // 10):
            work()
    seconds: list[list[float]] = [[] for _ in works]
    for _ in range(times):
        for work, taken in zip(works, seconds, strict=True):
            begin = time.perf_counter()
            work()
            taken.append(time.perf_counter() - begin)
    return [sorted(taken) for taken in seconds]


def sync_only(folder: Path, times: int) -> list[float]:
    """Return the seconds of each bare write and sync of four kilobytes."""
    handle = os.open(folder / "sync", os.O_CREAT | os.O_RDWR)
    os.write(handle, b"x" * 4096 * 1024)

    def sync() -> None:
        os.pwrite(handle, b"y" * 4096, 0)
        os.fdatasync(handle)

    try:
        return measure(times, sync)[0]
    finally:
        os.close(handle)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--loads", type=int, default=5000)
    add_catalog(arguments)
    given = arguments.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="ignis-loads-", dir=".") as folder,
        address_in(folder, given) as address,
        Store(address) as store,
    ):
        free = store.create_queue("loads", SCHEMA, exist_ok=True)
        bounded = store.create_queue("bounded", SCHEMA, exist_ok=True, max_size=MAX_SIZE)
        loads = measure(given.loads, lambda: free.load([MESSAGE]), lambda: bounded.load([MESSAGE]))
        rows = {
            "load of one message": loads[0],
            "the same, bounded": loads[1],
            "sync of 4 kB": sync_only(Path(folder), given.loads // 5),
        }
    table = Table(title="durable, one at a time, one process")
    for column in ("", "per second", "median ms", "p99 ms", "worst ms"):
        table.add_column(column, justify="right" if column else "left")
    for label, seconds in rows.items():
        table.add_row(
            label,
            f"{len(seconds) / sum(seconds):,.0f}",
            f"{statistics.median(seconds) * 1e3:.2f}",
            f"{seconds[int(len(seconds) * 0.99)] * 1e3:.2f}",
            f"{seconds[-1] * 1e3:.1f}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
