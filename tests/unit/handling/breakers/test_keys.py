"""Keys of a breaker: values as texts, and conditions that select exactly their messages."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import BadOption
from queue_core.handling.breakers.breaker import WHOLE, Breaker
from queue_core.handling.breakers.keys import (
    check_by,
    condition,
    key_of,
    keys_of,
    listed,
    name_for,
    restricted,
    value_of,
)
from queue_core.selector import Selector

SCHEMA = pa.schema([("tenant", pa.string()), ("`odd` name", pa.int64()), ("x", pa.float64())])
TEXTS = st.none() | st.text(st.characters(blacklist_categories=["Cs"]), max_size=6)


@given(st.lists(TEXTS, min_size=1, max_size=8), st.sets(TEXTS, min_size=1, max_size=4))
def test_a_condition_selects_the_messages_of_its_keys(values, chosen):
    rows = pa.table({"tenant": pa.array(values, pa.string())})
    keys = {key_of(value) for value in chosen}
    schema = pa.schema([SCHEMA.field("tenant")])

    def mask(among):
        text = condition("tenant", keys, among=among)
        return Selector.parse(text, schema).mask(rows).to_pylist()

    assert mask(True) == [value in chosen for value in values]
    assert mask(False) == [value not in chosen for value in values]


def test_names_of_columns_and_numbers():
    rows = pa.table({"`odd` name": [1, -2, None]})
    text = condition("`odd` name", {"-2", "null"}, among=True)

    selector = Selector.parse(text, pa.schema([SCHEMA.field("`odd` name")]))
    assert selector.mask(rows).to_pylist() == [False, True, True]


def test_each_message_has_its_key():
    batch = pa.record_batch({"tenant": ["a", None, "a"], "up": [True, False, None]})

    assert keys_of(batch, "tenant").to_pylist() == ['"a"', "null", '"a"']
    assert keys_of(batch, "up").to_pylist() == ["true", "false", "null"]
    assert keys_of(batch, None).to_pylist() == [WHOLE] * 3
    for by in ("tenant", "up", None):
        assert listed(batch, by) == keys_of(batch, by).to_pylist()
    assert [value_of(key) for key in ('"a"', "null", "3", WHOLE)] == ["a", None, 3, None]


def test_a_selector_is_restricted_further():
    assert restricted("a OR b", ["c"]) == "(a OR b) AND c"
    assert restricted(None, ["c"]) == "c"
    assert restricted(None, []) is None


def test_columns_that_cannot_be_keys_are_refused():
    check_by(Breaker(by="tenant"), "orders", SCHEMA)
    check_by(Breaker(), "orders", SCHEMA)
    with pytest.raises(BadOption, match="did you mean 'tenant'"):
        check_by(Breaker(by="tenent"), "orders", SCHEMA)
    with pytest.raises(BadOption, match="'x' of queue 'orders' is double"):
        check_by(Breaker(by="x"), "orders", SCHEMA)


def test_the_name_by_default_is_short_and_independent_of_the_order():
    assert name_for(["b", "a"]) == name_for(["a", "b"]) == "a,b"
    assert len(name_for([f"queue_{n}" for n in range(100)])) == 64
