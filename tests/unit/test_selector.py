"""Selectors as values: what they touch, what they are evaluated on, and how large they may be."""

import datetime as dt
import pickle
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import Selector
from tests.unit.selector_table import SCHEMA, TABLE, select


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

    with pytest.raises(BadSelector, match=r"'priority > 1' cannot be evaluated on these rows"):
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

    both = " AND ".join(f"id <> {n}" for n in range(1, 4000))
    assert select(both) == [0]


def test_parts_that_share_a_node_are_worked_out_once():
    """Without that, what follows would take 4 to the power of 20 steps."""
    text = "priority"
    for _ in range(20):
        text = f"if({text} BETWEEN 0 AND 9, 1, 2)"

    assert select(f"{text} = 1") == [0, 1, 2, 3]


def test_the_recursion_limit_of_a_deep_caller_is_an_error_of_ours():
    def deep(frames):
        if frames:
            return deep(frames - 1)
        return Selector.parse("(" * 20 + "priority" + ")" * 20 + " > 1", SCHEMA)

    used = len(__import__("inspect").stack())
    with pytest.raises(BadSelector, match="nested too deeply"):
        deep(sys.getrecursionlimit() - used - 150)
