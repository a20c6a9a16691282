"""A catalog in PostgreSQL and segments in a bucket, as for a cluster of machines."""

import pytest

from queue_core import Store
from tests.books import audit
from tests.factories import make_queue, orders
from tests.spark.rig import AVAILABLE_NOW, assert_same, finish

pytestmark = [pytest.mark.nightly, pytest.mark.s3, pytest.mark.postgres]

ROWS = 20_000


@pytest.fixture
def where(object_store):
    """The storage of a store, as options; the test says where the catalog is."""
    return {"storage": object_store.bucket()}


def test_messages_go_from_queue_to_queue_over_a_bucket(spark, postgres, where, tmp_path):
    with postgres.database() as catalog, Store.open(catalog=catalog, **where) as store:
        where["catalog"] = catalog
        make_queue(store, shards=2, key="customer").load(orders(ROWS))
        copied = spark.readStream.format("ignis").options(**where, queue="orders").load()
        sink = copied.writeStream.format("ignis").options(**where, queue="copies", key="customer")
        sink = sink.option("checkpointLocation", str(tmp_path / "checkpoint"))
        finish(sink.trigger(**AVAILABLE_NOW).start())

        copies = spark.read.format("ignis").options(**where, queue="copies").load()
        expected = spark.createDataFrame(orders(ROWS))
        assert_same(copies.select("number", "customer", "amount"), expected)
        assert len(audit(store).ids()) == ROWS, "what was copied is not in the first queue as well"
        assert any(location.startswith("segments/copies/") for location in store.storage.list())
        secret = where["storage"].partition("@")[0].encode()
        notes = [file for file in (tmp_path / "checkpoint").rglob("*") if file.is_file()]
        assert notes
        assert not any(secret in note.read_bytes() for note in notes)


def test_executors_read_without_the_catalog(spark, postgres, where):
    with postgres.database() as catalog:
        with Store.open(catalog=catalog, **where) as store:
            make_queue(store).load(orders(ROWS))
        messages = spark.read.format("ignis").options(**where, catalog=catalog, queue="orders")
        planned = messages.load().select("number")
        assert planned.count() == ROWS

    # The database is gone now; the plan is Spark's still.
    assert_same(planned, spark.createDataFrame(orders(ROWS)).select("number"))
