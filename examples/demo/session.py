"""A Spark session that logs to a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession


@contextmanager
def quiet_spark(log: Path) -> Iterator[SparkSession]:
    """Start a Spark session with two cores; Java and the workers write to the file *log*."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with _stderr_to(log):
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("ignis demo")
            .config("spark.ui.enabled", False)
            .config("spark.ui.showConsoleProgress", False)
            .config("spark.driver.host", "127.0.0.1")
            # The run takes a minute, so compiling quickly matters more than compiling well.
            .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
            .config("spark.sql.session.timeZone", "UTC")
            .config("spark.sql.shuffle.partitions", 2)
            # On a busy machine a worker needs more than the default 15 seconds to start.
            .config("spark.python.authenticate.socketTimeout", "120s")
            # Keep the progress of all micro-batches, to count them at the end.
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
    """Redirect standard error while Java starts, because Java inherits it then and keeps it."""
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
