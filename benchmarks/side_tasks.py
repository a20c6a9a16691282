"""Compare a compaction on an object store by a thread and by a stream of 1, 2 and 4 tasks of Spark.

    python -m benchmarks.side_tasks [--segments 100000] [--latency 0.01] [--large 16384]
    python -m benchmarks.side_tasks --due 40

Puts as many segments of one message into a bucket of a moto server, which answers each request
*latency* seconds late, as an object store does. Each run compacts a copy of the same catalog until
nothing is left, so all do the same work.
Meanwhile a producer loads a message every 50 ms: its waits show the locks of the catalog.

With ``--due``, it measures how late failed messages come back in a local store, for a thread and
for a stream, and the CPU that both take while nothing is due.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from pyspark_ignis import tuned
from pyspark_ignis.side_tasks import side_task_stream
from queue_core import Queue, Retry, Store, constant
from queue_core.catalog.slices import parts
from queue_core.segments import stager
from queue_core.segments.stager import Stager
from queue_core.upkeep.tasks.compaction import ROUND_SLICES, compact
from queue_core.values.address import Address
from queue_core.waiting.publish import Routed, RoutedLoad
from tests import unsynced
from tests.servers import ObjectStore

SCHEMA = pa.schema([("key", pa.string()), ("payload", pa.binary())])
SHARDS = 8
TOGETHER = 1_000
#: The server, with a delay for each request.
SERVER = """
import logging, pathlib, sys, time
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server
backend = s3_backends["123456789012"]["aws"]
backend.create_bucket("bench", "us-east-1")
root = pathlib.Path(sys.argv[2])
for file in root.rglob("*"):
    if file.is_file():
        backend.put_object("bench", f"store/{file.relative_to(root)}", file.read_bytes())
application = DomainDispatcherApplication(create_backend_app)
def slow(environ, start):
    time.sleep(float(sys.argv[1]))
    return application(environ, start)
logging.getLogger("werkzeug").disabled = True
server = make_server("127.0.0.1", 0, slow, threaded=True)
print(server.port, flush=True)
server.serve_forever()
"""


@contextmanager
def object_store(latency: float, files: Path) -> Iterator[str]:
    """Start an object store that has some files and answers late; yield its URI."""
    command = [sys.executable, "-c", SERVER, str(latency), str(files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            endpoint = f"127.0.0.1:{int(server.stdout.readline())}"
            yield ObjectStore(endpoint).uri("bench/store")
        finally:
            server.kill()


def load(store: Store, queue: Queue, segments: int) -> None:
    """Load segments of one message, each a file."""

    def stage(number: int) -> list[object]:
        row = {"key": f"k{number}", "payload": b"x" * 200}
        staging = Stager(store.storage, queue.info, as_is=True)
        staging.add(pa.RecordBatch.from_pylist([row], schema=SCHEMA))
        return [segment.in_shard(number % SHARDS) for segment in staging.finish()]

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(16) as pool:
        for start in range(0, segments, TOGETHER):
            numbers = range(start, min(start + TOGETHER, segments))
            staged = [one for found in pool.map(stage, numbers) for one in found]
            RoutedLoad(store.catalog, store.storage, [Routed(queue.info, staged)]).run()


def divide_from(slices: int, folder: Path) -> None:
    """Let queues of so many slices be large in all Python processes, so that shares divide them."""
    (folder / "sitecustomize.py").write_text(
        f"from queue_core.catalog.slices import parts\nparts.LARGE = {slices}\n"
    )
    parts.LARGE = slices
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


class Producer(threading.Thread):
    """Loads a message every 50 ms into another queue, and notes how long it waited."""

    def __init__(self, store: Store) -> None:
        super().__init__(daemon=True)
        self._queue = store.queue("beside")
        self._over = threading.Event()
        self.waits: list[float] = []

    def run(self) -> None:
        """Load until it is stopped."""
        while not self._over.wait(0.05):
            begun = time.perf_counter()
            self._queue.load([{"key": "k", "payload": b"x"}])
            self.waits.append(time.perf_counter() - begun)

    def stop(self) -> None:
        """Stop after the load in progress."""
        self._over.set()
        self.join()


def by_thread(store: Store) -> None:
    """Compact as the thread of a process does."""
    while compact(store.catalog, store.storage, store.queue("small").info, ROUND_SLICES):
        pass


def by_stream(spark: SparkSession, store: Store, tasks: int) -> Callable[[Store], None]:
    """Compact by a stream that ends when it has run once."""

    def compact(_: Store) -> None:
        moved = 1
        while moved:
            with tempfile.TemporaryDirectory() as checkpoint:
                reader = spark.readStream.format("ignis").option("task", "compact")
                reader = reader.option("catalog", store.address.catalog).option("queue", "small")
                reader = reader.option("storage", store.address.storage)
                query = (
                    reader.option("numPartitions", str(tasks))
                    .load()
                    .writeStream.format("noop")
                    .option("checkpointLocation", checkpoint)
                    .trigger(availableNow=True)
                    .start()
                )
                query.awaitTermination()
                moved = sum(progress.numInputRows for progress in query.recentProgress)

    return compact


def measure(address: Address, work: Callable[[Store], None]) -> list[str]:
    """Run on a store; return the figures."""
    with Store(address, create=False) as store:
        before = store.storage.sizes()
        segments = (
            store.queue("small").metadata().num_rows and store.view("slices", "small").num_rows
        )
        producer = Producer(store)
        producer.start()
        begun = time.perf_counter()
        work(store)
        seconds = time.perf_counter() - begun
        producer.stop()
        after = store.storage.sizes()
        written = sum(size for name, size in after.items() if name not in before)
        left = store.view("slices", "small").num_rows
        commits = store.view("reports").filter(pa.compute.field("task") == "compact")
        assert store.queue("small").peek(1).num_rows == 1
        times = len(set(commits.column("when").to_pylist()))
        waits = [1000 * wait for wait in producer.waits]
        quantile = statistics.quantiles(waits, n=100) if len(waits) > 1 else [waits[0]] * 99
    return [
        f"{seconds:.1f}", f"{segments:,} to {left:,}", f"{written / 1e6:.1f} MB", str(times),
        f"{quantile[49]:.0f} / {quantile[98]:.0f} / {max(waits):.0f}",
    ]  # fmt: skip


def due(messages: int) -> None:
    """Measure how late messages come back; print it."""
    folder = Path(tempfile.mkdtemp(prefix="ignis-due-"))
    builder = tuned(SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false"))
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    table = Table(title=f"{messages} messages that are due one by one")
    for column in ("", "late: 50 / 90 / max ms", "idle: CPU ms a second"):
        table.add_column(column, justify="right" if column else "left")
    with Store.open(folder / "store") as store:
        queue = store.create_queue("orders", SCHEMA, retry=Retry(2, constant(1.0)))

        def measured(name: str) -> None:
            late = [lateness(queue) for _ in range(messages + 3)][3:]
            quantile = statistics.quantiles(late, n=10)
            begun, before = time.perf_counter(), cpu_seconds()
            time.sleep(20)
            cpu = (cpu_seconds() - before) / (time.perf_counter() - begun)
            table.add_row(
                name, f"{quantile[4]:.0f} / {quantile[8]:.0f} / {max(late):.0f}", f"{1e3 * cpu:.0f}"
            )

        with store.side_tasks():
            measured("thread")
        stream = side_task_stream(spark, {"path": folder / "store"}, str(folder / "checkpoint"))
        measured("stream")
        stream.stop()
    Console(width=120).print(table)
    spark.stop()
    shutil.rmtree(folder, ignore_errors=True)


def lateness(queue: Queue) -> float:
    """Let a message fail; return how many milliseconds after its time it waits in main again."""
    queue.load([{"key": "k", "payload": b"x"}])
    # At any moment of the thread's and the stream's rounds.
    time.sleep(random.random())
    queue.sideline(queue.fire(1))
    when = time.monotonic() + 1.0
    while queue.peek(1).num_rows == 0:
        time.sleep(0.002)
    late = time.monotonic() - when
    queue.delete(queue.fire(1))
    return 1e3 * late


def cpu_seconds() -> float:
    """Return the CPU time of this process and its children, in seconds."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in [me, *me.children(recursive=True)])


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--segments", type=int, default=100_000)
    arguments.add_argument("--latency", type=float, default=0.01)
    arguments.add_argument("--rounds", type=int, default=2)
    arguments.add_argument("--large", type=int, default=parts.LARGE)
    arguments.add_argument("--due", type=int, default=0)
    given = arguments.parse_args()
    if given.due:
        due(given.due)
        return
    stager.INLINE_BYTES = 0
    console = Console(width=120)
    title = f"{given.segments:,} segments, {given.latency * 1000:g} ms a request"
    table = Table(title=title)
    for column in (
        "",
        "round",
        "seconds",
        "slices",
        "written",
        "commits",
        "a load: 50 / 99 / max ms",
    ):
        table.add_column(column, justify="right" if column else "left")
    folder = Path(tempfile.mkdtemp(prefix="ignis-side-tasks-"))
    if given.large != parts.LARGE:
        divide_from(given.large, folder)
    builder = tuned(SparkSession.builder.master("local[4]").config("spark.ui.enabled", "false"))
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    unsynced.begin()
    begun = time.perf_counter()
    (folder / "first").mkdir()
    local = Address(Address.of(folder / "first").catalog, str(folder / "files"))
    with Store(local) as store:
        load(store, store.create_queue("small", SCHEMA, shards=SHARDS), given.segments)
        store.create_queue("beside", SCHEMA)
    console.print(f"loaded in {time.perf_counter() - begun:.0f} s")
    with object_store(given.latency, folder / "files") as bucket:
        for round_ in range(given.rounds):
            for name, tasks in (
                ("thread", 0),
                ("stream, 1 task", 1),
                ("stream, 2", 2),
                ("stream, 4", 4),
            ):
                copy = folder / f"{name}-{round_}"
                shutil.copytree(folder / "first", copy)
                address = Address(Address.of(copy).catalog, bucket)
                with Store(address, create=False, adopt=True) as store:
                    work = by_thread if not tasks else by_stream(spark, store, tasks)
                figures = measure(address, work)
                table.add_row(name, str(round_ + 1), *figures)
                console.print(name, round_ + 1, *figures)
    console.print(table)
    spark.stop()
    with suppress(OSError):
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
