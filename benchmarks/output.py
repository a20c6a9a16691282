"""Measure what an output costs a pool: ``python -m benchmarks.output``.

Pools with and without ``output`` handle the same messages in turn, in batches of 100. Their
handlers make one row of each message, which one pool loads and the other one forgets. A line has
the rates of both, and their ratio by the clock and by the CPU of the process; the last line has the
medians. ``--postgresql`` measures on PostgreSQL, and ``--handler message`` calls the handler for
each message. For comparison, a third pool loads the rows of a batch in its handler, which gives
them at least once.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa

from benchmarks.arguments import add_catalog, store_of
from queue_core import ConsumerPool, Queue, Store, batch_handler

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
BODY = "x" * 100
BATCH = 100


class Rate(NamedTuple):
    """Messages per second, by the clock and by the CPU of the process."""

    clock: float
    cpu: float


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=50_000)
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument("--handler", choices=("batch", "message"), default="batch")
    add_catalog(arguments)
    given = arguments.parse_args()
    with store_of(given) as store:
        measure(store, given)


def measure(store: Store, given: argparse.Namespace) -> None:
    """Print the rates of each round, and the medians."""
    ratios: dict[str, list[float]] = {}
    # The first round warms.
    for number in range(given.rounds + 1):
        name = f"output-{os.getpid()}-{number}"
        results = store.create_queue(f"{name}-results", SCHEMA)
        plain = rate(store, given, f"{name}-plain", handler(given.handler, with_rows=False))
        giving = handler(given.handler, with_rows=True)
        output = rate(store, given, f"{name}-output", giving, results.name)
        if len(results.fire("all")) != given.messages:
            raise RuntimeError("a message gives one row")
        loading = rate(store, given, f"{name}-load", loader(results))
        line = [f"without output {plain.clock:,.0f}/s"]
        for what, found in (("with output", output), ("with a load in the handler", loading)):
            by_clock, by_cpu = found.clock / plain.clock, found.cpu / plain.cpu
            line.append(f"{what} {found.clock:,.0f}/s ({by_clock:.2f}, CPU {by_cpu:.2f})")
            if number:
                ratios.setdefault(f"{what}", []).append(by_clock)
                ratios.setdefault(f"{what}, CPU", []).append(by_cpu)
        print("; ".join(line), flush=True)
    medians = ", ".join(f"{what} {statistics.median(each):.2f}" for what, each in ratios.items())
    print(f"median of {given.rounds} rounds: {medians}")


def handler(kind: str, *, with_rows: bool) -> Callable[..., Any]:
    """Return a handler that makes rows, and returns them or that all went well."""

    def of_message(message: Any) -> Any:
        row = {"number": message["number"], "text": message["text"]}
        return row if with_rows else True

    def of_batch(batch: pa.RecordBatch) -> Any:
        rows = batch.select(["number", "text"])
        return rows if with_rows else pa.repeat(True, batch.num_rows)

    return of_message if kind == "message" else batch_handler(of_batch)


def loader(results: Queue) -> Callable[..., Any]:
    """Return a handler that loads the rows of its batch itself."""

    def load(batch: pa.RecordBatch) -> pa.Array:
        results.load(batch.select(["number", "text"]))
        return pa.repeat(True, batch.num_rows)

    return batch_handler(load)


def rate(
    store: Store,
    given: argparse.Namespace,
    name: str,
    handle: Callable[..., Any],
    output: str | None = None,
) -> Rate:
    """Return the rates of a pool, from its start until all messages are settled."""
    queue, messages = store.create_queue(name, SCHEMA), given.messages
    queue.load(pa.table({"number": range(messages), "text": [BODY] * messages}, schema=SCHEMA))
    began, cpu = time.perf_counter(), time.process_time()
    with ConsumerPool(
        store, name, handle, concurrency=given.workers, batch=BATCH, output=output, tasks=()
    ) as pool:
        if not pool.drain(600) or pool.counts != {"deleted": messages}:
            raise RuntimeError(f"{pool!r} did not handle all: {pool.counts}")
        took = time.perf_counter() - began
        return Rate(messages / took, messages / (time.process_time() - cpu))


if __name__ == "__main__":
    main()
