"""The first run: three streaming queries, from files to the mean delay per carrier and hour.

files ──load──▶ flights ──handle──▶ delays ──count──▶ mean delay per carrier and hour
                   └──▶ sideline: never departed

"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from examples.demo.flights import write_parquet
from examples.demo.queries import batches, count, finish, load
from examples.demo.samples import Sample, Sampler
from examples.demo.work import ONCE, delays, publishing_delays
from pyspark_ignis import consume
from queue_core import Queue, Store

#: Number of input files, by default.
FILES = 12
#: At most this many messages per micro-batch.
BATCH = 25_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of the first run."""

    #: At least one sample; the last one is from the end.
    samples: list[Sample]
    #: The columns of `flights.delays_of`.
    delays: pa.Table
    #: Number of sidelined flights by reason, the most frequent first.
    reasons: dict[str, int]
    #: Number of micro-batches with rows, by query.
    batches: dict[str, int]


def run(
    spark: SparkSession,
    flights: pa.Table,
    store: Path,
    show: Callable[[Sample], None],
    *,
    files: int = FILES,
) -> Run:
    """Stream the flights through a new store in the folder *store*."""
    write_parquet(flights, store / "files", files)
    queue = Store.open(store).create_queue("flights", flights.schema, key="carrier", retry=ONCE)
    with Sampler(queue, show, next_queue=delays(str(store))) as sampler:
        loading = load(spark, store / "files", store)
        handling = consume(
            spark,
            "flights",
            publishing_delays(str(store)),
            path=store,
            checkpoint=store / "checkpoints" / "handle",
            max_messages=BATCH,
            numPartitions=2,
        )
        counting = count(spark, store)
        loading.awaitTermination()
        finish(handling)
        finish(counting)
    return Run(
        samples=sampler.samples,
        delays=spark.table("mean_delays").orderBy("carrier", "hour").toArrow(),
        reasons=reasons(queue),
        batches={"load": batches(loading), "handle": batches(handling), "count": batches(counting)},
    )


def reasons(queue: Queue) -> dict[str, int]:
    """Count the sidelined messages by reason, the most frequent first."""
    counted = pc.value_counts(queue.failures()["reason"]).to_pylist()
    return {
        each["values"]: each["counts"]
        for each in sorted(counted, key=lambda each: -int(each["counts"]))
    }
