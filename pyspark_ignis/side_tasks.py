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

from pyspark_ignis.spark_session import finding_ignis, prepare
from queue_core.errors import BadOption
from queue_core.upkeep.tasks.registry import TASKS

#: Where the side tasks run: in a thread, in a query of their own, or in neither.
THREAD, STREAM, NONE = "thread", "stream", "none"
#: The folder of the query's checkpoint, within that of the query or the manager that starts it.
FOLDER = "_side-tasks"
#: The name of the observed metrics.
OBSERVED = "ignis_side_tasks"
#: Seconds between two looks whether it still runs.
MENDING_SECONDS = 10
#: Options that both queries have.
_SHARED = ("path", "catalog", "storage", "zookeeper", "clientId", "refreshInterval")

_lock = threading.Lock()
#: The running queries that need each query of side tasks, by the session and its name.
_needs: dict[tuple[str, str], list[object]] = {}
#: Those that were started here; a manager may have started one of the same name.
_started: dict[tuple[str, str], StreamingQuery] = {}

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
    own = f"{checkpoint}/{FOLDER}"
    prepare(spark, own)
    with finding_ignis():
        reader = spark.readStream.format("ignis").options(**given)
        reports = reader.option("task", ",".join(tasks)).load()
    writer = observed(reports, tasks).writeStream.format("noop").queryName(name_of(given, tasks))
    return writer.option("checkpointLocation", own).start()


def observed(reports: DataFrame, tasks: Collection[str]) -> DataFrame:
    """Count the moved messages of each task, for the progress of the query."""
    counts = [
        F.coalesce(F.sum(F.when(F.col("task") == task, F.col("moved"))), F.lit(0)).alias(task)
        for task in tasks
    ]
    return reports.observe(OBSERVED, *counts)


def name_of(options: Mapping[str, Any], tasks: Collection[str] = TASKS) -> str:
    """Return the name of a store's query of side tasks: one for all tasks, others for some."""
    some = "" if {*tasks} == {*TASKS} else f" ({', '.join(sorted(tasks))})"
    return f"ignis side tasks {mark_of(options)}{some}"


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

    Queries of one session and store share it: the first one starts it, and it stops with the last.
    If it ends earlier, such as when the checkpoint that holds its own is removed, another query
    starts it again.
    """
    name = name_of(options)
    key, need = (_id_of(spark), name), object()

    def start() -> None:
        if not running_as(spark, name):
            _started[key] = side_task_stream(spark, options, checkpoint)

    def leave() -> None:
        _needs[key].remove(need)
        try:
            if not _needs[key] and key in _started:
                _started.pop(key).stop()
        except Exception as error:  # noqa: BLE001 - Spark itself may have ended
            _log.info("the query %r ends with Spark: %s", name, error)

    def mend() -> None:
        with _lock:
            # One of those that need it is enough.
            if _needs[key][0] is need and not running_as(spark, name):
                _log.warning("the query %r has ended, and is started again", name)
                start()

    def watch() -> None:
        # An error of the query is for those who started it.
        with suppress(Exception):
            while not query.awaitTermination(MENDING_SECONDS):
                try:
                    mend()
                except Exception as error:  # noqa: BLE001 - it is tried again
                    _log.warning("the query %r cannot be started again: %s", name, error)
        with _lock:
            leave()

    with _lock:
        _needs.setdefault(key, []).append(need)
        try:
            start()
            threading.Thread(target=watch, name="ignis-side-tasks", daemon=True).start()
        except BaseException:
            leave()
            query.stop()
            raise


def _id_of(spark: SparkSession) -> str:
    """Return the id of a session, whose queries are its own."""
    java = getattr(spark, "_jsparkSession", None)
    return str(spark.session_id if java is None else java.sessionUUID())  # type: ignore[attr-defined]


def running_as(spark: SparkSession, name: str) -> bool:
    """Return whether a query of that name runs in a session."""
    return any(query.name == name for query in spark.streams.active)
