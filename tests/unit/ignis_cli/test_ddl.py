"""Columns in Spark SQL become the same Arrow columns as in Spark."""

import pyarrow as pa
import pytest

from ignis_cli.ddl import columns
from queue_core.errors import BadOption
from queue_core.values.schema import canonical

TYPES = {
    "BYTE": pa.int8(),
    "smallint": pa.int16(),
    "INT": pa.int32(),
    "INTEGER": pa.int32(),
    "LONG": pa.int64(),
    "BIGINT": pa.int64(),
    "FLOAT": pa.float32(),
    "DOUBLE": pa.float64(),
    "BOOLEAN": pa.bool_(),
    "STRING": pa.string(),
    "VARCHAR(10)": pa.string(),
    "BINARY": pa.binary(),
    "DATE": pa.date32(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
    "TIMESTAMP_NTZ": pa.timestamp("us"),
    "DECIMAL": pa.decimal128(10, 0),
    "DECIMAL(5)": pa.decimal128(5, 0),
    "DECIMAL(12, 2)": pa.decimal128(12, 2),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "MAP<STRING, LONG>": pa.map_(pa.string(), pa.int64()),
    "STRUCT<x: INT, y: ARRAY<DATE>>": pa.struct([("x", pa.int32()), ("y", pa.list_(pa.date32()))]),
    "STRUCT<x: INT NOT NULL>": pa.struct([pa.field("x", pa.int32(), nullable=False)]),
}


@pytest.mark.parametrize(("text", "kind"), TYPES.items())
def test_each_type_is_read_as_spark_reads_it(text, kind):
    (field,) = columns(f"a {text}")

    assert field.type == kind
    assert field.nullable
    assert canonical(pa.schema([field])).names == ["a"], "a queue can hold it"


def test_names_and_not_null_are_kept():
    schema = columns("id LONG NOT NULL, `the name` STRING NULL COMMENT 'who'")

    assert schema == pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("the name", pa.string())]
    )


@pytest.mark.parametrize(
    "text",
    [
        "", "a", "a LONG, b", "a LONG b STRING", "a FOO", "a LONG'; drop", "a INTERVAL", "a ARRAY",
        "a LONG); DROP TABLE t; --", "a MAP<STRING>", "a DECIMAL(x)", "a DECIMAL(50, 3)",
        "a LONG DEFAULT 7", "a STRUCT<x: INT DEFAULT 7>", "a LONG GENERATED ALWAYS AS (1)",
    ],
)  # fmt: skip
def test_a_text_that_is_not_a_list_of_columns_is_refused(text):
    with pytest.raises(BadOption, match=r"^columns: "):
        columns(text)
