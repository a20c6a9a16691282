"""Measure how soon a query with a lower priority takes over when one with a higher priority stops.

    python -m benchmarks.handover [--rounds 5] [--postgresql]

Two queries read one queue, priorities 10 and 1. While the first one wants messages, the other one
must get none. Then the first one is stopped; or its whole process, with Spark, is killed by
SIGKILL; or its credit is used up by a batch that does not end. The benchmark measures the time from
then until the `foreachBatch` of the other one has all messages that were loaded at that moment.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.arguments import add_catalog, address_in
from benchmarks.session import local_session
from queue_core import Queue, Store
from queue_core.values.address import Address

SCHEMA = pa.schema([("number", pa.int64())])
LOADED = 100
#: The credit of the query with the higher priority, where it has to run out.
CREDIT = 5
PATIENCE = 60.0


class Reader:
    """A query, and the number of messages that it got."""

    def __init__(
        self, spark: SparkSession, address: Address, checkpoint: str, **options: object
    ) -> None:
        self.count = 0
        #: While it is clear, a batch does not end.
        self.goes_on = threading.Event()
        self.goes_on.set()
        reader = spark.readStream.format("ignis").options(**options, tasks="none", queue="q")
        reader = reader.option("catalog", address.catalog).option("storage", address.storage)
        writer = reader.load().writeStream.foreachBatch(self._take)
        self.query: StreamingQuery = writer.option("checkpointLocation", checkpoint).start()

    def _take(self, rows: DataFrame, _batch: int) -> None:
        self.count += len(rows.collect())
        self.goes_on.wait(PATIENCE)


def higher(spark: SparkSession, address: Address, checkpoint: str, **options: object) -> Reader:
    """Return the query with the higher priority."""
    name = Path(checkpoint).name
    return Reader(spark, address, checkpoint, priority=10, consumer=name, **options)


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=5)
    add_catalog(arguments)
    arguments.add_argument("--as-higher", nargs=3, help=argparse.SUPPRESS)
    given = arguments.parse_args()
    if given.as_higher:
        catalog, storage, checkpoint = given.as_higher
        higher(local_session("higher"), Address(catalog, storage), checkpoint)
        signal.pause()
    with (
        tempfile.TemporaryDirectory(prefix="ignis-handover-") as folder,
        address_in(folder, given) as address,
    ):
        Console().print(measured(address, folder, given.rounds))


def measured(address: Address, folder: str, rounds: int) -> Table:
    """Measure all three ways."""
    spark = local_session("lower")
    table = Table(title=f"{LOADED} messages pass to the lower priority, {rounds} times each")
    for column in ("when the higher one", "median s", "worst s"):
        table.add_column(column, justify="left" if column.startswith("when") else "right")
    with Store(address) as store:
        queue = store.create_queue("q", SCHEMA, shards=4)
        low = Reader(spark, address, f"{folder}/low", priority=1, consumer="low")
        for label, passed in (
            ("is stopped", stopped),
            ("is killed", killed),
            ("has no credit", out_of_credit),
        ):
            times = [
                passed(spark, queue, low, f"{folder}/{label.replace(' ', '-')}-{number}")
                for number in track(range(rounds), description=label, transient=True)
            ]
            table.add_row(label, f"{statistics.median(times):.2f}", f"{max(times):.2f}")
        low.query.stop()
    return table


def stopped(spark: SparkSession, queue: Queue, low: Reader, checkpoint: str) -> float:
    """Stop the query by `StreamingQuery.stop`."""
    high = higher(spark, queue.store.address, checkpoint)
    goes_first(queue, low, Path(checkpoint).name)
    aim = low.count + LOADED
    began = time.perf_counter()
    high.query.stop()
    queue.load(messages())
    return since(began, low, aim)


def killed(_: SparkSession, queue: Queue, low: Reader, checkpoint: str) -> float:
    """Kill the process by a signal, with Java and Python workers."""
    given = ["--as-higher", *queue.store.address, checkpoint]
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.handover", *given],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        goes_first(queue, low, Path(checkpoint).name)
        aim = low.count + LOADED
    finally:
        began = time.perf_counter()
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    queue.load(messages())
    return since(began, low, aim)


def out_of_credit(spark: SparkSession, queue: Queue, low: Reader, checkpoint: str) -> float:
    """Use up the credit by a batch that does not end."""
    high = higher(spark, queue.store.address, checkpoint, maxInFlight=CREDIT)
    goes_first(queue, low, Path(checkpoint).name, CREDIT)
    high.goes_on.clear()
    aim = low.count + LOADED - CREDIT
    began = time.perf_counter()
    queue.load(messages())
    try:
        return since(began, low, aim)
    finally:
        high.goes_on.set()
        wait(lambda: all_done(queue))
        high.query.stop()


def goes_first(queue: Queue, low: Reader, high: str, count: int = LOADED) -> None:
    """Wait for the query with the higher priority; check that it gets all messages."""
    wait(lambda: {high, "low"} <= interested(queue.store))
    # Twice, since the lower one may have been firing when the other one came.
    for _ in range(2):
        before = low.count
        queue.load(messages(count))
        wait(lambda: all_done(queue))
    if low.count != before:
        raise RuntimeError(f"the query with the lower priority got {low.count - before} messages")


def since(began: float, low: Reader, aim: int) -> float:
    """Return the seconds until the query with the lower priority has had *aim* messages."""
    wait(lambda: low.count >= aim)
    return time.perf_counter() - began


def wait(happened: Callable[[], bool]) -> None:
    """Wait until a condition holds; raise `RuntimeError` after a while."""
    end = time.monotonic() + PATIENCE
    while not happened():
        if time.monotonic() > end:
            raise RuntimeError("the benchmark waited in vain")
        time.sleep(0.005)


def messages(count: int = LOADED) -> pa.Table:
    """Return the rows of one load."""
    return pa.table({"number": range(count)}, schema=SCHEMA)


def all_done(queue: Queue) -> bool:
    """Return whether no message waits or is in flight."""
    books = queue.metadata()
    return not any(books.column("waiting").to_pylist() + books.column("in_flight").to_pylist())


def interested(store: Store) -> set[str]:
    """Return the consumers that are alive and want messages."""
    rows = store.view("consumers").to_pylist()
    return {row["consumer"] for row in rows if row["interested"]}


if __name__ == "__main__":
    main()
