"""A digest of rows: the same in any order and division, and another one for other rows."""

import datetime as dt
import decimal

import numpy as np
import pyarrow as pa
import pytest

from queue_core.segments.row_digest import (
    LONG,
    MODULUS,
    digest_of,
    digest_of_ids,
    hash_values,
    weighed,
)
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


LENGTHS = [*range(26), *range(LONG - 9, LONG + 10), 4 * LONG]
BYTES = [bytes(n % 127 + 1 for n in range(length)) for length in LENGTHS]


@pytest.mark.parametrize("value", BYTES, ids=LENGTHS)
def test_each_byte_of_a_value_counts(value):
    places = {0, 1, 7, 8, len(value) // 2, len(value) - 2, len(value) - 1}
    changed = [
        value[:at] + bytes([value[at] ^ 0x80]) + value[at + 1 :]
        for at in places
        if 0 <= at < len(value)
    ]
    # Zeros at the end are bytes like others.
    values = [value, *changed, value + b"\0", value[:-1] + b"\0\0"]

    assert len(set(hash_values(pa.array(values)).tolist())) == len(values)


def test_a_value_has_the_same_hash_wherever_it_stands():
    together = hash_values(pa.array(BYTES))
    behind = hash_values(pa.array([b"before", *BYTES]).slice(1))
    apart = [hash_values(pa.array([value]))[0] for value in BYTES]

    assert together.tolist() == behind.tolist() == apart
    assert hash_values(pa.array([], pa.binary())).tolist() == []


@pytest.mark.parametrize("length", [1, 7, 8, 9, 100, LONG - 1])
def test_values_of_one_length_have_the_hashes_that_they_have_among_others(length):
    rng = np.random.default_rng(length)
    values = [rng.bytes(length) for _ in range(2500)]

    alike = hash_values(pa.array([b"before", *values]).slice(1))
    among = hash_values(pa.array([*values, b"another length" + bytes(length)]))

    assert alike.tolist() == among[:-1].tolist()


def test_the_highest_bits_of_two_words_do_not_cancel_out():
    def value(*words):
        return b"".join(word.to_bytes(8, "little") for word in words)

    top = 1 << 63
    values = [value(1, 2, 3), value(1 | top, 2 | top, 3), value(1 | top, 2, 3 | top)]

    assert len(set(hash_values(pa.array(values)).tolist())) == len(values)


def test_texts_have_the_hashes_of_their_bytes():
    texts = ["", "a", "größer", "x" * LONG]

    hashes = hash_values(pa.array(texts))

    assert hashes.tolist() == hash_values(pa.array([text.encode() for text in texts])).tolist()


def test_the_place_of_a_word_counts():
    words = np.arange(3, dtype=np.uint64)

    at_each = [weighed(words, place).tolist() for place in range(3)]

    assert len({tuple(each) for each in at_each}) == 3
    assert weighed(words, np.array([0, 1, 2])).tolist() == [at_each[n][n] for n in range(3)]
    assert words.tolist() == [0, 1, 2]
