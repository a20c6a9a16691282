"""Selectors as values, evaluated on rows."""

import pickle

import pyarrow as pa
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import Selector
from queue_core.selector.predicate import parsed_of_log
from tests.unit.selector.selector_table import SCHEMA, TABLE


def test_selectors_are_values():
    selector = Selector.parse("priority > 1", SCHEMA)
    same = Selector.parse("priority > 1", pa.schema([*SCHEMA, ("added", pa.string())]))
    other = Selector.parse("priority > 2", SCHEMA)

    assert selector == same
    assert hash(selector) == hash(same)
    assert selector != other
    assert pickle.loads(pickle.dumps(selector)).mask(TABLE).equals(selector.mask(TABLE))
    # One that needs none of its columns is pickled with them.
    none = Selector.parse("priority = NULL OR kind LIKE NULL", SCHEMA)
    assert none.columns == {"priority", "kind"}
    assert pickle.loads(pickle.dumps(none)) == none


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


LOGGED = pa.schema([("amount", pa.int64())])


def test_it_may_name_what_a_message_has_in_the_log():
    condition = parsed_of_log("amount > 100 AND _message_id > 0 AND _shard = 1", LOGGED)
    assert condition.columns == {"amount", "_message_id", "_shard"}


@pytest.mark.parametrize("column", ["_attempt", "_fired_at", "_age", "_now", "other"])
def test_it_may_not_name_what_depends_on_a_firing(column):
    with pytest.raises(BadSelector, match=column):
        parsed_of_log(f"{column} IS NULL", LOGGED)
