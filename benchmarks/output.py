"""Measure what an output costs a pool: ``python -m benchmarks.output``.

Pools with and without ``output`` handle the same messages in turn, in batches of 100, and each
message gives one row. Each round prints the rates of both and their ratio; the last line has the
medians. ``--catalog URL --storage DIR`` measures on PostgreSQL, ``--handler message`` calls the
handler for each message. For comparison, ``load`` loads the rows of a batch in the handler, which
gives them at least once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from queue_core import ConsumerPool, Queue, Store, batch_handler
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
BODY = "x" * 100
BATCH = 100


def main() -> int:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=50_000)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument("--handler", choices=("batch", "message"), default="batch")
    arguments.add_argument("--catalog")
    arguments.add_argument("--storage")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="ignis-output-") as folder:
        if given.catalog:
            address = Address.of(catalog=given.catalog, storage=given.storage)
        else:
            address = Address.of(Path(folder) / "store")
        with Store(address) as store:
            measure(store, given.messages, given.rounds, given.workers, given.handler)
    return 0


def measure(store: Store, messages: int, rounds: int, workers: int, kind: str) -> None:
    """Print the rates of each round, and the medians."""
    ratios, loads = [], []
    for number in range(rounds):
        name = f"output-{os.getpid()}-{number}"
        results = store.create_queue(f"{name}-results", SCHEMA)
        plain = rate(store, f"{name}-plain", handler(kind, with_rows=False), messages, workers)
        output = rate(
            store, f"{name}-output", handler(kind, with_rows=True), messages, workers, results.name
        )
        assert len(results.fire("all")) == messages, "each message gives one row"
        loading = rate(store, f"{name}-load", loader(results), messages, workers)
        ratios.append(output / plain)
        loads.append(loading / plain)
        print(
            f"without output {plain:,.0f}/s, with {output:,.0f}/s: {ratios[-1]:.2f}; "
            f"load in the handler {loading:,.0f}/s: {loads[-1]:.2f}",
            flush=True,
        )
    print(
        f"median of {rounds} rounds: {statistics.median(ratios):.2f} with output, "
        f"{statistics.median(loads):.2f} with a load in the handler"
    )


def handler(kind: str, *, with_rows: bool) -> Callable[..., Any]:
    """Return a handler that does nothing else."""
    if kind == "message":
        if with_rows:
            return lambda message: {"number": message["number"], "text": message["text"]}
        return lambda message: True
    if with_rows:
        return batch_handler(lambda batch: batch.select(["number", "text"]))
    return batch_handler(lambda batch: pa.repeat(True, batch.num_rows))


def loader(results: Queue) -> Callable[..., Any]:
    """Return a handler that loads the rows of its batch itself."""

    def load(batch: pa.RecordBatch) -> pa.Array:
        results.load(batch.select(["number", "text"]))
        return pa.repeat(True, batch.num_rows)

    return batch_handler(load)


def rate(
    store: Store,
    name: str,
    handle: Callable[..., Any],
    messages: int,
    workers: int,
    output: str | None = None,
) -> float:
    """Return messages per second of a pool, from its start until all are settled."""
    queue = store.create_queue(name, SCHEMA)
    queue.load(pa.table({"number": range(messages), "text": [BODY] * messages}, schema=SCHEMA))
    began = time.perf_counter()
    with ConsumerPool(
        store, name, handle, concurrency=workers, batch=BATCH, output=output, tasks=()
    ) as pool:
        if not pool.drain(600) or pool.counts != {"deleted": messages}:
            raise RuntimeError(f"{pool!r} did not handle all: {pool.counts}")
        return messages / (time.perf_counter() - began)


if __name__ == "__main__":
    sys.exit(main())
