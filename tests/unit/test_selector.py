"""What a selector means: each form of SQL that it knows, on a few rows."""

import datetime as dt
import pickle
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import Selector

SCHEMA = pa.schema(
    [
        ("id", pa.int32()),
        ("priority", pa.int32()),
        ("size", pa.int64()),
        ("kind", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("x", pa.float64()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us", "UTC")),
        ("local", pa.timestamp("us")),
        ("raw", pa.binary()),
        ("box", pa.struct([("w", pa.int32()), ("inner", pa.struct([("h", pa.string())]))])),
        ("tags", pa.list_(pa.string())),
        ("group", pa.string()),
        ("_shard", pa.int32()),
    ]
)
TABLE = pa.Table.from_pylist(
    [
        {
            "id": 0,
            "priority": 5,
            "size": 2**63 - 1,
            "kind": "a",
            "price": Decimal("1.50"),
            "x": 1.5,
            "ok": True,
            "day": dt.date(2024, 1, 31),
            "at": dt.datetime(2024, 1, 31, 12, 30),
            "local": dt.datetime(2024, 1, 31, 12, 30),
            "raw": b"\x00\xff",
            "box": {"w": 1, "inner": {"h": "q"}},
            "tags": ["t"],
            "group": "it's",
            "_shard": 0,
        },
        {
            "id": 1,
            "priority": -7,
            "size": -(2**63),
            "kind": "Ab%c",
            "price": Decimal("-99999999.99"),
            "x": float("nan"),
            "ok": False,
            "day": dt.date(1969, 12, 31),
            "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            "local": dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
            "raw": b"",
            "box": {"w": None, "inner": None},
            "tags": [],
            "group": "g",
            "_shard": 1,
        },
        {"id": 2},
        {"id": 3, "priority": 0, "size": 0, "kind": " a\nb ", "price": Decimal(0), "x": -0.0},
    ],
    schema=SCHEMA,
)


def select(text, table=TABLE):
    """The ids of the rows that are eligible."""
    mask = Selector.parse(text, table.schema).mask(table)
    assert mask.type == pa.bool_()
    assert mask.null_count == 0
    return [
        row
        for row, eligible in zip(table["id"].to_pylist(), mask.to_pylist(), strict=True)
        if eligible
    ]


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


def test_fields_of_structs_are_reached_by_their_path():
    assert select("box.w = 1") == [0]
    assert select("box.inner.h = 'q'") == [0]
    assert select("Box.Inner.H = 'q'") == [0]
    assert select("box IS NULL") == [2, 3]
    assert select("box.w IS NULL") == [1, 2, 3]
    assert select("tags IS NOT NULL") == [0, 1]


def test_the_columns_that_are_touched_are_named_as_in_the_schema():
    selector = Selector.parse("PRIORITY > 1 AND (box.w = 2 OR `_shard` = 1)", SCHEMA)

    assert selector.columns == {"priority", "box", "_shard"}
    assert Selector.parse("1 = 1", SCHEMA).columns == frozenset()


def test_selectors_are_values():
    selector = Selector.parse("priority > 1", SCHEMA)
    same = Selector.parse("priority > 1", pa.schema([*SCHEMA, ("added", pa.string())]))
    other = Selector.parse("priority > 2", SCHEMA)

    assert selector == same
    assert hash(selector) == hash(same)
    assert selector != other
    assert pickle.loads(pickle.dumps(selector)).mask(TABLE).equals(selector.mask(TABLE))


def test_a_selector_that_needs_none_of_its_columns_is_pickled_with_them():
    selector = Selector.parse("priority = NULL OR kind LIKE NULL", SCHEMA)

    assert selector.columns == {"priority", "kind"}
    assert pickle.loads(pickle.dumps(selector)) == selector


def test_a_column_that_older_rows_lack_is_null():
    selector = Selector.parse("priority > 1 OR size IS NULL", SCHEMA)

    assert selector.mask(TABLE.select(["id", "priority"])).to_pylist() == [True] * 4
    assert selector.mask(TABLE.select(["id"])).to_pylist() == [True] * 4


def test_a_column_of_another_type_is_an_error_that_names_the_selector():
    selector = Selector.parse("priority > 1", SCHEMA)

    with pytest.raises(BadSelector, match=r"'priority > 1' cannot be worked out on these rows"):
        selector.mask(pa.table({"priority": ["a"]}))


def test_record_batches_tables_of_many_chunks_and_no_rows_are_all_the_same():
    selector = Selector.parse(
        "n % 3 = 1 AND kind = 'a'", pa.schema([("n", pa.int64()), ("kind", pa.string())])
    )
    numbers = pa.array(range(300_000), pa.int64())
    kinds = pa.array(["a", "b"] * 150_000)
    whole = pa.table({"n": numbers, "kind": kinds})
    pieces = pa.Table.from_batches(whole.to_batches(max_chunksize=7_001))

    expected = [n % 3 == 1 and n % 2 == 0 for n in range(300_000)]

    assert selector.mask(whole).to_pylist() == expected
    assert selector.mask(pieces).to_pylist() == expected
    assert selector.mask(whole.to_batches()[0]).to_pylist() == expected
    assert selector.mask(whole.slice(1, 5)).to_pylist() == expected[1:6]
    assert selector.mask(whole.slice(0, 0)).to_pylist() == []
    assert isinstance(selector.mask(pieces), pa.BooleanArray)


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


def test_thousands_of_conditions_are_no_deep_recursion():
    listed = " OR ".join(f"id = {n}" for n in range(1, 4000))
    assert select(listed) == [1, 2, 3]
    assert Selector.parse(listed, SCHEMA).expression() is not None

    both = " AND ".join(f"id <> {n}" for n in range(1, 4000))
    assert select(both) == [0]


def test_parts_that_share_a_node_are_worked_out_once():
    """Without that, what follows would take 4 to the power of 20 steps."""
    text = "priority"
    for _ in range(20):
        text = f"if({text} BETWEEN 0 AND 9, 1, 2)"

    assert select(f"{text} = 1") == [0, 1, 2, 3]
    with pytest.raises(BadSelector, match="too large for one Arrow expression"):
        Selector.parse(f"{text} = 1", SCHEMA).expression()


def test_the_recursion_limit_of_a_deep_caller_is_an_error_of_ours():
    def deep(frames):
        if frames:
            return deep(frames - 1)
        return Selector.parse("(" * 20 + "priority" + ")" * 20 + " > 1", SCHEMA)

    used = len(__import__("inspect").stack())
    with pytest.raises(BadSelector, match="nested too deeply"):
        deep(sys.getrecursionlimit() - used - 150)
