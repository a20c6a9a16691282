"""Experiments: what Spark makes impossible, as docs/seeds.md says."""

import json
import time
from pathlib import Path

import pytest
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

from queue_core import tracing
from tests.factories import make_queue, orders
from tests.spark.rig import wait_until

#: Seconds between two micro-batches.
TICK = 3.0


class Looking(WriterCommitMessage):
    """What a task found: how many buffers it was given, and how many it could write into."""

    def __init__(self, buffers: int, mutable: int) -> None:
        self.found = [buffers, mutable]


class LookingSink(DataSource):
    """A sink that keeps nothing, and notes whether it could have given the memory of its rows."""

    @classmethod
    def name(cls):
        return "looking"

    def writer(self, schema, overwrite):
        return LookingWriter(self.options["path"])


class LookingWriter(DataSourceArrowWriter):
    def __init__(self, path):
        self.path = path

    def write(self, iterator):
        columns = [column for batch in iterator for column in batch.columns]
        buffers = [buffer for column in columns for buffer in column.buffers() if buffer]
        return Looking(len(buffers), sum(buffer.is_mutable for buffer in buffers))

    def commit(self, messages):
        Path(self.path).write_text(json.dumps([message.found for message in messages]))


def test_a_sink_is_given_finished_rows_and_has_no_buffer_to_give_out(rig):
    """So a producer in Spark cannot request one and write into it."""
    rig.spark.dataSource.register(LookingSink)
    told = rig.folder / "told"
    rig.spark.range(1000).write.format("looking").mode("append").save(str(told))

    buffers, mutable = zip(*json.loads(told.read_text()), strict=True)
    assert sum(buffers) > 0
    assert sum(mutable) == 0


@pytest.mark.nightly
def test_no_source_can_wake_spark_and_a_query_has_no_steps(rig):
    """So a query is in none of the lists of consumers: nothing notifies it, and it is asked."""
    queue = make_queue(rig.store, shards=1)
    seen = {}

    def note(batch, _):
        seen.update((row.number, time.monotonic()) for row in batch.collect())

    with tracing() as traced:
        query = rig.each(rig.source(), note, trigger={"processingTime": f"{TICK} seconds"})
        queue.load(orders(1))
        wait_until(lambda: 0 in seen, query)
        # Spark begins its batches at multiples of the interval.
        time.sleep(TICK - time.time() % TICK + 0.5)
        loaded = time.monotonic()
        queue.load(orders(1, 1))
        wait_until(lambda: 1 in seen, query)
        query.stop()

    assert seen[1] - loaded > TICK / 2, "the load has woken the query"
    assert traced.steps == []
