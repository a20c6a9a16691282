"""Measure the time from a load to its micro-batch in an idle query, and the cost of idling.

    python -m benchmarks.latency [--messages 40]

A plain Python process loads a message into an idle queue. The benchmark measures the time from the
return of the load to the start of `foreachBatch`, and until that function has the rows. Then the
query is left idle, and the catalog's transactions are counted.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame
from rich.console import Console
from rich.table import Table

from benchmarks.session import local_session
from queue_core import Store

SCHEMA = pa.schema([("number", pa.int64())])
#: Seconds that the queue rests between two messages, and that the idle query is watched.
REST_SECONDS = 1.0
WATCH_SECONDS = 10.0


class Arrivals:
    """The function for `foreachBatch`; it notes when each message arrived."""

    def __init__(self) -> None:
        self.started = self.held = 0.0
        self.there = threading.Event()

    def take(self, rows: DataFrame, _batch: int) -> None:
        """Note the arrival of one micro-batch."""
        started = time.perf_counter()
        if rows.collect():
            self.started, self.held = started, time.perf_counter()
            self.there.set()


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=40)
    given = arguments.parse_args()
    spark = local_session("latency")
    with tempfile.TemporaryDirectory(prefix="ignis-latency-") as name:
        folder = str(Path(name) / "store")
        with Store.open(folder) as store:
            queue = store.create_queue("q", SCHEMA)
            arrivals = Arrivals()
            stream = spark.readStream.format("ignis").option("queue", "q").load(folder)
            writer = stream.writeStream.foreachBatch(arrivals.take)
            query = writer.option("checkpointLocation", f"{name}/checkpoint").start()
            begins, arrived = [], []
            for number in range(given.messages + 3):
                time.sleep(REST_SECONDS)
                arrivals.there.clear()
                queue.load([{"number": number}])
                loaded = time.perf_counter()
                if not arrivals.there.wait(60):
                    raise RuntimeError(f"message {number} did not arrive: {query.exception()}")
                begins.append(arrivals.started - loaded)
                arrived.append(arrivals.held - loaded)
            idle = _transactions(store)
            query.stop()
    table = Table(title=f"{given.messages} messages into an idle queue")
    for column in ("to", "median ms", "worst ms"):
        table.add_column(column, justify="right" if column != "to" else "left")
    # The first ones start Python workers.
    for label, seconds in (("the start of its micro-batch", begins), ("its rows", arrived)):
        times = [1e3 * each for each in seconds[3:]]
        table.add_row(label, f"{statistics.median(times):.0f}", f"{max(times):.0f}")
    console = Console()
    console.print(table)
    console.print(f"an idle query commits {idle:.1f} transactions a second")


def _transactions(store: Store) -> float:
    """Return the commits of others per second, by SQLite's number of the last commit."""
    connection = store.catalog.engine.raw_connection()
    try:
        seen, commits = None, -1
        end = time.monotonic() + WATCH_SECONDS
        while time.monotonic() < end:
            version = connection.cursor().execute("PRAGMA data_version").fetchone()
            commits += version != seen
            seen = version
            time.sleep(0.001)
        return commits / WATCH_SECONDS
    finally:
        connection.close()


if __name__ == "__main__":
    main()
