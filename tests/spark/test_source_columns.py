"""The columns of a stream: the queue's, the metadata, and a schema's choice of them."""

from datetime import datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import (
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tests.spark.rig import counts, finish

ORDERS = [
    StructField("number", LongType(), nullable=False),
    StructField("customer", StringType()),
    StructField("amount", DoubleType()),
]
METADATA = [
    StructField("_message_id", LongType(), nullable=False),
    StructField("_queue", StringType(), nullable=False),
    StructField("_shard", IntegerType(), nullable=False),
    StructField("_attempt", IntegerType(), nullable=False),
    StructField("_loaded_at", TimestampType(), nullable=False),
    StructField("_fired_at", TimestampType()),
]


def test_a_stream_has_the_columns_of_the_queue_and_then_those_that_describe_a_message(rig):
    rig.orders(0)
    assert rig.source().schema == StructType([*ORDERS, *METADATA])


def test_each_message_is_described(rig):
    queue = rig.orders(3)
    loaded = queue.peek(3).to_pydict()
    before = datetime.now()
    ((one, two, three),) = rig.batches(rig.source())

    assert (one.number, one.customer, one.amount) == (0, "customer-0", 0.0)
    assert [one._message_id, two._message_id, three._message_id] == loaded["_message_id"]
    assert (three._queue, three._shard, three._attempt) == ("orders", 0, 0)
    assert three._loaded_at == loaded["_loaded_at"][0].replace(tzinfo=None)
    assert before <= three._fired_at <= datetime.now()


def test_a_stream_can_leave_the_metadata_out(rig):
    rig.orders(1)
    stream = rig.source(includeMetadata=False)
    assert stream.schema == StructType(ORDERS)
    assert rig.batches(stream) == [[(0, "customer-0", 0.0)]]


def test_a_schema_picks_columns_and_their_order(rig):
    queue = rig.orders(2)
    ids = queue.peek(2).column("_message_id").to_pylist()
    stream = rig.source(schema="_message_id LONG, amount DOUBLE, number LONG NOT NULL")
    assert rig.batches(stream) == [[(ids[0], 0.0, 0), (ids[1], 0.25, 1)]]


def test_a_query_with_a_schema_that_does_not_fit_ends_and_takes_nothing(rig):
    queue = rig.orders(1)
    stream = rig.source(schema="number LONG, custmer STRING")
    with pytest.raises(PySparkException, match="no column 'custmer'; did you mean 'customer'"):
        finish(rig.each(stream, lambda *_: None))
    assert counts(queue, "fired") == [0]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("NUMBER LONG", "no column 'NUMBER'; did you mean 'number'"),
        ("number INT", "column 'number' is bigint, not int; read it as it is and cast it"),
        ("amount DECIMAL(10, 2)", r"'amount' is double, not decimal\(10,2\)"),
        ("_shard LONG", "column '_shard' is int, not bigint"),
        ("amount DOUBLE NOT NULL", "column 'amount' may be null, and .* leave NOT NULL out"),
    ],
)
def test_a_schema_that_does_not_fit_is_refused(rig, schema, message):
    rig.orders(1)
    with pytest.raises(PySparkException, match=message):
        rig.read(schema=schema).collect()
