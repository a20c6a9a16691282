"""Columns and fields of structs, by name."""

from queue_core.selector import Selector
from tests.unit.selector.selector_table import SCHEMA, TABLE, select


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


def test_a_column_that_older_rows_lack_is_null():
    selector = Selector.parse("priority > 1 OR size IS NULL", SCHEMA)

    assert selector.mask(TABLE.select(["id", "priority"])).to_pylist() == [True] * 4
    assert selector.mask(TABLE.select(["id"])).to_pylist() == [True] * 4
