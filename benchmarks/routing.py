"""Measure what routing costs: ``python -m benchmarks.routing [--messages 4000000] [--rounds 3]``.

A query of one source writes the same rows into one queue by the option ``queue``, and into 1, 10
and 100 queues by ``queueColumn``, in turn. A line has the rates of each round, and the last one the
medians of their ratios to the write into one queue without a column.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import pyspark_ignis  # noqa: F401 - registers the format
from benchmarks.session import local_session
from queue_core import Store

SCHEMA = pa.schema([("number", pa.int64()), ("text", pa.string())])
COUNTS = (1, 10, 100)
BODY = "x" * 100


def main() -> None:
    """Measure and print."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--messages", type=int, default=4_000_000)
    arguments.add_argument("--rounds", type=int, default=3)
    given = arguments.parse_args()
    spark = local_session("routing")
    ratios: dict[int, list[float]] = {count: [] for count in COUNTS}
    # The first round warms.
    for number in range(given.rounds + 1):
        plain = rate(spark, given.messages, 0)
        line = [f"without a column {plain:,.0f}/s"]
        for count in COUNTS:
            routed = rate(spark, given.messages, count)
            line.append(f"{count} queues {routed:,.0f}/s ({routed / plain:.2f})")
            if number:
                ratios[count].append(routed / plain)
        print("; ".join(line), flush=True)
    medians = ", ".join(f"{n} queues {statistics.median(r):.2f}" for n, r in ratios.items())
    print(f"median of {given.rounds} rounds: {medians}")


def rate(spark: SparkSession, messages: int, count: int) -> float:
    """Return the messages per second of one micro-batch into so many queues; 0: no column."""
    with tempfile.TemporaryDirectory(prefix="ignis-routing-") as folder:
        path = str(Path(folder) / "store")
        with Store.open(path) as store:
            for number in range(max(count, 1)):
                store.create_queue(f"queue-{number}", SCHEMA)
            source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", messages)
            rows = source.option("numPartitions", 2).load()
            rows = rows.select(F.col("value").alias("number"), F.lit(BODY).alias("text"))
            target = {"queue": "queue-0"}
            if count:
                name = F.concat(F.lit("queue-"), (F.col("number") % count).cast("string"))
                rows, target = rows.withColumn("_to", name), {"queueColumn": "_to"}
            began = time.perf_counter()
            query = (
                rows.writeStream.format("ignis")
                .options(**target, path=path, checkpointLocation=f"{folder}/checkpoint")
                .trigger(once=True)
                .start()
            )
            query.awaitTermination()
            seconds = time.perf_counter() - began
            waiting = sum(store.view("queues").column("waiting").to_pylist())
            if waiting != messages:
                raise RuntimeError(f"{waiting} messages were loaded, not {messages}")
            return messages / seconds


if __name__ == "__main__":
    main()
