"""Side tasks of a whole store as a query of its own, beside the queries that consume."""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_ignis.spark_session import activate, finding_ignis
from queue_core.errors import BadOption
from queue_core.upkeep.tasks.registry import TASKS

#: Where the side tasks run: in a thread, in a query of their own, or in neither.
THREAD, STREAM, NONE = "thread", "stream", "none"
#: The folder of the query's checkpoint, within that of the query or the manager that starts it.
FOLDER = "_side-tasks"
#: The name of the observed metrics.
OBSERVED = "ignis_side_tasks"
#: Options that both queries have.
_SHARED = ("path", "catalog", "storage", "zookeeper", "clientId", "refreshInterval")

_lock = threading.Lock()
#: How many running queries need each query of side tasks, by its name.
_needs: dict[str, int] = {}

_log = logging.getLogger(__name__)


def check_side_tasks(where: str) -> str:
    """Return *where* if it is one of the ways to run side tasks; raises `BadOption`."""
    if where not in (THREAD, STREAM, NONE):
        raise BadOption(
            f"side_tasks={where!r}: use 'thread' (in the process of the driver), 'stream' (in a "
            "query of their own, on the executors) or 'none'"
        )
    return where


def side_task_stream(
    spark: SparkSession,
    options: Mapping[str, Any],
    checkpoint: str,
    tasks: Collection[str] = TASKS,
) -> StreamingQuery:
    """Start the query that runs side tasks of a store when they are due; it shows what it moved."""
    given = {name: str(options[name]) for name in _SHARED if options.get(name) is not None}
    activate(spark)
    with finding_ignis():
        reader = spark.readStream.format("ignis").options(**given)
        reports = reader.option("task", ",".join(tasks)).load()
    writer = observed(reports, tasks).writeStream.format("noop").queryName(name_of(given))
    return writer.option("checkpointLocation", f"{checkpoint}/{FOLDER}").start()


def observed(reports: DataFrame, tasks: Collection[str]) -> DataFrame:
    """Count the moved messages of each task, for the progress of the query."""
    counts = [
        F.coalesce(F.sum(F.when(F.col("task") == task, F.col("moved"))), F.lit(0)).alias(task)
        for task in tasks
    ]
    return reports.observe(OBSERVED, *counts)


def name_of(options: Mapping[str, Any]) -> str:
    """Return the name of a store's query of side tasks, the same for each query of the store."""
    return f"ignis side tasks {mark_of(options)}"


def mark_of(options: Mapping[str, Any]) -> str:
    """Return the word that tells a store from others in the names of queries."""
    address = repr([str(options.get(name)) for name in _SHARED[:3]])
    return hashlib.sha256(address.encode()).hexdigest()[:8]


def beside(
    spark: SparkSession,
    query: StreamingQuery,
    options: Mapping[str, Any],
    checkpoint: str,
) -> None:
    """
    Run the side tasks of a store in a query of their own while *query* runs.

    Queries of one session and store share it: the first starts it, and the last one's end stops it.
    """
    name = name_of(options)
    with _lock:
        _needs[name] = _needs.get(name, 0) + 1
        try:
            if not _running(spark, name):
                side_task_stream(spark, options, checkpoint)
        except BaseException:
            _needs[name] -= 1
            query.stop()
            raise

    def end() -> None:
        # An error of the query is for those who started it.
        with suppress(Exception):
            query.awaitTermination()
        with _lock:
            _needs[name] -= 1
            if _needs[name]:
                return
            try:
                for running in _running(spark, name):
                    running.stop()
            except Exception as error:  # noqa: BLE001 - Spark itself may have ended
                _log.info("the query %r ends with Spark: %s", name, error)

    threading.Thread(target=end, name="ignis-side-tasks", daemon=True).start()


def _running(spark: SparkSession, name: str) -> list[StreamingQuery]:
    return [query for query in spark.streams.active if query.name == name]
