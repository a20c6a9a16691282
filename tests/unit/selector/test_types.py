"""Every Arrow type with an order can be compared."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.unit.selector.selector_table import select


@pytest.mark.parametrize(
    ("type_", "values", "text"),
    [
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b", None], "v = 'b'"),
        (pa.large_string(), ["a", "b", None], "v || '!' = 'b!'"),
        (pa.string_view(), ["a", "b", None], "v LIKE 'b%'"),
        (pa.large_binary(), [b"a", b"b", None], "v = 'b'"),
        (pa.binary(1), [b"a", b"b", None], "v > X'61'"),
        (pa.int8(), [1, 2, None], "v * 100 = 200"),
        (pa.uint32(), [1, 2**32 - 1, None], "v + 1 = 4294967296"),
        (pa.uint64(), [1, 2**64 - 1, None], "v = 18446744073709551615"),
        (pa.uint64(), [1, 2**64 - 1, None], "v > -1 AND v <> 1"),
        (pa.float32(), [1.5, float("nan"), None], "v > 1.5"),
        (pa.date64(), [dt.date(1970, 1, 1), dt.date(2024, 2, 29), None], "v = '2024-02-29'"),
        (pa.timestamp("s"), [0, 2**31, None], "v > '2024-01-01 00:00:00.5' AND year(v) = 2038"),
        (pa.timestamp("s"), [0, 2**62, None], "year(v) IS NULL AND v IS NOT NULL"),
        (pa.timestamp("ms"), [0, 2**62, None], "to_date(v) IS NULL AND v IS NOT NULL"),
        (pa.timestamp("ns", "Europe/Paris"), [0, 1, None], "v = '1970-01-01 00:00:00.000000001Z'"),
        (pa.time64("us"), [dt.time(1), dt.time(2), None], "v > '01:30:00'"),
        (pa.decimal256(60, 2), [Decimal("1.00"), Decimal("1e40"), None], "v * 2 > 99"),
        (pa.decimal128(38, 0), [Decimal(1), Decimal("9" * 38), None], "v + 0.5 > 10"),
    ],
    ids=str,
)
def test_any_arrow_type_with_an_order_can_be_compared(type_, values, text):
    array = pa.array(values, type_)

    assert select(text, pa.table({"id": [0, 1, 2], "v": array})) == [1]
