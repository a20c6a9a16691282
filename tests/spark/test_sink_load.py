"""mode=load: the queue of a DataFrame, and DataFrames that do not fit."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.factories import make_queue, orders
from tests.spark.rig import assert_rows, assert_same, counts, finish


def numbers(rig, count, *columns):
    """A table of numbers, and more columns: pairs of a name and an expression."""
    return rig.spark.range(count, numPartitions=2).select(
        F.col("id").alias("number"), *(F.expr(sql).alias(name) for name, sql in columns)
    )


CUSTOMER = ("customer", "concat('customer-', id % 3)")
AMOUNT = ("amount", "id / 4")


def test_a_queue_that_does_not_exist_is_made_with_the_columns_of_the_table(rig):
    table = numbers(rig, 20, CUSTOMER)
    rig.write(table, "fresh", key="customer", shards=3)
    queue = rig.store.queue("fresh")
    assert (queue.info.key, queue.info.shards) == ("customer", 3)
    assert_same(rig.read("fresh", includeMetadata=False), table)


def test_a_stream_makes_its_queue_even_when_nothing_comes(rig):
    rig.orders(0)
    finish(rig.sink(rig.source(), "copy", shards=2))
    assert rig.store.queue("copy").schema.names == ["number", "customer", "amount"]
    assert rig.store.queue("copy").browse().num_rows == 0


def test_rows_of_one_key_are_in_one_shard_and_in_order(rig):
    source = numbers(rig, 300, CUSTOMER).coalesce(1)
    rig.write(source, "keyed", key="customer", shards=4)
    found = rig.read("keyed").groupBy("customer", "_shard")
    found = found.agg(F.collect_list("number").alias("numbers"))
    expected = source.groupBy("customer").agg(F.sort_array(F.collect_list("number")))
    # As many rows as customers, so each is in one shard.
    assert_rows(found.drop("_shard"), *map(tuple, expected.collect()))


def test_without_a_key_the_tasks_of_a_batch_take_the_shards_in_turn(rig):
    make_queue(rig.store, "copy", shards=3)
    rig.orders(60, shards=3, key="number")
    finish(rig.sink(rig.source(maxMessagesPerTrigger=12), "copy"))
    (loaded,) = counts(rig.store.queue("copy"), "loaded")
    shards = rig.store.queue("copy").metadata().slice(0, 3).column("loaded").to_pylist()
    assert loaded == 60
    assert min(shards) > 0


@pytest.mark.nightly
def test_columns_come_in_any_order_and_in_types_that_fit(rig):
    rig.orders(0)
    rig.write(rig.spark.sql("SELECT CAST(1 AS FLOAT) AS amount, 'c' AS customer, 7 AS number"))
    assert_rows(rig.read(includeMetadata=False), (7, "c", 1.0))


def test_the_sink_drops_what_describes_a_message_so_queue_to_queue_just_works(rig):
    rig.orders(5)
    finish(rig.sink(rig.source(), "copy"))
    assert_same(rig.read("copy", includeMetadata=False), rig.spark.createDataFrame(orders(5)))


def test_with_merge_schema_new_columns_are_added(rig):
    queue = rig.orders(1)
    rig.write(numbers(rig, 2, ("place", "'here'")), mergeSchema=True)
    rig.write(numbers(rig, 1, AMOUNT), mergeSchema=True)
    assert queue.refresh().schema.names == ["number", "customer", "amount", "place"]
    found = rig.read().select("number", "amount", "place")
    assert_rows(found, (0, 0.0, None), (0, 0.0, None), (0, None, "here"), (1, None, "here"))


@pytest.mark.nightly
def test_a_stream_over_rows_of_old_and_new_columns_reads_both(rig):
    rig.orders(1)
    rig.write(numbers(rig, 1, ("place", "'here'")), mergeSchema=True)
    stream = rig.source(schema="number LONG, place STRING")
    assert rig.batches(stream) == [[(0, None), (0, "here")]]


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore"])
def test_a_queue_is_only_ever_appended_to(rig, mode):
    queue = rig.orders(3)
    writer = numbers(rig, 1).write.format("ignis").option("queue", "orders").mode(mode)
    with pytest.raises(PySparkException, match=r"(?i)append"):
        writer.save(rig.path)
    assert queue.browse().num_rows == 3


def test_a_stream_that_would_replace_all_rows_is_refused(rig):
    rig.orders(3)
    total = rig.source().groupBy().count()
    query = total.writeStream.format("ignis").option("queue", "total").outputMode("complete")
    with pytest.raises(PySparkException, match="cannot be overwritten"):
        finish(query.option("checkpointLocation", f"{rig.folder}/c").start(rig.path))


def test_strings_that_are_not_utf_8_stop_no_query_and_become_texts(rig):
    """One row of a stranger would fail each attempt to write its batch."""
    rig.orders(8, shards=2, key="number")
    bytes = "cast(unhex('41FF42') as string)"
    rows = rig.source(maxMessagesPerTrigger=4).select(
        "number",
        F.expr(f"if(number % 4 = 1, {bytes}, 'é')").alias("text"),
        F.expr(f"if(number % 4 = 2, array({bytes}, 'b'), null)").alias("texts"),
    )
    finish(rig.sink(rows, "copy"))
    rig.write(rig.spark.range(8, 9).selectExpr("id as number", f"{bytes} as text"), "copy")

    found = {row["number"]: row for row in rig.store.queue("copy").browse().to_pylist()}
    assert sorted(found) == list(range(9))
    assert [found[n]["text"] for n in range(9)] == [*["é", "A?B", "é", "é"] * 2, "A?B"]
    assert [found[n]["texts"] for n in range(3)] == [None, None, ["A?B", "b"]]
