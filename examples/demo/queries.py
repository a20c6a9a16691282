"""The demo's streaming queries, each a few lines of Spark."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery


def load(spark: SparkSession, files: Path, store: Path) -> StreamingQuery:
    """Load Parquet files into the queue ``flights``, one per micro-batch; end after the last."""
    schema = spark.read.parquet(str(files)).schema
    flights = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(files))
    return (
        flights.writeStream.format("ignis")
        .option("queue", "flights")
        .option("checkpointLocation", str(store / "checkpoints" / "load"))
        .trigger(availableNow=True)
        .start(str(store))
    )


def count(spark: SparkSession, store: Path) -> StreamingQuery:
    """Keep the table ``mean_delays`` up to date, in minutes per carrier and hour."""
    delays = spark.readStream.format("ignis").option("queue", "delays").load(str(store))
    means = (
        # A handler that crashed may have published a flight twice.
        delays.dropDuplicates(["number"])
        .groupBy("carrier", "hour")
        .agg(F.count("*").alias("flights"), F.avg("dep_delay").alias("delay"))
    )
    return (
        means.writeStream.format("memory")
        .queryName("mean_delays")
        .outputMode("complete")
        .option("checkpointLocation", str(store / "checkpoints" / "count"))
        .start()
    )


def copy(spark: SparkSession, store: Path, limit: int) -> StreamingQuery:
    """Move all messages from the queue ``flights`` to the queue ``copies``; then end."""
    flights = (
        spark.readStream.format("ignis")
        .option("queue", "flights")
        .option("maxMessagesPerTrigger", limit)
        .load(str(store))
    )
    return (
        flights.writeStream.format("ignis")
        .option("queue", "copies")
        .option("checkpointLocation", str(store / "checkpoints" / "copy"))
        .trigger(availableNow=True)
        .start(str(store))
    )


def finish(query: StreamingQuery) -> None:
    """Let a continuous query process everything that is there, and stop it."""
    query.processAllAvailable()
    query.stop()


def batches(query: StreamingQuery) -> int:
    """Count the micro-batches of a query that had rows."""
    return sum(progress.numInputRows > 0 for progress in query.recentProgress)
