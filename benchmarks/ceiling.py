"""Measure rows per second of the source against bare Arrow files.

    python -m benchmarks.ceiling [--messages 4000000] [--rounds 3]

Messages have a short key and 100 bytes of payload. Each round reads the bare files and the queue in
turn, so that a noisy machine affects both; the result is the median of the rounds' ratios. Times
come from Spark's progress reports (the whole trigger). The workload `bulk` of `benchmarks.peers`
also writes, and copies from queue to queue.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from rich.console import Console
from rich.table import Table

from benchmarks.bare import BareSource
from benchmarks.session import local_session
from queue_core import Store

PARTITIONS = 8
PAYLOAD = 100
#: The consumer whose messages are loaded again.
READER = "reader"


class Ceiling:
    """Both contenders and their data, in one folder."""

    def __init__(self, spark: SparkSession, folder: Path, messages: int) -> None:
        self._spark = spark
        self._folder = folder
        self._messages = messages
        self._fresh = 0

    def new(self, name: str) -> str:
        """Return a new folder."""
        self._fresh += 1
        path = self._folder / f"{name}-{self._fresh}"
        path.mkdir()
        return str(path)

    def read(self, source: str, path: str, **options: str) -> float:
        """Return the seconds to read a stream of a folder to its end and drop the rows."""
        stream = self._spark.readStream.format(source).options(**options).load(path)
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", self.new("checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        return _seconds(query, self._messages)

    def round(self) -> dict[str, tuple[float, float]]:
        """Return the seconds of bare files and of the queue, for each measure."""
        bare, queue = self.new("bare"), self.new("queue")
        rows = self._spark.range(0, self._messages, 1, PARTITIONS).selectExpr(
            "concat('k', cast(id % 5000 as string)) as key",
            f"cast(rpad(cast(id as string), {PAYLOAD}, 'x') as binary) as payload",
        )
        rows.write.format("bare").mode("append").save(bare)
        loaded = {"queue": "q", "shards": str(PARTITIONS), "key": "key"}
        rows.write.format("ignis").options(**loaded).mode("append").save(queue)
        ours = {"queue": "q", "numPartitions": str(PARTITIONS), "ack": "settle", "consumer": READER}
        seconds = {}
        for measure, metadata in (("read", "false"), ("read, with metadata", "true")):
            seconds[measure] = (
                self.read("bare", bare),
                self.read("ignis", queue, includeMetadata=metadata, **ours),
            )
            _reload(queue)
        for path in self._folder.iterdir():
            shutil.rmtree(path)
        return seconds


def _reload(path: str) -> None:
    """Load the fired messages of a measure again."""
    with Store.open(path) as store:
        queue = store.queue("q")
        ids = queue.browse().column("_message_id")
        assert queue.reload(ids, consumer=READER) == len(ids)


def _seconds(query: Any, messages: int) -> float:
    query.awaitTermination()
    if query.exception() is not None:
        raise query.exception()
    progress = [p for p in query.recentProgress if p.numInputRows]
    assert sum(p.numInputRows for p in progress) == messages, "not every row was read"
    return sum(p.durationMs["triggerExecution"] for p in progress) / 1000


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=4_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    console = Console()
    spark = local_session("ceiling")
    spark.dataSource.register(BareSource)
    rounds = []
    with tempfile.TemporaryDirectory(prefix="ignis-ceiling-") as folder:
        Ceiling(spark, Path(folder), given.messages // 20).round()
        for number in range(given.rounds):
            console.print(f"round {number + 1} of {given.rounds} …")
            rounds.append(Ceiling(spark, Path(folder), given.messages).round())
    table = Table(title=f"{given.messages:,} messages of {PAYLOAD} bytes, pyarrow {pa.__version__}")
    for column in ("measure", "bare rows/s", "ignis rows/s", "ratio, median", "ratios"):
        table.add_column(column, justify="left" if column == "measure" else "right")
    for measure in rounds[0]:
        bare = [given.messages / seconds[measure][0] for seconds in rounds]
        ours = [given.messages / seconds[measure][1] for seconds in rounds]
        ratios = [b / a for a, b in zip(bare, ours, strict=True)]
        table.add_row(
            measure,
            f"{statistics.median(bare):,.0f}",
            f"{statistics.median(ours):,.0f}",
            f"{statistics.median(ratios):.2f}",
            " ".join(f"{ratio:.2f}" for ratio in ratios),
        )
    console.print(table)
    spark.stop()


if __name__ == "__main__":
    main()
