"""A subscription is read as any queue: in streams, as a table, and by a settling sink."""

import pytest
from pyspark.sql import functions as F

from queue_core.errors import BadOption
from tests.factories import orders
from tests.spark.rig import assert_rows, counts, finish, wait_until

OFTEN = {"processingTime": "100 milliseconds"}


def test_two_streams_read_one_log(rig):
    """A query that ends now takes in what is there when it begins, and no more."""
    queue = rig.orders(6, log="7 days", shards=2, key="number")
    seen = []

    def load_more(batch, number):
        seen.extend(row.number for row in batch.collect())
        queue.load(orders(6, first=100 * (number + 1)))

    reader = rig.store.subscribe("billing", to="orders", start="earliest")
    finish(rig.each(rig.source("billing", maxMessagesPerTrigger=2), load_more))

    assert sorted(seen) == list(range(6))
    # All that was loaded meanwhile, once for each batch.
    assert counts(reader, "waiting")[0] == counts(queue, "waiting")[0] - 6 >= 18


def test_a_query_brings_what_is_loaded_into_the_root(rig):
    queue = rig.orders(2, log="7 days")
    rig.store.subscribe("billing", to="orders", start="earliest")
    seen = []
    query = rig.each(
        rig.source("billing"), lambda rows, _: seen.extend(rows.collect()), trigger=OFTEN
    )
    wait_until(lambda: len(seen) == 2, query)
    queue.load(orders(3, first=2))
    wait_until(lambda: len(seen) == 5, query)
    query.stop()
    assert sorted(row.number for row in seen) == [0, 1, 2, 3, 4]


def test_a_settling_sink_settles_only_its_own(rig):
    queue = rig.orders(6, log="7 days")
    reader = rig.store.subscribe("billing", to="orders", start="earliest")
    assert_rows(rig.read("billing").select("number"), 0, 1, 2, 3, 4, 5)
    stream = rig.source("billing", ack="settle", consumer="clerk")
    failed = F.when(F.col("number") < 2, "sideline").otherwise("delete")
    outcomes = stream.select("_message_id", failed.alias("outcome"))
    finish(rig.sink(outcomes, "billing", mode="settle", consumer="clerk"))

    assert counts(reader, "deleted", "sidelined") == [4, 2]
    assert counts(queue, "waiting", "deleted") == [6, 0]


@pytest.mark.parametrize("logged", [pytest.param(True, marks=pytest.mark.nightly), False])
def test_a_query_goes_on_after_a_seek(rig, logged):
    """Its tickets are empty; each message comes again, once, in a later batch."""
    rig.orders(10, log="7 days")
    reader = rig.store.subscribe("billing", to="orders", start="earliest")

    def copies(trigger):
        writer = rig.source("billing").writeStream.trigger(**trigger)
        writer = writer.option("checkpointLocation", str(rig.folder / "checkpoint"))
        finish(writer.format("ignis").option("queue", "copy").start(rig.path))
        return rig.arrived()

    assert copies({"once": True}) == list(range(10))
    if not logged:
        rig.forget_commit()
    reader.admin.pause()
    with pytest.raises(BadOption, match="10 messages of queue 'billing' are in flight, with spark"):
        reader.admin.seek("earliest")
    reader.admin.seek("earliest", force=True)
    reader.admin.resume()

    assert copies({"availableNow": True}) == sorted([*range(10)] * 2)
    assert counts(reader, "in_flight", "waiting", "sidelined") == [0, 0, 0]


def test_a_query_gets_what_its_selector_matches_and_ends_when_it_is_detached(rig):
    queue = rig.orders(10, log="7 days")
    reader = rig.store.subscribe("even", to="orders", start="earliest", selector="number % 2 = 0")
    seen = []
    query = rig.each(rig.source("even"), lambda rows, _: seen.extend(rows.collect()), trigger=OFTEN)
    wait_until(lambda: len(seen) == 5, query)
    queue.load(orders(4, first=10))
    wait_until(lambda: len(seen) == 7, query)
    assert sorted(row.number for row in seen) == list(range(0, 14, 2))
    reader.admin.detach()
    wait_until(lambda: not query.isActive)
    assert "'even' is detached" in str(query.exception())
