"""Measure rows per second of the source, the sink, and both, against bare Arrow files.

    python -m benchmarks.ceiling [--messages 4000000] [--rounds 3]

Messages have a short key and 100 bytes of payload. Each round measures the bare files and the queue
in turn, so that a noisy machine affects both; the result is the median of the rounds' ratios. Spark
ends Python workers that were idle for a minute, so a copy of a few rows starts the workers of both
before they are measured. Times come from Spark's progress reports (the whole trigger) or from the
whole batch write.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
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
        self.rows = spark.range(0, messages, 1, PARTITIONS).selectExpr(
            "concat('k', cast(id % 5000 as string)) as key",
            f"cast(rpad(cast(id as string), {PAYLOAD}, 'x') as binary) as payload",
        )

    def new(self, name: str) -> str:
        """Return a new folder."""
        self._fresh += 1
        path = self._folder / f"{name}-{self._fresh}"
        path.mkdir()
        return str(path)

    def write_bare(self, path: str) -> float:
        """Return the seconds to write all rows as bare files."""
        return _timed(lambda: _save(self.rows.write.format("bare"), path))

    def write_queue(self, path: str, key: str | None) -> float:
        """Return the seconds to load all rows into a queue."""
        writer = self.rows.write.format("ignis").option("queue", "q").option("shards", PARTITIONS)
        return _timed(lambda: _save(writer.option("key", key) if key else writer, path))

    def read(self, stream: DataFrame, checkpoint: str) -> float:
        """Return the seconds to read a stream to its end and drop the rows."""
        query = (
            stream.writeStream.format("noop")
            .option("checkpointLocation", checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        return _seconds(query, self._messages)

    def through(self, stream: DataFrame, sink: str, path: str, **options: str) -> float:
        """Return the seconds to read a stream to its end and write the rows."""
        return _seconds(self._copy(stream, sink, path, **options), self._messages)

    def _copy(self, stream: DataFrame, sink: str, path: str, **options: str) -> StreamingQuery:
        """Read a stream to its end, write the rows, and return the query."""
        query = (
            stream.writeStream.format(sink)
            .options(**options)
            .option("checkpointLocation", self.new("checkpoint"))
            .trigger(availableNow=True)
            .start(path)
        )
        query.awaitTermination()
        return query

    def stream(self, source: str, path: str, **options: str) -> DataFrame:
        """Return a stream of a folder."""
        return self._spark.readStream.format(source).options(**options).load(path)

    def _warm_up(self) -> None:
        """Copy a few rows with each contender."""
        bare, queue = self.new("bare"), self.new("queue")
        few = self.rows.limit(1000)
        _save(few.write.format("bare"), bare)
        _save(few.write.format("ignis").option("queue", "q"), queue)
        self._copy(self.stream("bare", bare), "bare", self.new("bare"))
        self._copy(self.stream("ignis", queue, queue="q"), "ignis", self.new("queue"), queue="out")

    def round(self) -> dict[str, tuple[float, float]]:
        """Return the seconds of bare files and of the queue, for each measure."""
        bare, queue, unkeyed = self.new("bare"), self.new("queue"), self.new("unkeyed")
        seconds = {
            "write, with key": (self.write_bare(bare), self.write_queue(queue, "key")),
            "write, without key": (
                self.write_bare(self.new("bare")),
                self.write_queue(unkeyed, None),
            ),
        }
        ours = {"queue": "q", "includeMetadata": "false", "numPartitions": str(PARTITIONS)}
        kept = ours | {"ack": "settle", "consumer": READER}
        seconds["read"] = (
            self.read(self.stream("bare", bare), self.new("checkpoint")),
            self.read(self.stream("ignis", queue, **kept), self.new("checkpoint")),
        )
        _reload(queue)
        seconds["read, with metadata"] = (
            self.read(self.stream("bare", bare), self.new("checkpoint")),
            self.read(
                self.stream("ignis", queue, **kept | {"includeMetadata": "true"}),
                self.new("checkpoint"),
            ),
        )
        _reload(queue)
        self._warm_up()
        seconds["both, with key"] = (
            self.through(self.stream("bare", bare), "bare", self.new("bare")),
            self.through(
                self.stream("ignis", queue, **ours),
                "ignis",
                self.new("queue"),
                queue="out",
                key="key",
            ),
        )
        seconds["both, without key"] = (
            self.through(self.stream("bare", bare), "bare", self.new("bare")),
            self.through(
                self.stream("ignis", unkeyed, **ours), "ignis", self.new("queue"), queue="out"
            ),
        )
        for path in self._folder.iterdir():
            shutil.rmtree(path)
        return seconds


def _reload(path: str) -> None:
    """Load the fired messages of a measure again."""
    with Store.open(path) as store:
        queue = store.queue("q")
        ids = queue.browse().column("_message_id")
        assert queue.reload(ids, consumer=READER) == len(ids)


def _save(writer: Any, path: str) -> None:
    writer.mode("append").save(path)


def _timed(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


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
