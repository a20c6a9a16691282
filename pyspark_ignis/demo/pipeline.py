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

from pyspark_ignis.consuming import consume
from pyspark_ignis.demo.flights import write_parquet
from pyspark_ignis.demo.queries import batches, count, finish, load
from pyspark_ignis.demo.samples import Sample, Sampler
from pyspark_ignis.demo.work import delays, publishing_delays
from queue_core import Queue, Store

#: How many files the flights come in, unless said.
FILES = 12
#: Messages of one micro-batch at most.
BATCH = 25_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What the first run has done."""

    #: At least one; the last is of the end.
    samples: list[Sample]
    #: As `flights.delays_of` computes it.
    delays: pa.Table
    #: How many flights were sidelined for each reason, the most frequent first.
    reasons: dict[str, int]
    #: How many micro-batches with rows each query had.
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
    queue = Store.open(store).create_queue("flights", flights.schema, key="carrier")
    with Sampler(queue, show, behind=delays(str(store))) as sampler:
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
    """How many messages were sidelined for each reason, the most frequent first."""
    counted = pc.value_counts(queue.failures()["reason"]).to_pylist()
    return {
        each["values"]: each["counts"]
        for each in sorted(counted, key=lambda each: -int(each["counts"]))
    }
