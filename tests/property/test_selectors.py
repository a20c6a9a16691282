"""Random selectors and orders on random rows, against a row-by-row reference."""

import pickle

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from queue_core.errors import BadSelector
from queue_core.selector import Order, Selector
from queue_core.values.column_stats import column_stats, stats_from_json, stats_to_json
from tests.property.sql_reference import SCHEMA, conditions, key_parts, rows, sort_rows, table

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")


def statistics(data, max_distinct):
    """Statistics as the catalog gives them back."""
    found = {name: column_stats(data[name], max_distinct=max_distinct) for name in SCHEMA.names}
    return stats_from_json(stats_to_json(found), SCHEMA)


def parsed(kind, text):
    """Deep nesting is refused, which other tests see; here it is of no interest."""
    try:
        return kind.parse(text, SCHEMA)
    except BadSelector as error:
        assume("nested too deeply" not in str(error))
        raise


@settings(max_examples=3 * settings.default.max_examples)
@given(conditions, rows())
def test_a_mask_is_what_each_row_says(condition, rows):
    text, meaning = condition
    selector = parsed(Selector, text)

    mask = selector.mask(table(rows))

    assert mask.to_pylist() == [meaning(row) is True for row in rows]


@settings(max_examples=4 * settings.default.max_examples)
@given(conditions, rows(max_size=4), st.sampled_from([0, 2, 16]))
def test_statistics_rule_out_no_row_that_matches_and_promise_none_that_does_not(
    condition, rows, max_distinct
):
    selector = parsed(Selector, condition[0])
    data, stats = table(rows), statistics(table(rows), max_distinct)

    matches = selector.mask(data).to_pylist()

    assert selector.may_match(stats) or not any(matches)
    assert not selector.must_match(stats) or all(matches)
    copy = pickle.loads(pickle.dumps(selector))
    assert (copy, hash(copy), copy.columns) == (selector, hash(selector), selector.columns)


@settings(max_examples=3 * settings.default.max_examples)
@given(
    st.lists(key_parts, min_size=1, max_size=3),
    rows(),
    st.integers(0, 9),
    st.sampled_from([0, 16]),
)
def test_an_order_is_that_of_comparing_rows_and_no_row_is_before_the_bound(
    keys, rows, k, max_distinct
):
    keys = [key for key in keys if _has_column(key)]
    assume(keys)
    order = parsed(Order, ", ".join(sql + way + nulls for (sql, _), way, nulls in keys))
    data = table(rows)

    indices = order.indices(data).to_pylist()
    places = [order.sort_key(data, row) for row in range(len(rows))]

    assert indices == sort_rows(rows, keys)
    assert order.top(data, k).to_pylist() == indices[:k]
    assert sorted(range(len(rows)), key=places.__getitem__) == indices
    bound = order.bound(statistics(data, max_distinct))
    assert all(bound <= place for place in places)


def _has_column(key):
    try:
        Order.parse(key[0][0], SCHEMA)
    except BadSelector as error:
        assume("nested too deeply" not in str(error))
        return False
    return True
