"""Every type that Spark can hold, into a queue, through a stream and back."""

import pytest
from chispa import assert_df_equality
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.spark.rig import assert_rows, finish

pytestmark = pytest.mark.nightly

#: A value of each type that a column can have.
VALUES = {
    "yes": "true",
    "tiny": "CAST(-128 AS TINYINT)",
    "small": "CAST(32767 AS SMALLINT)",
    "whole": "-2147483648",
    "large": "9223372036854775807",
    "single": "CAST(1.5 AS FLOAT)",
    "double": "CAST('-Infinity' AS DOUBLE)",
    "exact": "CAST('-1234567890123456789012345678.9012345678' AS DECIMAL(38, 10))",
    "cents": "12.34",
    "text": "'grüße ☃'",
    "fixed": "CAST('ab' AS CHAR(4))",
    "bytes": "X'00FF10'",
    "day": "DATE'0001-01-01'",
    "moment": "TIMESTAMP'2024-02-29 23:59:59.123456'",
    "local": "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'",
    "clock": "TIME'23:59:59.123456'",
    "span": "INTERVAL '-9 08:07:06.543210' DAY TO SECOND",
    "nothing": "NULL",
    "either": """parse_json('{"a": [1, "x", null], "b": {"c": 1.5}}')""",
    "list": "array(1, NULL, 3)",
    "empty": "CAST(array() AS ARRAY<STRING>)",
    "pairs": "map('a', 1.5D, 'b', NULL)",
    "record": "named_struct('x', 1, 'when', TIMESTAMP'2024-02-29 23:59:59.123456')",
    "nested": "array(named_struct('tags', map('k', array(X'01', NULL)), 'cost', 1.50), NULL)",
    "deep": "map(1, array(map('z', named_struct('d', DATE'2024-02-29'))))",
}


@pytest.fixture
def table(spark):
    """A row of values, and one of nulls."""
    spark.conf.set("spark.sql.timeType.enabled", True)
    whole = spark.sql("SELECT " + ", ".join(f"{sql} AS {name}" for name, sql in VALUES.items()))
    nulls = whole.select(*(F.lit(None).cast(f.dataType).alias(f.name) for f in whole.schema))
    yield whole.union(nulls).coalesce(1)
    spark.conf.unset("spark.sql.timeType.enabled")


def test_every_type_comes_through_a_queue_and_a_stream_unchanged(rig, table):
    rig.write(table, "one")
    finish(rig.sink(rig.source("one"), "other"))
    found = rig.read("other", includeMetadata=False)
    assert found.schema == table.schema
    # Two variants never compare as equal.
    found, table = (each.withColumn("either", F.to_json("either")) for each in (found, table))
    assert_df_equality(found, table, ignore_nullable=True)


def test_times_are_the_same_in_every_time_zone(rig, spark):
    moments = "SELECT TIMESTAMP'{0}' AS moment, array(TIMESTAMP'{0}') AS several"
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rig.write(spark.sql(moments.format("2024-07-01 08:00:00")), "times")
        finish(rig.sink(rig.source("times"), "copy"))
        found = rig.read("copy", includeMetadata=False)
        assert_df_equality(found, spark.sql(moments.format("2024-07-01 08:00:00")), True)
        late = rig.read("copy").where("_loaded_at > current_timestamp()").count()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert late == 0
    found = rig.read("copy", includeMetadata=False)
    assert_df_equality(found, spark.sql(moments.format("2024-07-01 12:00:00")), True)


def test_large_batches_of_large_types_are_taken_too(rig, spark):
    spark.conf.set("spark.sql.execution.arrow.useLargeVarTypes", True)
    try:
        rig.write(spark.sql("SELECT 'a' AS text, X'01' AS bytes, array('b') AS list"), "large")
    finally:
        spark.conf.unset("spark.sql.execution.arrow.useLargeVarTypes")
    assert_rows(rig.read("large", includeMetadata=False), ("a", bytearray(b"\x01"), ["b"]))


def test_a_type_that_python_cannot_be_handed_is_refused_with_its_column(rig, spark):
    message = "column 'odd': PySpark cannot hand over the type interval year to month; cast it"
    with pytest.raises(PySparkException, match=message):
        rig.write(spark.sql("SELECT 1 AS number, INTERVAL '3-11' YEAR TO MONTH AS odd"))
    assert rig.store.queues() == []
