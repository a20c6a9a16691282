"""A micro-batch is loaded exactly once, even if Spark repeats it; and the remains of failures."""

import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from tests.books import audit, leftover_files
from tests.factories import main
from tests.spark.rig import PATIENCE, counts, finish

ONCE = {"once": True}
#: Bytes of a row that make a task write a file.
WIDE = 1000


def test_a_batch_that_runs_again_is_loaded_once(rig):
    rig.orders(40, shards=4, key="number")
    stream = rig.source(maxMessagesPerTrigger=20)
    finish(rig.sink(stream, "copy", trigger=ONCE))
    rig.forget_commit()
    finish(rig.sink(stream, "copy", trigger=ONCE))
    copy = rig.store.queue("copy")
    assert counts(copy, "loaded") == [40]
    assert main(copy) == list(range(40))


def test_what_a_repeated_batch_has_staged_is_never_seen_and_removed(rig):
    rig.write(wide(rig, 200), "in")
    finish(rig.sink(rig.source("in"), "copy", trigger=ONCE))
    rig.forget_commit()
    finish(rig.sink(rig.source("in"), "copy", trigger=ONCE))

    assert audit(rig.store).messages
    assert counts(rig.store.queue("copy"), "loaded") == [200]
    (file,) = leftover_files(rig.store)
    assert "/copy/" in file
    assert rig.store.admin.vacuum(grace=0.0) == [file]
    assert rig.store.queue("copy").browse().num_rows == 200


def test_a_batch_that_is_done_with_everywhere_runs_again_empty(rig):
    rig.orders(10)
    finish(rig.sink(rig.source(), "copy"))
    assert counts(rig.store.queue("orders"), "deleted") == [10]
    rig.forget_commit()
    finish(rig.sink(rig.source(), "copy"))
    assert counts(rig.store.queue("copy"), "loaded") == [10]


def test_two_queries_of_their_own_both_load_their_batches(rig):
    rig.orders(3, "red")
    rig.orders(4, "blue")
    finish(rig.sink(rig.source("red"), "all", checkpoint="red"))
    finish(rig.sink(rig.source("blue"), "all", checkpoint="blue"))
    assert counts(rig.store.queue("all"), "loaded") == [7]


def test_a_table_is_appended_as_often_as_it_is_written(rig):
    table = wide(rig, 10)
    rig.write(table, "log")
    rig.write(table, "log")
    assert counts(rig.store.queue("log"), "loaded") == [20]


def test_a_task_that_fails_loads_nothing_and_leaves_what_vacuum_finds(rig):
    rig.write(wide(rig, 0), "copy")
    segments = Path(rig.path, "segments")

    @F.udf("string")
    def explode(number):
        if number < 200:
            return "x" * WIDE
        # The task of the first half has begun its file by then, and soon ends it.
        end = time.monotonic() + PATIENCE
        while not any(segments.rglob("*.arrow")) and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(1)
        raise ValueError("boom")

    halves = rig.spark.range(400, numPartitions=2).select(
        F.col("id").alias("number"), explode("id").alias("text")
    )
    with pytest.raises(PySparkException, match="boom"):
        rig.write(halves, "copy")

    assert rig.store.queue("copy").browse().num_rows == 0
    (left,) = leftover_files(rig.store)
    assert rig.store.admin.vacuum(dry_run=True) == []
    assert rig.store.admin.vacuum(grace=0.0) == [left]


def test_a_stream_whose_task_fails_loads_nothing_and_all_of_it_when_it_is_mended(rig):
    rig.orders(10)
    mended = rig.folder / "mended"

    @F.udf("long")
    def fragile(number):
        import os

        if number == 7 and not os.path.exists(mended):
            raise ValueError("boom")
        return number

    stream = rig.source().withColumn("number", fragile("number"))
    with pytest.raises(StreamingQueryException, match="boom"):
        finish(rig.sink(stream, "copy"))
    assert rig.store.queues() == ["orders"]
    mended.touch()
    finish(rig.sink(stream, "copy"))
    assert rig.arrived() == list(range(10))


def test_a_commit_that_fails_loads_nothing_and_removes_nothing(rig):
    """Spark aborts then. The staged files may be published, so vacuum decides about them."""
    rig.write(wide(rig, 200), "in")
    path = rig.path

    @F.udf("long")
    def meddle(number):
        from queue_core import Store

        with Store.open(path) as store:
            store.create_queue("copy", pa.schema([("number", pa.string())]), exist_ok=True)
        return number

    stream = rig.source("in").withColumn("number", meddle("number"))
    with pytest.raises(StreamingQueryException, match="queue 'copy' was created or changed"):
        finish(rig.sink(stream, "copy"))
    assert rig.store.queue("copy").browse().num_rows == 0
    (left,) = leftover_files(rig.store)
    assert rig.store.admin.vacuum(grace=0.0) == [left]


def wide(rig, count):
    return rig.spark.range(count, numPartitions=1).select(
        F.col("id").alias("number"), F.expr(f"repeat('x', {WIDE})").alias("text")
    )
