"""The table of what a handler is given for each type of Spark, made and compared."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from queue_core import batch_handler
from queue_core.testing import handle, temporary_store
from tests.tree import ROOT

PAGE = ROOT / "docs/types.md"
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123456)
STRUCT = t.StructType([t.StructField("a", t.IntegerType()), t.StructField("b", t.StringType())])
#: Each type that a column can have, and a value of it.
VALUES = {
    "BOOLEAN": (t.BooleanType(), True),
    "TINYINT": (t.ByteType(), 1),
    "SMALLINT": (t.ShortType(), 1),
    "INT": (t.IntegerType(), 1),
    "BIGINT": (t.LongType(), 1),
    "FLOAT": (t.FloatType(), 1.5),
    "DOUBLE": (t.DoubleType(), 1.5),
    "DECIMAL(10,2)": (t.DecimalType(10, 2), Decimal("12.34")),
    "STRING": (t.StringType(), "a"),
    "BINARY": (t.BinaryType(), b"a"),
    "DATE": (t.DateType(), NOON.date()),
    "TIMESTAMP": (t.TimestampType(), NOON.replace(tzinfo=dt.UTC)),
    "TIMESTAMP_NTZ": (t.TimestampNTZType(), NOON),
    "TIME(6)": (t.TimeType(6), NOON.time()),
    "INTERVAL DAY TO SECOND": (t.DayTimeIntervalType(), dt.timedelta(days=1)),
    "VOID": (t.NullType(), None),
    "ARRAY<INT>": (t.ArrayType(t.IntegerType()), [1, None]),
    "MAP<STRING, INT>": (t.MapType(t.StringType(), t.IntegerType()), [("a", 1)]),
    "STRUCT<a: INT, b: STRING>": (STRUCT, {"a": 1, "b": None}),
    "VARIANT": (t.VariantType(), {"value": b"\x0c\x01", "metadata": b"\x01\x00\x00"}),
}


def rows():
    """The cells of the table, by type."""
    lines = PAGE.read_text().split("\n|---|---|---|\n")[1].split("\n\n")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {name.strip("`"): (row.strip("`"), arrow.strip("`")) for name, row, arrow in cells}


def column(name):
    """A column of a type in Arrow, as Spark hands it over."""
    kind, _ = VALUES[name]
    return to_arrow_schema(t.StructType([t.StructField("c", kind)]), timezone="UTC").field("c")


def test_the_table_has_every_type():
    assert list(rows()) == list(VALUES)


@pytest.mark.parametrize("name", VALUES)
def test_a_handler_is_given_what_the_table_says(name):
    field = column(name)
    values = pa.array([VALUES[name][1]], field.type)
    given = []

    def row(message):
        given.append(message["c"])
        return True

    @batch_handler
    def batch(messages):
        given.append(messages.schema.field("c").type)
        return [True] * messages.num_rows

    with temporary_store() as store:
        queue = store.create_queue("q", pa.schema([field]), shards=1)
        for handler in (row, batch):
            queue.load(pa.table([values], schema=queue.schema))
            handle(queue, handler)

    value, kind = given
    assert (repr(value), str(kind)) == rows()[name]
