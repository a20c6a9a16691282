"""Helpers of the tests of source and sink: a store, its queues, and queries over them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from chispa import assert_df_equality
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.streaming import StreamingQuery

from queue_core import Queue, Store
from tests.crash.spark import checkpoint
from tests.factories import main, make_filled
from tests.tree import ROOT

#: Long enough for any query of a test, on a busy machine.
PATIENCE = 90.0

AVAILABLE_NOW = {"availableNow": True}


class Rig:
    """A Spark session, and a store in a folder of the test's own; its catalog may be elsewhere."""

    def __init__(self, spark: SparkSession, folder: Path, catalog: str | None = None) -> None:
        self.spark = spark
        self.folder = folder
        self.path = str(folder / "store")
        #: The options that name the store; those of `path` by default.
        self.place = {} if catalog is None else {"catalog": catalog, "storage": self.path}
        self.store = Store.open(**self.place) if catalog else Store.open(self.path)

    def orders(self, count: int, name: str = "orders", **shape: Any) -> Queue:
        """A queue of *count* orders, in one shard by default."""
        return make_filled(self.store, count, name, **shape)

    def source(
        self, queue: str | None = "orders", schema: str | None = None, **options: Any
    ) -> DataFrame:
        """A queue as a stream."""
        return self._load(self._reader(self.spark.readStream, queue, schema, options))

    def read(
        self, queue: str | None = "orders", schema: str | None = None, **options: Any
    ) -> DataFrame:
        """A queue as a table."""
        return self._load(self._reader(self.spark.read, queue, schema, options))

    def view(self, view: str, queue: str | None = None, schema: str | None = None) -> DataFrame:
        """Something about the store as a table."""
        return self._reader(self.spark.read, queue, schema, {"view": view}).load(self.path)

    def write(self, rows: DataFrame, queue: str | None = "orders", **options: Any) -> None:
        """Load or settle a table."""
        writer = rows.write.format("ignis").mode("append").options(**options)
        writer = writer if queue is None else writer.option("queue", queue)
        writer.save(self.path)

    def sink(
        self,
        rows: DataFrame,
        queue: str | None = "orders",
        *,
        checkpoint: str = "checkpoint",
        trigger: dict[str, Any] = AVAILABLE_NOW,
        **options: Any,
    ) -> StreamingQuery:
        """A query that writes a stream into a queue, or settles it."""
        writer = rows.writeStream.format("ignis").options(**options)
        writer = writer if queue is None else writer.option("queue", queue)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        return writer.trigger(**trigger).start(self.path)

    def each(
        self,
        rows: DataFrame,
        handle: Callable[[DataFrame, int], None],
        *,
        checkpoint: str = "checkpoint",
        trigger: dict[str, Any] = AVAILABLE_NOW,
    ) -> StreamingQuery:
        """A query that hands its micro-batches to a function."""
        writer = rows.writeStream.foreachBatch(handle)
        writer = writer.option("checkpointLocation", str(self.folder / checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def batches(self, rows: DataFrame, **how: Any) -> list[list[Row]]:
        """The rows of each micro-batch that is not empty, until there are no more."""
        seen: list[list[Row]] = []
        finish(self.each(rows, lambda batch, _: seen.append(batch.collect()), **how))
        return [batch for batch in seen if batch]

    def numbers(self, rows: DataFrame, **how: Any) -> list[list[int]]:
        """The same, which orders they are."""
        return [[row.number for row in batch] for batch in self.batches(rows, **how)]

    def arrived(self) -> list[int]:
        """Which orders are in the queue `copy`, sorted."""
        return main(self.store.queue("copy"))

    def log(self, kind: str) -> dict[int, Path]:
        """Spark's own notes in a checkpoint, `offsets` or `commits`: a file for each batch."""
        folder = self.folder / "checkpoint" / kind
        return {int(file.name): file for file in folder.iterdir() if file.name.isdecimal()}

    def forget_commit(self) -> None:
        """Take back Spark's last note that a batch is committed."""
        assert checkpoint.forget_commit(self.folder / "checkpoint"), "Spark has noted none"

    def _load(self, reader: Any) -> DataFrame:
        return reader.options(**self.place).load() if self.place else reader.load(self.path)

    @staticmethod
    def _reader(reader: Any, queue: str | None, schema: str | None, options: Any) -> Any:
        reader = reader.format("ignis").options(**options)
        reader = reader.option("queue", queue) if queue is not None else reader
        return reader.schema(schema) if schema is not None else reader


class Disaster(Exception):
    """It ends a query."""


def numbers_in(batch: DataFrame) -> list[int]:
    """Which orders a micro-batch has."""
    return [row.number for row in batch.collect()]


def finish(query: StreamingQuery) -> None:
    """Wait for the end of a query that ends by itself; raises its error."""
    assert query.awaitTermination(PATIENCE), "the query did not end"


def wait_until(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Wait for something that a running query brings about."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        assert query is None or query.isActive, query.exception()
        time.sleep(0.02)


def counts(queue: Queue, *names: str, magazine: str = "main") -> Sequence[int]:
    """Some counters of a magazine, over all its shards."""
    table = queue.metadata().filter(pa.compute.field("magazine") == magazine)
    return [sum(table.column(name).to_pylist()) for name in names]


def assert_same(found: DataFrame, expected: DataFrame) -> None:
    """Assert that two DataFrames have the same columns and rows, in any order."""
    assert_df_equality(found, expected, ignore_row_order=True, ignore_nullable=True)


def assert_rows(found: DataFrame, *rows: object) -> None:
    """Assert that a DataFrame has these rows, in any order; that of one column is its value."""
    tuples = [row if isinstance(row, tuple) else (row,) for row in rows]
    assert sorted(map(tuple, found.collect()), key=repr) == sorted(tuples, key=repr)


def told_by(script: str, folder: Path, environment: dict[str, str] | None = None) -> Any:
    """Run a script of `tests.spark` in a process of its own; return the JSON that it prints."""
    done = subprocess.run(
        [sys.executable, "-m", f"tests.spark.{script}", str(folder)],
        cwd=ROOT,
        env=dict(os.environ) if environment is None else environment,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
