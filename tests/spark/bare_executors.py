"""A cluster whose executors lack ignis; as a script, it prints the errors of queries as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from queue_core import Store

#: Python runs this first on an executor, where ignis is installed, as on the driver.
HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("queue_core", "ignis_source", "ignis_sink", "pyspark_ignis"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Hidden())
"""


def main(folder: Path) -> dict[str, str]:
    """Read and write, as a table and as a stream."""
    (folder / "site").mkdir()
    (folder / "site/sitecustomize.py").write_text(HIDE)
    spark = (
        SparkSession.builder.master("local-cluster[1,1,1024]")
        .config("spark.ui.enabled", "false")
        .config("spark.task.maxFailures", "1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executorEnv.PYTHONPATH", str(folder / "site"))
        .getOrCreate()
    )
    path = str(folder / "store")
    with Store.open(path) as store:
        store.create_queue("orders", pa.schema([("n", pa.int64())])).load([{"n": 1}])
    table = spark.read.format("ignis").option("queue", "orders")
    stream = spark.readStream.format("ignis").option("queue", "orders")
    numbers = spark.range(3).withColumnRenamed("id", "n")
    rates = spark.readStream.format("rate").load().selectExpr("value AS n")

    def run(rows: Any, name: str) -> None:
        writer = rows.writeStream.option("checkpointLocation", str(folder / name))
        writer = writer.format("ignis" if name == "sink" else "noop").option("queue", "orders")
        writer.trigger(availableNow=True).start(path).awaitTermination(120)

    told = {
        "table": error_of(lambda: table.load(path).collect()),
        "source": error_of(lambda: run(stream.load(path), "source")),
        "load": error_of(
            lambda: (
                numbers.write.format("ignis").option("queue", "orders").mode("append").save(path)
            )
        ),
        "sink": error_of(lambda: run(rates, "sink")),
    }
    spark.stop()
    return told


def error_of(work: Callable[[], Any]) -> str:
    """What Spark raises."""
    try:
        work()
    except PySparkException as error:
        return str(error)
    return ""


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
