"""The work of a Spark Connect client with queues; as a script, it prints the results as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession


def main(folder: Path) -> dict[str, Any]:
    """Write and read queues in both ways."""
    spark: Any = (
        SparkSession.builder.remote("local[2]")
        .config("spark.sql.shuffle.partitions", 2)
        .config("spark.ui.enabled", False)
        .getOrCreate()
    )
    path = str(folder / "store")

    def source(reader: Any, queue: str) -> Any:
        return reader.format("ignis").option("queue", queue).load(path)

    def stream(writer: Any, queue: str, checkpoint: str, **options: str) -> None:
        writer = writer.format("ignis").option("queue", queue).options(**options)
        writer = writer.option("checkpointLocation", str(folder / checkpoint))
        query = writer.trigger(availableNow=True).start(path)
        assert query.awaitTermination(120)

    told: dict[str, Any] = {"session": type(spark).__module__}
    numbers = spark.range(100).withColumnRenamed("id", "number")
    writer = numbers.write.format("ignis").mode("append").option("queue", "in")
    writer.option("key", "number").save(path)

    moved = source(spark.readStream.option("maxMessagesPerTrigger", 40), "in")
    stream(moved.writeStream, "out", "move")
    told["left"] = source(spark.read, "in").count()
    out = source(spark.read, "out")
    told["moved"] = sorted(row.number for row in out.collect())

    named = {"consumer": "judge"}
    held = source(spark.readStream.option("ack", "settle").options(**named), "out")
    judged = held.selectExpr("_message_id", "elt(number % 2 + 1, 'delete', 'sideline') AS outcome")
    stream(judged.writeStream, "out", "settle", mode="settle", **named)
    sideline = source(spark.read.option("magazine", "sideline"), "out")
    told["sidelined"] = sideline.where("number % 2 = 1").count()

    try:
        source(spark.read, "otu").count()
    except PySparkException as error:
        told["refused"] = str(error)
    spark.stop()
    return told


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
