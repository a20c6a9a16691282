"""What conditions mean, kind by kind of value."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.unit.selector_table import select


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("priority > 1", [0]),
        ("priority > 1 AND kind = 'a'", [0]),
        ("priority < 0 OR kind = 'a'", [0, 1]),
        ("NOT priority > 1", [1, 3]),
        ("! (priority > 1)", [1, 3]),
        ("priority == 5", [0]),
        ("priority != 5", [1, 3]),
        ("priority <=> NULL", [2]),
        ("priority <=> 5", [0]),
        ("priority IS DISTINCT FROM 5", [1, 2, 3]),
        ("priority IS NOT DISTINCT FROM 5", [0]),
        ("priority = NULL", []),
        ("priority IS NULL", [2]),
        ("priority IS NOT NULL", [0, 1, 3]),
        ("isnull(priority)", [2]),
        ("isnotnull(priority)", [0, 1, 3]),
        ("priority IN (5, 0, 99)", [0, 3]),
        ("priority NOT IN (5, 0)", [1]),
        ("priority NOT IN (5, NULL)", []),
        ("priority IN (5, NULL) IS NULL", [1, 2, 3]),
        ("priority BETWEEN -7 AND 0", [1, 3]),
        ("priority NOT BETWEEN -7 AND 0", [0]),
        ("ok", [0]),
        ("NOT ok", [1]),
        ("ok IS TRUE", [0]),
        ("ok IS NOT TRUE", [1, 2, 3]),
        ("ok IS FALSE", [1]),
        ("ok = (priority > 1)", [0, 1]),
        ("true", [0, 1, 2, 3]),
        ("NULL", []),
        ("1 + 1 = 2", [0, 1, 2, 3]),
        ("'a' > 'b'", []),
    ],
)
def test_conditions(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("size + 1 > 0", [3]),
        ("size - 1 < 0", [3]),
        ("size * 2 IS NULL", [0, 1, 2]),
        ("size * -1 IS NULL", [1, 2]),
        ("-1 * size IS NULL", [1, 2]),
        ("0 * size = 0", [0, 1, 3]),
        ("-size IS NULL", [1, 2]),
        ("abs(size) IS NULL", [1, 2]),
        ("size DIV -1 IS NULL", [1, 2]),
        ("size % -1 = 0", [0, 1, 3]),
        ("priority / 0 IS NULL", [0, 1, 2, 3]),
        ("priority DIV 0 IS NULL", [0, 1, 2, 3]),
        ("priority % 0 IS NULL", [0, 1, 2, 3]),
        ("x / 0 IS NULL", [0, 1, 2, 3]),
        ("x % 0 IS NULL", [0, 1, 2, 3]),
        ("priority / 2 = 2.5", [0]),
        ("priority DIV 2 = -3", [1]),
        ("priority % 3 = -1", [1]),
        ("mod(priority, 3) = 2", [0]),
        ("x % 1 = 0.5", [0]),
        ("x % CAST('inf' AS DOUBLE) = 1.5", [0]),
        ("x + 1 > 2", [0, 1]),
        ("+priority = 5", [0]),
        ("price + 0.25 = 1.75", [0]),
        ("price * price = 2.25", [0]),
        ("price * 0.1 < 1", [0, 1, 3]),
        ("abs(price) > 2", [1]),
        ("round(x, 1) = 1.5", [0]),
        ("round(x) = 2", [0]),
        ("round(price) = 2", [0]),
        ("round(price) = -100000000", [1]),
        ("round(priority, -1) = 10", [0]),
        ("floor(x) = 1 AND ceil(x) = 2", [0]),
        ("ceil(price) = 2", [0]),
        ("floor(price) = -100000000", [1]),
        ("floor(size) = size", [0, 1, 3]),
        ("greatest(priority, 1, NULL) = 1", [1, 2, 3]),
        ("least(x, 1.0) = 1.0", [0, 1, 2]),
        ("greatest(x, 1.0) > 1e300", [1]),
    ],
)
def test_numbers(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("x = x", [0, 1, 3]),
        ("x > 1e300", [1]),
        ("x >= 1.5", [0, 1]),
        ("x < 1e300", [0, 3]),
        ("x <> 1.5", [1, 3]),
        ("NOT x < 2", [1]),
        ("isnan(x)", [1]),
        ("NOT isnan(x)", [0, 2, 3]),
        ("x = 0", [3]),
        ("x IN (0, 7)", [3]),
        ("x IN (CAST('nan' AS DOUBLE))", [1]),
    ],
)
def test_nan_is_greater_than_all_numbers_and_zero_has_no_sign(text, ids):
    assert select(text) == ids


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
        ("lower(kind) = 'ab%c'", [1]),
        ("upper(kind) = 'A'", [0]),
        ("length(kind) = 5", [3]),
        ("length(raw) = 2", [0]),
        ("trim(kind) = 'a\nb'", [3]),
        ("ltrim(kind) = 'a\nb '", [3]),
        ("rtrim(kind) = ' a\nb'", [3]),
        ("trim(BOTH 'c' FROM kind) = 'Ab%'", [1]),
        ("trim(LEADING 'A' FROM kind) = 'b%c'", [1]),
        ("kind LIKE 'A%'", [1]),
        ("kind NOT LIKE 'A%'", [0, 3]),
        ("kind LIKE '%b%'", [1, 3]),
        ("kind LIKE 'Ab\\%c'", [1]),
        ("kind LIKE 'Ab!%c' ESCAPE '!'", [1]),
        ("kind LIKE '_'", [0]),
        ("kind LIKE NULL", []),
        ("kind ILIKE 'aB%'", [1]),
        ("kind RLIKE '^A.%'", [1]),
        ("regexp_like(kind, '^A.%')", [1]),
        ("startswith(kind, 'A')", [1]),
        ("endswith(kind, ' ')", [3]),
        ("contains(kind, '%')", [1]),
        ("substring(kind, 2, 2) = 'b%'", [1]),
        ("substr(kind, -2) = '%c'", [1]),
        ("substring(kind, -2, 2) = '%c'", [1]),
        ("substring(kind, -2, 9) = '%c'", [1]),
        ("substring(kind, -5, 2) = 'A'", [1]),
        ("substring(kind, 0, 1) = 'a'", [0]),
        ("concat(kind, '-', priority) = 'a-5'", [0]),
        ("kind || group = 'ait''s'", [0]),
        ("kind || NULL IS NULL", [0, 1, 2, 3]),
        ("group = 'it\\'s'", [0]),
        ('`group` = "it\'s"', [0]),
    ],
)
def test_texts(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("year(at) = 1969", [1]),
        ("month(day) = 1", [0]),
        ("day(day) = 31", [0, 1]),
        ("dayofmonth(at) = 31", [0, 1]),
        ("hour(at) = 23", [1]),
        ("minute(at) = 30", [0]),
        ("second(at) = 59", [1]),
        ("CAST(at AS DATE) = day", [0, 1]),
        ("to_date(at) = day", [0, 1]),
        ("CAST(day AS TIMESTAMP) = '2024-01-31'", [0]),
        ("CAST(at AS BIGINT) = -1", [1]),
        ("CAST(at AS DOUBLE) < 0", [1]),
        ("CAST(0 AS TIMESTAMP) > at", [1]),
    ],
)
def test_moments_are_in_utc(text, ids):
    assert select(text) == ids


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("CASE WHEN priority > 0 THEN 'p' WHEN priority < 0 THEN 'n' ELSE 'z' END = 'n'", [1]),
        ("CASE WHEN priority > 0 THEN 'p' END IS NULL", [1, 2, 3]),
        ("CASE priority WHEN 5 THEN true END", [0]),
        ("if(ok, priority, 1) = 5", [0]),
        ("if(ok, priority, 1) = 1", [1, 2, 3]),
        ("coalesce(priority, 9) = 9", [2]),
        ("nvl(ok, true)", [0, 2, 3]),
        ("ifnull(priority, 9.5) = 9.5", [2]),
        ("nullif(priority, 5) IS NULL", [0, 2]),
    ],
)
def test_choices(text, ids):
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
