"""
The driver that is killed: copies the queue `in` to the queue `out`, or to several.

    python -m tests.crash.spark.driver '{"store": …}'

Takes a `Job` as JSON. Says "up" once its query is started, and ends when the query does.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from pyspark.sql.streaming import StreamingQuery

from pyspark_ignis import tuned
from pyspark_ignis.source import tells_start
from queue_core import Store
from tests.crash.spark.lives import Work

if TYPE_CHECKING:
    from tests.crash.spark.scene import Scene

#: A Spark that starts fast: these lives are short.
SPARK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "1",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=error:stderr"


@dataclass(frozen=True, kw_only=True)
class Job(Work):
    """The work of a driver."""

    #: The options of source and sink that say where the store is.
    store: dict[str, str]
    checkpoint: str
    #: Messages of one micro-batch at most.
    limit: int
    #: The consumer's name, or None for one that the source makes up.
    consumer: str | None = "copier"
    #: Whether a sweep takes what the consumer holds when it is dead.
    sweepable: bool = False
    #: Whether the query ends when `in` is empty.
    until_empty: bool = True
    master: str = "local[2]"
    java_options: str = ""
    #: How many queues `out0` and so on it routes to, by the customer; 0: it copies to `out`.
    routes: int = 0
    command: ClassVar[tuple[str, ...]] = ()

    @staticmethod
    def of(scene: Scene, limit: int, **more: Any) -> Job:
        """A copy within a scene."""
        return Job(
            store={"path": str(scene.store_path)},
            checkpoint=str(scene.checkpoint),
            limit=limit,
            routes=scene.routes,
            **more,
        )


def main(text: str) -> None:
    """Do the job that *text* describes."""
    job = Job.from_json(text)
    spark = session(job.master, job.java_options)
    query = copy(spark, job)
    print("up", flush=True)
    if job.until_empty and not tells_start():
        _stop_when_empty(query, job)
    query.awaitTermination()
    spark.stop()


def session(master: str, java_options: str = "") -> SparkSession:
    """A Spark session of this process."""
    builder = SparkSession.builder.master(master).appName("exactly once")
    java = f"{JAVA_OPTIONS} {java_options}".strip()
    for name, value in (SPARK | {"spark.driver.extraJavaOptions": java}).items():
        builder = builder.config(name, value)
    return tuned(builder).getOrCreate()


def copy(spark: SparkSession, job: Job) -> StreamingQuery:
    """The query, started."""
    source = (
        job.store
        | {
            "queue": "in",
            "maxMessagesPerTrigger": job.limit,
            "numPartitions": 2,
            "sweepable": job.sweepable,
        }
        | ({"consumer": job.consumer} if job.consumer else {})
    )
    rows = spark.readStream.format("ignis").options(**source).load()
    target = {"queue": "out", "key": "customer"}
    if job.routes:
        rows = rows.withColumn("_to", expr(f"concat('out', int(customer) % {job.routes})"))
        target = {"queueColumn": "_to"}
    writer = rows.writeStream.format("ignis").options(
        **job.store, **target, checkpointLocation=job.checkpoint
    )
    # Before Spark 4.2, AvailableNow runs one batch.
    if job.until_empty and tells_start():
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime="0 seconds").start()


def _stop_when_empty(query: StreamingQuery, job: Job) -> None:
    """Stop a query once no message waits or is in flight."""
    with Store.open(**job.store) as store:
        queue = store.queue("in")
        while query.isActive:
            shards = queue.metadata()
            if not any(sum(shards.column(name).to_pylist()) for name in ("waiting", "in_flight")):
                query.stop()
            time.sleep(0.2)


if __name__ == "__main__":
    main(sys.argv[1])
