"""A session that `tuned` has set up; as a script, it prints what came of it as JSON."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_ignis import tuned
from queue_core import Store

JAVA = "spark.driver.defaultJavaOptions"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


def options(builder: Any) -> dict[str, str]:
    """The settings of a builder."""
    return dict(builder._options)


def main(folder: Path) -> dict[str, Any]:
    """Build sessions in several ways, and start the last one."""
    told: dict[str, Any] = {}
    told["cluster"] = options(tuned(SparkSession.builder.master("spark://host:7077")))
    told["home on a cluster"] = os.environ.get("SPARK_HOME")
    told["remote"] = options(tuned(SparkSession.builder.remote("sc://host"), brief=True))
    own = SparkSession.builder.master("yarn").config("spark.driver.extraJavaOptions", "-Xss4m")
    told["own java"] = options(tuned(own, brief=True))
    os.environ["SPARK_SUBMIT_OPTS"] = "-XX:+UseZGC"
    told["java of the environment"] = options(
        tuned(SparkSession.builder.master("yarn"), brief=True)
    )
    del os.environ["SPARK_SUBMIT_OPTS"]
    for name, limit, value in (("own bytes", BYTES, "1m"), ("own rows", ROWS, "0")):
        own = SparkSession.builder.master("yarn").config(limit, value)
        told[name] = options(tuned(own, small_rows=True))
    told["small rows on a cluster"] = options(
        tuned(SparkSession.builder.master("yarn"), small_rows=True)
    )
    told["python of a cluster"] = os.environ.get("PYSPARK_PYTHON")
    os.environ |= {"SPARK_HOME": "/opt/spark", "PYSPARK_PYTHON": "/opt/python"}
    tuned(SparkSession.builder)
    told["own home"] = os.environ.pop("SPARK_HOME")
    told["own python"] = os.environ.pop("PYSPARK_PYTHON")
    tuned(SparkSession.builder.config("spark.pyspark.python", "/opt/python"))
    told["python of the builder"] = os.environ.get("PYSPARK_PYTHON")
    os.environ.pop("SPARK_HOME", None)

    mine = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = tuned(mine, brief=True, small_rows=True).getOrCreate()
    told["home"] = os.environ["SPARK_HOME"]
    told["java"] = spark.conf.get(JAVA)
    told["bytes"] = spark.conf.get(BYTES)
    jvm = spark.sparkContext._jvm
    beans = jvm.java.lang.management.ManagementFactory.getGarbageCollectorMXBeans()
    told["collectors"] = [bean.getName() for bean in beans]
    told["running"] = options(tuned(SparkSession.builder, brief=True))

    def where(_: Any) -> Any:
        import pyspark.worker

        yield pyspark.worker.__file__, Path(pyspark.worker.__cached__).is_file()

    told["worker"] = spark.sparkContext.parallelize([1], 1).mapPartitions(where).first()
    told["pyspark"] = str(Path(importlib.util.find_spec("pyspark").origin).parent)

    path = str(folder / "store")
    with Store.open(path) as store:
        store.create_queue("in", pa.schema([("n", pa.int64())])).load([{"n": 1}, {"n": 2}])
        rows = spark.readStream.format("ignis").option("queue", "in").load(path)
        writer = rows.writeStream.format("ignis").option("queue", "out")
        writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
        assert writer.trigger(availableNow=True).start(path).awaitTermination(120)
        told["moved"] = store.queue("out").browse().column("n").to_pylist()
    spark.stop()
    return told


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]))))
