"""Which columns a field fits."""

import pyarrow as pa
import pytest

from queue_core.handling.objects.message_class import fits

UTC, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")


@pytest.mark.parametrize(
    ("needed", "column", "does"),
    [
        (pa.int64(), pa.int32(), True),
        (pa.int64(), pa.float64(), False),
        (pa.float64(), pa.float32(), True),
        (pa.string(), pa.binary(), False),
        (pa.decimal128(38, 18), pa.decimal128(10, 2), True),
        (UTC, UTC, True),
        (UTC, LOCAL, False),
        (pa.list_(pa.int64()), pa.list_(pa.field("element", pa.int32(), nullable=False)), True),
        (pa.list_(pa.int64()), pa.list_(pa.string()), False),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.string(), pa.int8()), True),
        (pa.map_(pa.string(), pa.int64()), pa.map_(pa.int64(), pa.int64()), False),
        (pa.struct({"a": pa.int64()}), pa.struct({"b": pa.string(), "a": pa.int32()}), True),
        (pa.struct({"a": pa.int64()}), pa.struct({"b": pa.int64()}), False),
        (pa.struct({"a": pa.int64()}), pa.int64(), False),
    ],
)
def test_a_field_fits_columns_of_its_type(needed, column, does):
    assert fits(needed, column) is does
