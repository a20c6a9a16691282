"""A condition that a column has none of some values."""

import pyarrow as pa
import pytest

from queue_core.selector import NoneOf
from queue_core.values.column_stats import column_stats

SOME = NoneOf("customer", frozenset({"a", None}))


def test_rows_with_another_value_match():
    rows = pa.table({"customer": pa.chunked_array([["a", "b"], [None, "c"]])})

    assert SOME.mask(rows).to_pylist() == [False, True, False, True]
    assert NoneOf("customer", frozenset({"a"})).mask(rows).to_pylist() == [False, True, True, True]
    assert SOME.columns == {"customer"}


@pytest.mark.parametrize(
    ("values", "may", "must"),
    [
        (["a", None], False, False),
        (["a", "b"], True, False),
        (["b", "c"], True, True),
        (["b", None], True, False),
        ([None], False, False),
        ([str(n) for n in range(99)], True, False),
    ],
)
def test_statistics_show_whether_rows_match(values, may, must):
    stats = {"customer": column_stats(pa.array(values, pa.string()))}

    assert (SOME.may_match(stats), SOME.must_match(stats)) == (may, must)


def test_without_statistics_rows_may_match():
    assert SOME.may_match({})
    assert not SOME.must_match({})
