"""Spark finds `ignis` by itself, under any spelling and from SQL; and options are refused early."""

import pytest
from pyspark.errors import PySparkException

from pyspark_ignis.source import IgnisDataSource
from tests.spark.rig import assert_rows, assert_same, counts, finish


def test_spark_knows_ignis_with_nothing_registered(rig):
    """In any session, in any case; and it can be registered as well."""
    rig.orders(2)
    registered = rig.spark.newSession()
    registered.dataSource.register(IgnisDataSource)
    other = rig.spark.newSession()
    for session, name in (
        *((rig.spark, "IGNIS"), (other, "ignis")),
        *((registered, "ignis"), (registered, "IGNIS")),
    ):
        table = session.read.format(name).options(queue="orders", path=rig.path).load()
        assert table.count() == 2


def test_a_view_in_sql_reads_a_queue(rig):
    queue = rig.orders(3)
    rig.spark.sql(
        f"CREATE TEMPORARY VIEW shop USING ignis OPTIONS (path '{rig.path}', queue 'orders')"
    )
    try:
        assert_rows(rig.spark.sql("SELECT number FROM shop WHERE number > 0"), 1, 2)
    finally:
        rig.spark.catalog.dropTempView("shop")
    assert counts(queue, "waiting") == [3]


@pytest.mark.parametrize("form", ["file:{}", "file://{}"])
def test_a_path_may_be_a_file_uri(rig, form):
    rig.orders(2)
    uri = form.format(rig.path)
    read = rig.spark.read.format("ignis").option("queue", "orders")
    read.load(uri).write.format("ignis").mode("append").option("queue", "copy").save(uri)
    assert_rows(rig.read("copy").select("number"), 0, 1)


def test_a_source_refuses_wrong_options_when_it_is_made_all_of_them_at_once(rig):
    queue = rig.orders(1)
    with pytest.raises(PySparkException) as refused:
        rig.source(maxMessagePerTrigger=5, ack="sometimes")
    # Spark hands options over in small letters.
    meant = "unknown option 'maxmessagepertrigger'; did you mean 'maxMessagesPerTrigger'?"
    assert meant in str(refused.value)
    assert "ack='sometimes': use onCommit, settle, browse" in str(refused.value)
    with pytest.raises(PySparkException, match="unknown option 'queu'; did you mean 'queue'"):
        rig.read(None, queu="orders")
    assert counts(queue, "fired") == [0]


def test_a_sink_refuses_wrong_options_and_writes_nothing(rig):
    queue = rig.orders(1)
    with pytest.raises(PySparkException) as refused:
        rig.write(rig.read(), "copy", shard=3, mergeSchema="maybe")
    assert "unknown option 'shard'; did you mean 'shards'?" in str(refused.value)
    assert "mergeSchema='maybe': use true or false" in str(refused.value)
    with pytest.raises(PySparkException, match="unknown option 'kee'; did you mean 'key'"):
        finish(rig.sink(rig.source(), "copy", kee="number"))
    assert rig.store.queues() == ["orders"]
    assert counts(queue, "deleted") == [0]


@pytest.mark.postgres
def test_a_catalog_in_postgresql_with_a_storage_apart_works_from_end_to_end(
    rig, postgres, tmp_path
):
    place = {"storage": str(tmp_path / "segments")}
    with postgres.database() as url:
        place["catalog"] = url
        numbers = rig.spark.range(5000).withColumnRenamed("id", "number")
        writer = numbers.write.format("ignis").mode("append").options(queue="in", **place)
        writer.option("key", "number").save()

        stream = rig.spark.readStream.format("ignis").options(queue="in", consumer="mover", **place)
        stream = stream.option("maxMessagesPerTrigger", 3000).load()
        move = stream.writeStream.format("ignis").options(queue="out", **place)
        move = move.option("checkpointLocation", str(tmp_path / "move"))
        finish(move.trigger(availableNow=True).start())

        held = rig.spark.readStream.format("ignis").options(queue="out", **place)
        held = held.options(consumer="judge", ack="settle").load()
        judged = held.selectExpr(
            "_message_id", "if(number % 10 = 0, 'sideline', 'delete') AS outcome", "'ten' AS reason"
        )
        settle = judged.writeStream.format("ignis").options(queue="out", mode="settle", **place)
        settle = settle.options(consumer="judge", checkpointLocation=str(tmp_path / "settle"))
        finish(settle.trigger(availableNow=True).start())

        table = rig.spark.read.format("ignis").options(queue="out", magazine="sideline", **place)
        assert_same(table.load().select("number"), rig.spark.range(0, 5000, 10).toDF("number"))
        view = rig.spark.read.format("ignis").options(view="failures", **place).load()
        assert_rows(view.groupBy("queue", "reason").count(), ("out", "ten", 500))
