"""The rows that statistics exclude, and those that they must leave open."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.selector import Selector
from queue_core.values.column_stats import ColumnStats, column_stats

SCHEMA = pa.schema(
    [
        ("n", pa.int32()),
        ("m", pa.int64()),
        ("s", pa.string()),
        ("x", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("at", pa.timestamp("us", "UTC")),
        ("all_null", pa.string()),
        ("box", pa.struct([("v", pa.int32())])),
    ]
)
#: n in 10..20, m in 100..200, s between b and d, one NULL in each.
TABLE = pa.table(
    [
        [10, 20, 15, None],
        [100, 200, 150, None],
        ["b", "bx", "d", None],
        [1.5, 2.5, -0.0, None],
        [Decimal("1.00"), Decimal("2.00"), Decimal("1.50"), None],
        [dt.datetime(2024, 1, 1), dt.datetime(2024, 3, 1), dt.datetime(2024, 2, 1), None],
        [None] * 4,
        [{"v": 1}, {"v": 2}, None, None],
    ],
    schema=SCHEMA,
)
BOUNDS = {name: column_stats(TABLE[name], max_distinct=0) for name in SCHEMA.names}
VALUES = {name: column_stats(TABLE[name], max_distinct=16) for name in SCHEMA.names}

RULED_OUT_BY_BOUNDS = [
    "n > 20",
    "n >= 21",
    "n < 10",
    "n <= 9",
    "20 < n",
    "n = 9",
    "n = 21",
    "NOT n <= 20",
    "NOT (n >= 10 AND n <= 20)",
    "n NOT BETWEEN 10 AND 20",
    "n BETWEEN 21 AND 30",
    "n IN (1, 9, 21)",
    "n IN (NULL)",
    "n > 20 OR s = 'a'",
    "NOT (n <= 20 OR n = 15)",
    "n > 5 AND s > 'd'",
    "n > m",
    "n = m",
    "n <=> 21",
    "n > 20.5",
    "n > 9e9",
    "n + 1 > 21",
    "n - 1 < 9",
    "n * 2 > 40",
    "n * -1 > -10",
    "-n > -10",
    "m - n < 80",
    "n / 2 > 10",
    "CAST(n AS DOUBLE) < 10",
    "m + 9223372036854775000 < 0",
    "s = 'a'",
    "s < 'b'",
    "s LIKE 'a%'",
    "s LIKE 'e_'",
    "s LIKE 'a'",
    "startswith(s, 'e')",
    "x > 2.5",
    "x < -0.0",
    "d > 2",
    "d = 0.99",
    "d + 1 > 3.00",
    "at < '2024-01-01'",
    "at > '2024-03-01 00:00:00.000001'",
    "year(at) = 2023",
    "CAST(at AS DATE) > '2024-03-01'",
    "CAST(at AS DOUBLE) / 3600 < 400000",
    "round(d, 1) > 2",
    "floor(d) < 1",
    "all_null IS NOT NULL",
    "all_null = 'a'",
    "NOT all_null = 'a'",
    "all_null LIKE '%'",
    "lower(all_null) = 'a'",
    "false",
    "NULL",
    "n = NULL",
]
RULED_OUT_BY_VALUES = [
    "n = 11",
    "n IN (11, 12)",
    "n <> 10 AND n <> 15 AND n <> 20 AND n = 12",
    "NOT (n = 10 OR n = 15 OR n = 20 OR n < 20)",
    "n % 5 <> 0",
    "s = 'c'",
    "s LIKE '%z%'",
    "lower(s) = 'c'",
    "length(s) > 2",
    "s RLIKE '^x'",
    "abs(d) = 1.25",
    "CASE WHEN n > 10 THEN 1 ELSE 2 END = 3",
]
#: Forms that the property tests do not draw; of others they show that no matching row is ruled out.
LEFT_OPEN = [
    "n IN (15)",
    "n * -1 < -15",
    "m > 2 * n",
    "s ILIKE 'B%'",
    "all_null IS NULL",
    "box IS NULL",
    "box IS NOT NULL",
    "box.v = 1",
    "(n > 99) IS NOT TRUE",
    "CASE WHEN n IS NULL THEN 1 END = 1",
]


@pytest.mark.parametrize("text", [*RULED_OUT_BY_BOUNDS, *RULED_OUT_BY_VALUES])
def test_statistics_rule_out_what_no_row_matches(text):
    selector = Selector.parse(text, SCHEMA)

    assert selector.may_match(BOUNDS) == (text in RULED_OUT_BY_VALUES)
    assert not selector.may_match(VALUES)
    assert not any(selector.mask(TABLE).to_pylist())


@pytest.mark.parametrize("text", LEFT_OPEN)
def test_what_a_row_matches_is_left_open(text):
    selector = Selector.parse(text, SCHEMA)

    assert selector.may_match(BOUNDS)
    assert selector.may_match(VALUES)
    assert selector.may_match({})
    assert any(selector.mask(TABLE).to_pylist())


def test_no_nulls_and_only_nulls_are_told_apart():
    stats = {"n": ColumnStats(1, 2, null_count=0, row_count=5)}

    assert not Selector.parse("n IS NULL", SCHEMA).may_match(stats)
    assert Selector.parse("n IS NOT NULL", SCHEMA).may_match(stats)


def test_one_known_bound_is_used():
    stats = {"x": ColumnStats(5.0, None, null_count=0, row_count=5)}

    assert not Selector.parse("x < 5", SCHEMA).may_match(stats)
    assert not Selector.parse("NOT x >= 5", SCHEMA).may_match(stats)


def test_all_rows_equal_rules_out_the_opposite():
    stats = {"n": column_stats(pa.array([7, 7, None]), max_distinct=0)}

    assert not Selector.parse("n <> 7", SCHEMA).may_match(stats)
    assert not Selector.parse("n NOT IN (7, 8)", SCHEMA).may_match(stats)


def test_nan_is_never_ruled_out():
    stats = {"x": column_stats(pa.array([1.0, float("nan")]))}

    for text in ("x > 1e300", "x > 2", "NOT x <= 2", "isnan(x)", "x = CAST('nan' AS DOUBLE)"):
        assert Selector.parse(text, SCHEMA).may_match(stats), text
    assert not Selector.parse("x < 1", SCHEMA).may_match(stats)


def test_a_product_that_is_nan_between_its_corners_is_never_ruled_out():
    table = pa.table({"x": [5.0, float("inf"), 5.0], "y": [1.0, 0.0, -1.0]})
    stats = {name: column_stats(table[name], max_distinct=0) for name in ("x", "y")}
    selector = Selector.parse("x * y > CAST('inf' AS DOUBLE)", table.schema)

    assert selector.mask(table).to_pylist() == [False, True, False]
    assert selector.may_match(stats)


@pytest.mark.parametrize("type_", ["INT", "DOUBLE", "DECIMAL(5, 2)"])
def test_numbers_in_texts_have_another_order_than_the_texts(type_):
    table = pa.table({"s": ["10", "2", "9"]})
    stats = {"s": column_stats(table["s"], max_distinct=0)}

    assert Selector.parse(f"CAST(s AS {type_}) = 2", table.schema).may_match(stats)
    assert Selector.parse(f"CAST(s AS {type_}) > 9", table.schema).may_match(stats)


def test_a_prefix_alone_does_not_make_a_pattern_true():
    stats = {"s": column_stats(pa.array(["ba", "bcd"]), max_distinct=0)}

    assert Selector.parse("NOT s LIKE 'b_'", SCHEMA).may_match(stats)
    assert Selector.parse("NOT s LIKE 'b%d'", SCHEMA).may_match(stats)
    assert not Selector.parse("NOT s LIKE 'b%'", SCHEMA).may_match(stats)


def test_moments_are_compared_in_utc_whatever_their_zone():
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=2)))
    stats = {"at": ColumnStats(noon, noon, null_count=0, row_count=1)}

    assert Selector.parse("at = '2024-01-01 10:00'", SCHEMA).may_match(stats)
    assert not Selector.parse("at = '2024-01-01 12:00'", SCHEMA).may_match(stats)


def test_nanoseconds_within_a_microsecond_are_not_told_apart():
    table = pa.table({"v": pa.array([1000], pa.timestamp("ns"))})
    stats = {"v": column_stats(table["v"], max_distinct=0)}

    assert Selector.parse("v NOT IN ('1970-01-01 00:00:00.000001999')", table.schema).may_match(
        stats
    )
    assert Selector.parse("v < '1970-01-01 00:00:00.000001001'", table.schema).may_match(stats)


def test_long_texts_are_ruled_out_by_their_first_characters_only():
    text = "k" * 100
    stats = {"s": column_stats(pa.array([text]), max_distinct=16)}

    assert Selector.parse(f"s = '{text}'", SCHEMA).may_match(stats)
    assert Selector.parse(f"s > '{'k' * 80}'", SCHEMA).may_match(stats)
    assert Selector.parse(f"s LIKE '{'k' * 70}%'", SCHEMA).may_match(stats)
    assert not Selector.parse(f"s > '{'k' * 63}l'", SCHEMA).may_match(stats)


def test_a_whole_number_too_great_for_a_double_is_compared_as_the_mask_does():
    """Both sides become doubles, in which 2^53 + 1 is 2^53."""
    table = pa.table({"m": [2**53 + 1]})
    selector = Selector.parse("m = 9007199254740992e0", table.schema)

    assert selector.mask(table).to_pylist() == [True]
    assert selector.may_match({"m": column_stats(table["m"], max_distinct=0)})


WITH_MORE = pa.schema([*SCHEMA, pa.field("k", pa.int32()), pa.field("other", pa.int32())])
#: n in 10..20, m in 100..200, without NULL; k may be NULL.
SURE = {
    "n": ColumnStats(10, 20, null_count=0, row_count=4),
    "m": ColumnStats(100, 200, null_count=0, row_count=4),
    "k": ColumnStats(10, 20, null_count=1, row_count=4),
    "s": ColumnStats("ba", "bc", null_count=0, row_count=4),
}
CERTAIN = [
    "n >= 10",
    "n < 21 AND m > 20",
    "n < 21 OR k > 99",
    "NOT n = 9",
    "n IS NOT NULL",
    "n IS NOT NULL OR n = NULL",
    "NOT ((k > 20) IS TRUE)",
    "s LIKE 'b%'",
    "true",
]
UNCERTAIN = ["n > 10", "k >= 10 OR n = NULL", "n / (m - 150) < 1e9", "other > 1", "NULL"]


@pytest.mark.parametrize("text", CERTAIN)
def test_what_bounds_decide_needs_no_look(text):
    assert Selector.parse(text, WITH_MORE).must_match(SURE)


@pytest.mark.parametrize("text", UNCERTAIN)
def test_what_may_be_false_or_null_needs_a_look(text):
    assert not Selector.parse(text, WITH_MORE).must_match(SURE)


def test_one_value_without_null_decides_an_equality():
    stats = {"s": column_stats(pa.array(["a", "a"]))}

    assert Selector.parse("s = 'a'", SCHEMA).must_match(stats)
    assert not Selector.parse("s = 'a'", SCHEMA).must_match(
        {"s": column_stats(pa.array(["a", None]))}
    )
