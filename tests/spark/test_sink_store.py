"""A sink whose store or queue is missing: the first batch makes it, a later one refuses to."""

import shutil

import pytest
from pyspark.errors import StreamingQueryException

from queue_core import Store
from tests.factories import ORDERS, main, make_queue, orders
from tests.spark.rig import AVAILABLE_NOW, finish, wait_until


def copying(rig, trigger=AVAILABLE_NOW):
    """A query from the orders of the rig to a store of its own."""
    writer = rig.source().writeStream.format("ignis").option("queue", "copy")
    writer = writer.option("checkpointLocation", str(rig.folder / "checkpoint"))
    return writer.trigger(**trigger).start(str(rig.folder / "copies"))


def copied(rig):
    """The numbers of the orders in the other store."""
    with Store.open(rig.folder / "copies", create=False) as store:
        return main(store.queue("copy"))


def test_the_store_of_a_query_that_starts_again_is_not_made_anew(rig):
    queue = rig.orders(3)
    finish(copying(rig))
    assert copied(rig) == [0, 1, 2]
    shutil.rmtree(rig.folder / "copies")
    queue.load(orders(2, first=3))

    with pytest.raises(StreamingQueryException) as refused:
        finish(copying(rig))

    told = f"NoSuchStore: there is no ignis store at {rig.folder / 'copies'}, where the query has"
    assert f"{told} loaded its batches before batch 1; nothing was loaded" in str(refused.value)
    assert not (rig.folder / "copies").exists()
    # As the error advises for a new store. The refused batch is not lost.
    with Store.open(rig.folder / "copies") as store:
        with pytest.raises(StreamingQueryException, match="the store has no queue 'copy', where"):
            finish(copying(rig))
        store.create_queue("copy", ORDERS)
    finish(copying(rig))
    assert copied(rig) == [3, 4]


def test_a_queue_that_was_dropped_is_not_made_anew_without_its_settings(rig):
    queue = rig.orders(3)
    query = copying(rig, {"processingTime": "0 seconds"})
    wait_until(lambda: len(rig.log("commits")) > 0, query)
    with Store.open(rig.folder / "copies", create=False) as store:
        store.queue("copy").admin.deactivate()
        store.queue("copy").admin.drop()
        queue.load(orders(2, first=3))

        with pytest.raises(StreamingQueryException) as refused:
            finish(query)

        told = "NoSuchQueue: the store has no queue 'copy', where the query has loaded its batches"
        assert told in str(refused.value)
        assert "create it again with its settings" in str(refused.value)
        assert store.queues() == []
        store.create_queue("copy", ORDERS, dedup=["number"])
        queue.load(orders(2, first=4))
        finish(copying(rig))
        assert copied(rig) == [3, 4, 5]


def test_a_running_query_whose_store_is_removed_fails(rig):
    queue = rig.orders(3)
    query = copying(rig, {"processingTime": "0 seconds"})
    wait_until(lambda: len(rig.log("commits")) > 0, query)
    shutil.rmtree(rig.folder / "copies")
    queue.load(orders(2, first=3))

    with pytest.raises(StreamingQueryException, match=r"there is no ignis store at .*/copies, whe"):
        finish(query)
    assert not (rig.folder / "copies").exists()


def test_a_first_batch_without_rows_makes_the_store(rig):
    queue = make_queue(rig.store)
    finish(copying(rig))
    assert copied(rig) == []

    queue.load(orders(4))
    finish(copying(rig))

    assert copied(rig) == [0, 1, 2, 3]
