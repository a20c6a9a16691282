"""How soon single messages reach the handler of a pool in another process.

    python -m benchmarks.single [--rates 50 1000] [--seconds 10] [--postgresql]

A process loads one message at a time at a steady rate, and what is late together. The time runs
from when a message was due to the begin of its handler. The first second is left out. As in
`ignis work`, the garbage collector passes over what both processes have imported.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, address_in
from benchmarks.peers.figures import latencies
from queue_core import ConsumerPool, Store
from queue_core.support.collector import pass_over_all
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64()), ("due", pa.float64())])


def load(address: Address, name: str, rate: int, total: int) -> None:
    """Load messages when they are due; one clock serves all processes of a machine."""
    with Store(address, create=False) as store:
        queue = store.queue(name)
        pass_over_all()
        began, sent = time.monotonic(), 0
        while sent < total:
            due = min(int((time.monotonic() - began) * rate) + 1, total)
            if due > sent:
                queue.load([{"number": n, "due": began + n / rate} for n in range(sent, due)])
                sent = due
            else:
                time.sleep(max(began + sent / rate - time.monotonic(), 0.0))


def measure(address: Address, rate: int, seconds: int) -> list[float]:
    """Return the seconds that each message took, but for those of the first second."""
    queue, total = f"at-{rate}", rate * (seconds + 1)
    taken: list[tuple[int, float]] = []

    def handle(message: dict[str, Any]) -> bool:
        taken.append((message["number"], time.monotonic() - message["due"]))
        return True

    with Store(address) as store:
        store.create_queue(queue, SCHEMA)
        process = multiprocessing.get_context("spawn").Process(
            target=load, args=(address, queue, rate, total), daemon=True
        )
        with ConsumerPool(store, queue, handle, concurrency=4):
            pass_over_all()
            process.start()
            process.join()
            end = time.monotonic() + 60.0
            while len(taken) < total and time.monotonic() < end:
                time.sleep(0.05)
    if len(taken) != total:
        raise RuntimeError(f"{len(taken):,} of {total:,} messages arrived")
    return [each for number, each in taken if number >= rate]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", type=int, nargs="+", default=[50, 1000])
    parser.add_argument("--seconds", type=int, default=10)
    add_catalog(parser)
    given = parser.parse_args()
    table = Table(title="from due to the handler, ms")
    for column in ("messages a second", "p50", "p99", "worst"):
        table.add_column(column, justify="right")
    with (
        tempfile.TemporaryDirectory(prefix="ignis-single-") as folder,
        address_in(folder, given) as address,
    ):
        for rate in given.rates:
            figures = latencies(measure(address, rate, given.seconds))
            table.add_row(f"{rate:,}", *(f"{each:.1f}" for each in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
