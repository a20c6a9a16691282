"""A cluster of two executors that sweeps and shovels; prints who moved how many, as JSON."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from queue_core import Store
from tests.dump import backdate
from tests.factories import make_filled

QUEUES = 8


def main(folder: Path) -> dict[str, dict[str, int]]:
    """Sweep and shovel each queue once; return the messages of each task, by executor."""
    spark = (
        SparkSession.builder.master("local-cluster[2,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    path = str(folder / "store")
    with Store.open(path) as store:
        for number in range(QUEUES):
            queue = make_filled(store, 20, f"queue{number}", retry=None)
            queue.sideline(queue.fire(10))
            # The consumer of the others died long ago.
            queue.fire(10)
        backdate(store, 7200)
    # The folder in which an executor works has its number as its name.
    executor = F.udf(lambda _: Path.cwd().name)
    moved: dict[str, Counter[str]] = {"sweep": Counter(), "shovel": Counter()}

    def note(batch: Any, _: int) -> None:
        for row in batch.withColumn("executor", executor("task")).collect():
            moved[row.task][row.executor] += row.moved

    for task in moved:
        reports = spark.readStream.format("ignis").option("task", task).load(path)
        writer = reports.writeStream.foreachBatch(note)
        writer = writer.option("checkpointLocation", str(folder / task))
        writer.trigger(availableNow=True).start().awaitTermination(200)
    spark.stop()
    return {task: dict(counts) for task, counts in moved.items()}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
