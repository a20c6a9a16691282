"""Comparisons of numbers that have NaN and a signed zero."""

import pytest

from tests.unit.selector.selector_table import select


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("x = x", [0, 1, 3]),
        ("x > 1e300", [1]),
        ("x >= 1.5", [0, 1]),
        ("x < 1e300", [0, 3]),
        ("x <> 1.5", [1, 3]),
        ("x <> x", []),
        ("x IN (CAST('-0' AS DOUBLE))", [3]),
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
