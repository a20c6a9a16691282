"""A Spark session that keeps its log to itself."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession


@contextmanager
def quiet_spark(log: Path) -> Iterator[SparkSession]:
    """A Spark session of two cores; what Java and the workers say goes to the file *log*."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with _stderr_to(log):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("ignis demo")
            .config("spark.ui.enabled", False)
            .config("spark.ui.showConsoleProgress", False)
            .config("spark.driver.host", "127.0.0.1")
            # A run of a minute: what is compiled must be compiled fast rather than well.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", 2)
            # On a busy machine a worker needs longer than 15 seconds to begin.
            .config("spark.python.authenticate.socketTimeout", "120s")
            # All micro-batches are to be counted in the end.
            .config("spark.sql.streaming.numRecentProgressUpdates", 10_000)
            .config("spark.sql.warehouse.dir", str(log.parent / "warehouse"))
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        for query in spark.streams.active:
            query.stop()
        spark.stop()


@contextmanager
def _stderr_to(log: Path) -> Iterator[None]:
    """Java inherits the standard error of the moment in which it is started, and keeps it."""
    sys.stderr.flush()
    ours = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(ours, 2)
        os.close(ours)
