"""What each start of a query needs: an active session, a usable checkpoint, and to find ignis."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

from queue_core.errors import BadOption


def prepare(spark: SparkSession, checkpoint: str) -> None:
    """
    Make a session the active one of this thread, and clear a false start from a checkpoint.

    Spark looks in the active session for formats that are written in Python, and a new thread has
    none: creating a DataFrame gives it one. A query that ended while it wrote its first offsets
    left a hidden file, and some versions of Spark refuse a checkpoint without other offsets.
    """
    spark.createDataFrame([], "nothing INT")
    java, jvm = getattr(spark, "_jsparkSession", None), getattr(spark, "_jvm", None)
    if java is None or jvm is None:
        # The checkpoint is for the server of Spark Connect.
        return
    folder = jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/offsets")
    files = folder.getFileSystem(java.sessionState().newHadoopConf())
    if files.exists(folder):
        names = [each.getPath().getName() for each in files.listStatus(folder)]
        if names and all(name.startswith(".") for name in names):
            files.delete(folder, True)


_CONDITION = "DATA_SOURCE_NOT_FOUND"


@contextmanager
def finding_ignis() -> Iterator[None]:
    """Raise `BadOption` in place of Spark's error if Spark's Python does not find ignis."""
    try:
        yield
    except Exception as error:
        # It may come from the JVM as it is, or translated by PySpark.
        if _CONDITION not in str(error):
            raise
        theirs = os.environ.get("PYSPARK_PYTHON") or "the python3 of the PATH"
        raise BadOption(
            f"Spark does not find ignis: Spark runs {theirs}, and this program runs "
            f"{sys.executable}; set PYSPARK_PYTHON={sys.executable} before Spark starts, or "
            "install ignis in Spark's Python"
        ) from error
