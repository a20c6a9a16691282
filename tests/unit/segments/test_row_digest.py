"""A digest of rows: the same in any order and division, and another one for other rows."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest

from queue_core.segments.row_digest import MODULUS, digest_of, digest_of_ids
from queue_core.segments.value_hash import LONG
from tests.arrow_types import KEPT

ROWS = pa.record_batch(
    {
        "number": pa.array(range(100), pa.int64()),
        "text": pa.array([None if n % 7 == 0 else f"customer-{n % 10}" for n in range(100)]),
        "amount": pa.array([None if n % 5 == 0 else n / 4 for n in range(100)], pa.float64()),
        "inner": pa.array([{"a": n, "b": None if n % 3 else "x"} for n in range(100)]),
        "list": pa.array([[n] * (n % 3) for n in range(100)]),
    }
)


@pytest.mark.parametrize("parts", [1, 2, 3, 7])
def test_neither_order_nor_division_of_rows_matter(parts):
    size = 100 // parts + 1
    shuffled = ROWS.take(pa.array(np.random.default_rng(1).permutation(100)))
    digests = [digest_of(shuffled.slice(first, size)) for first in range(0, 100, size)]

    assert sum(digests) % MODULUS == digest_of(ROWS)
    assert digest_of(ROWS.slice(0, 0)) == 0


VALUES = [
    (1, 2),
    (0, None),
    (True, False),
    ("a", "b"),
    ("", None),
    (b"a", b"b"),
    (0.5, 0.25),
    (decimal.Decimal("1.5"), decimal.Decimal("1.6")),
    (dt.date(2024, 1, 1), dt.date(2024, 1, 2)),
    (dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)),
    ({"a": 1}, {"a": 2}),
    ({"a": 1}, None),
    ([1], [1, 1]),
]


@pytest.mark.parametrize(("one", "other"), VALUES)
def test_another_value_has_another_digest(one, other):
    kind = pa.array([one]).type

    def digest(value):
        return digest_of(pa.record_batch({"value": pa.array([value, one], kind)}))

    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


def test_values_that_change_places_between_rows_or_columns_are_noticed():
    def digest(first, second):
        return digest_of(pa.record_batch({"first": first, "second": second}))

    assert len({digest([1, 2], [3, 4]), digest([1, 2], [4, 3]), digest([3, 4], [1, 2])}) == 3


def test_values_of_all_lengths_have_the_same_digest_together_and_apart():
    values = pa.array(
        [
            None,
            *(
                bytes(length % 256 for _ in range(length))
                for length in (0, 1, 7, 8, 9, LONG - 1, LONG, LONG + 1)
            ),
        ]
    )
    rows = pa.record_batch({"value": values})

    apart = [digest_of(rows.slice(at, 1)) for at in range(len(rows))]

    for first in (0, 3):
        assert digest_of(rows.slice(first)) == sum(apart[first:]) % MODULUS


def test_ids_have_a_digest_too():
    ids = np.arange(10, dtype=np.int64)

    assert digest_of_ids(ids) == digest_of_ids(ids[::-1].copy())
    assert digest_of_ids(ids) != digest_of_ids(ids + 1)
    assert digest_of_ids(ids[:0]) == 0


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("nulls", [[], [None]], ids=["values", "nulls"])
def test_every_type_has_a_digest_with_nulls_and_without(name, nulls):
    kind, values = KEPT[name]
    known = [value for value in values if value is not None]
    rows = pa.record_batch([pa.array([*known, *nulls], kind)], ["column"])

    whole = digest_of(rows)

    assert whole == sum(digest_of(rows.slice(n, 1)) for n in range(len(rows))) % MODULUS


@pytest.mark.parametrize("precision", [1, 5, 18, 38])
def test_a_decimal_of_any_precision_may_be_null(precision):
    kind = pa.decimal128(precision, 0)

    assert digest_of(pa.record_batch([pa.array([None, decimal.Decimal(1)], kind)], ["price"]))
