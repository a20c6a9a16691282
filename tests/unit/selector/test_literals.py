"""Constants: the type of a number as written, and texts as values of other types."""

from datetime import date, datetime, time
from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.selector.literals import number, read
from queue_core.selector.nodes import Literal, Unfit


@pytest.mark.parametrize(
    ("text", "value", "type_"),
    [
        ("1", 1, pa.int32()),
        ("-2147483648", -(2**31), pa.int32()),
        ("2147483648", 2**31, pa.int64()),
        ("9223372036854775808", Decimal(2**63), pa.decimal128(19, 0)),
        ("1.50", Decimal("1.50"), pa.decimal128(3, 2)),
        (".05", Decimal("0.05"), pa.decimal128(2, 2)),
        ("1e3", 1000.0, pa.float64()),
    ],
)
def test_a_number_has_the_narrowest_type(text, value, type_):
    literal = number(text)

    assert (literal.value.as_py(), literal.type) == (value, type_)


@pytest.mark.parametrize("text", ["1e400", "1" * 77, "0." + "1" * 77, "one", "1.2.3"])
def test_a_number_that_no_type_holds_is_refused(text):
    with pytest.raises(Unfit):
        number(text)


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        (" 12 ", pa.int32(), 12),
        ("1.5", pa.int64(), Decimal("1.5")),
        ("nan", pa.float64(), pytest.approx(float("nan"), nan_ok=True)),
        ("2024-01-31", pa.date32(), date(2024, 1, 31)),
        ("2024-01-31T14:00:00+02:00", pa.timestamp("us"), datetime(2024, 1, 31, 12)),
        ("12:30:00", pa.time64("us"), time(12, 30)),
        ("TRUE", pa.bool_(), True),
        ("é", pa.binary(), "é".encode()),
    ],
)
def test_a_text_is_read_as_the_type_that_it_is_compared_with(text, type_, value):
    assert read(Literal(pa.scalar(text)), type_).value.as_py() == value


@pytest.mark.parametrize(
    ("text", "type_", "message"),
    [
        ("x", pa.int32(), "'x' is not a number"),
        ("x", pa.date32(), "is not a date such as '2024-01-31'"),
        ("25:00", pa.time64("us"), "is not a time such as '12:30:00'"),
        ("maybe", pa.bool_(), "is not a boolean, true or false"),
        ("x", pa.list_(pa.int32()), "a text cannot be compared with list<"),
    ],
)
def test_a_text_of_another_kind_is_refused(text, type_, message):
    with pytest.raises(Unfit, match=message):
        read(Literal(pa.scalar(text)), type_)
