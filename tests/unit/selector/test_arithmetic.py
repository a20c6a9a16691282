"""Numbers: overflow and division by zero give NULL."""

import pytest

from tests.unit.selector.selector_table import select


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
