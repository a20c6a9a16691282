"""Casts, and the common type of two values that are compared."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.unit.selector.selector_table import select


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("priority = '5'", [0]),
        ("priority > 4.5", [0]),
        ("priority = 5.0", [0]),
        ("priority > '-7.5'", [0, 1, 3]),
        ("priority > 2147483648", []),
        ("priority < 99999999999999999999", [0, 1, 3]),
        ("size = 9223372036854775807", [0]),
        ("size = -9223372036854775808", [1]),
        ("size > 9.2e18", [0]),
        ("size > 1.5", [0]),
        ("price = 1.5", [0]),
        ("price > '1.499999'", [0]),
        ("price = 1.5e0", [0]),
        ("x > '1.25'", [0, 1]),
        ("day = '2024-01-31'", [0]),
        ("day < DATE '1970-01-01'", [1]),
        ("at = '2024-01-31 12:30:00'", [0]),
        ("at = '2024-01-31T14:30:00+02:00'", [0]),
        ("at = '2024-01-31 12:30:00Z'", [0]),
        ("local = '2024-01-31 12:30:00'", [0]),
        ("at > TIMESTAMP '2024-01-31'", [0]),
        ("at < '1970-01-01'", [1]),
        ("at < '1970-01-01 00:00:00.000000001'", [1]),
        ("at > day", [0, 1]),
        ("at = local", [0, 1]),
        ("raw = X'00ff'", [0]),
        ("raw = ''", [1]),
        ("ok = 'true'", [0]),
        ("at IN ('2024-01-31 12:30:00', NULL)", [0]),
    ],
)
def test_values_of_two_types_meet_in_one_that_holds_both(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("CAST(kind AS INT) IS NULL", [0, 1, 2, 3]),
        ("CAST(priority AS STRING) = '-7'", [1]),
        ("CAST(ok AS STRING) = 'true'", [0]),
        ("CAST(price AS STRING) = '1.50'", [0]),
        ("CAST(day AS STRING) LIKE '1969%'", [1]),
        ("CAST(x AS INT) = 1", [0]),
        ("CAST(price AS INT) = -99999999", [1]),
        ("CAST(price AS TINYINT) IS NULL", [1, 2]),
        ("CAST(size AS INT) IS NULL", [0, 1, 2]),
        ("CAST(priority AS DECIMAL(2, 1)) = 5", [0]),
        ("CAST(x AS DECIMAL(3, 0)) = 2", [0]),
        ("CAST(price AS DECIMAL(10, 1)) IS NULL", [2]),
        ("CAST(ok AS INT) = 1", [0]),
        ("CAST(priority AS BOOLEAN)", [0, 1]),
        ("priority::string = '5'", [0]),
        ("TRY_CAST(kind AS DOUBLE) IS NULL", [0, 1, 2, 3]),
        ("priority < 1L", [1, 3]),
        ("price = 1.5BD", [0]),
        ("CAST(kind AS BINARY) = X'61'", [0]),
    ],
)
def test_casts(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        (" 12 ", "INT", 12),
        ("2147483648", "INT", None),
        ("99999999999999999999", "BIGINT", None),
        ("-9223372036854775808", "BIGINT", -(2**63)),
        ("1.5", "INT", None),
        ("x", "INT", None),
        ("1e2", "DOUBLE", 100.0),
        ("-Infinity", "DOUBLE", float("-inf")),
        ("1e", "DOUBLE", None),
        ("12.345", "DECIMAL(5, 2)", Decimal("12.35")),
        ("999.995", "DECIMAL(5, 2)", None),
        ("-999.994", "DECIMAL(5, 2)", Decimal("-999.99")),
        ("0.5", "DECIMAL(38, 38)", Decimal("0.5")),
        ("9" * 38, "DECIMAL(38, 0)", Decimal("9" * 38)),
        ("yes", "BOOLEAN", True),
        ("F", "BOOLEAN", False),
        ("maybe", "BOOLEAN", None),
        ("2024-02-29", "DATE", dt.date(2024, 2, 29)),
        ("2000-02-29", "DATE", dt.date(2000, 2, 29)),
        ("1900-02-29", "DATE", None),
        ("2023-02-29", "DATE", None),
        ("2024-04-31", "DATE", None),
        ("2024-13-01", "DATE", None),
        ("2024-01-31 24:00", "TIMESTAMP", None),
        ("2024-01-31 23:59:59.5", "TIMESTAMP", dt.datetime(2024, 1, 31, 23, 59, 59, 500000)),
        ("2024-01-31T23:59", "TIMESTAMP", dt.datetime(2024, 1, 31, 23, 59)),
    ],
)
def test_a_text_column_is_cast_to_what_it_says_or_to_null(text, type_, value):
    table = pa.table({"id": [0], "s": [text]})
    expected = pa.table({"id": [0], "s": [text], "value": pa.array([value])})

    assert select(f"CAST(s AS {type_}) IS NULL", table) == ([0] if value is None else [])
    if value is not None:
        assert select(f"CAST(s AS {type_}) = value", expected) == [0]
