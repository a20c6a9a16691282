"""`selector` and `orderBy` through Spark."""

import traceback
from itertools import chain
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from queue_core import Queue, Store
from tests.factories import make_queue, orders


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """Two hundred orders in four shards."""
    queue = make_queue(Store.open(tmp_path / "store"), shards=4, key="customer")
    queue.load(orders(200))
    return queue


def _stream(spark: SparkSession, tmp_path: Path, **options: str) -> DataFrame:
    reader = spark.readStream.format("ignis").option("queue", "orders").options(**options)
    return reader.load(str(tmp_path / "store"))


def _batches(stream: DataFrame) -> list[list[int]]:
    """Which orders each micro-batch of a stream brought, until there are no more."""
    seen: list[list[int]] = []

    def keep(rows: DataFrame, _: int) -> None:
        seen.append(sorted(row.number for row in rows.select("number").collect()))

    query = stream.writeStream.foreachBatch(keep).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert query.exception() is None
    return [batch for batch in seen if batch]


def test_a_stream_fires_only_what_its_selector_lets_through(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    stream = _stream(spark, tmp_path, selector="number % 50 = 7", maxMessagesPerTrigger="3")
    assert sorted(chain.from_iterable(_batches(stream))) == [7, 57, 107, 157]
    assert queue.browse().num_rows == 196


@pytest.mark.parametrize(
    ("option", "text", "said"),
    [
        ("selector", "amonut > 5", "no column 'amonut'; did you mean 'amount'"),
        ("orderBy", "amonut", "no column 'amonut'; did you mean 'amount'"),
    ],
)
def test_a_selection_that_does_not_fit_is_refused_when_the_source_is_made(
    spark: SparkSession, queue: Queue, tmp_path: Path, option: str, text: str, said: str
) -> None:
    """Not when the query runs: Spark would show the sentence below a hundred lines."""
    with pytest.raises(PySparkException, match=said) as caught:
        _stream(spark, tmp_path, **{option: text})

    assert len(traceback.format_exception(caught.value)) < 20
    assert str(caught.value).count("File ") == 1
    assert queue.browse().num_rows == 200


@pytest.mark.nightly
def test_a_batch_read_takes_a_selector_over_columns_that_it_does_not_show(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    reader = spark.read.format("ignis").schema("number LONG").option("queue", "orders")
    rows = reader.option("selector", "customer = 'customer-3' AND number < 20")
    found = rows.load(str(tmp_path / "store"))
    assert found.columns == ["number"]
    assert sorted(row.number for row in found.collect()) == [3, 13]


def test_with_a_given_schema_a_malformed_selector_ends_the_query_with_its_place(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    """Spark does not ask for the columns then."""
    reader = spark.readStream.format("ignis").schema("number LONG").option("queue", "orders")
    stream = reader.option("selector", "nmber > 3").load(str(tmp_path / "store"))
    query = stream.writeStream.format("noop").trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException, match="did you mean 'number'") as caught:
        query.awaitTermination(120)

    assert "translate.py" not in str(caught.value)


@pytest.mark.parametrize("count", [0, 5])
@pytest.mark.parametrize("selector", ["nmber > 3", "number >"])
@pytest.mark.parametrize("schema", [None, "number LONG"])
def test_a_batch_read_refuses_a_malformed_selector_of_a_queue_without_messages_too(
    spark: SparkSession, tmp_path: Path, count: int, selector: str, schema: str | None
) -> None:
    make_queue(Store.open(tmp_path / "store")).load(orders(count))
    reader = spark.read.format("ignis").options(queue="orders", selector=selector)
    reader = reader.schema(schema) if schema is not None else reader

    with pytest.raises(PySparkException, match="BadSelector") as caught:
        reader.load(str(tmp_path / "store")).collect()

    assert len(traceback.format_exception(caught.value)) < 30
    assert "translate.py" not in str(caught.value)


def test_an_order_is_refused_where_nothing_is_fired(
    spark: SparkSession, queue: Queue, tmp_path: Path
) -> None:
    for name, order in (("orderBy", "number"), ("order", "global")):
        reader = spark.read.format("ignis").option("queue", "orders").option(name, order)
        with pytest.raises(Exception, match="order the DataFrame instead"):
            reader.load(str(tmp_path / "store")).collect()
