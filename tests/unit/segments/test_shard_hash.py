"""Which shard a key belongs to is a contract for ever, pinned here by its values."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from queue_core.errors import SchemaMismatch
from queue_core.segments.shard_hash import can_be_key, check_key, shards_of

MASK = 0xFFFFFFFFFFFFFFFF
SEED = 0x9E3779B97F4A7C15

#: Keys of each type, and their shards among 512. These never change.
GOLDEN = {
    "int64": (pa.array([0, 1, -1, 2**62, -(2**63)]), [234, 288, 64, 143, 353]),
    "int32": (pa.array([0, 1, -1], pa.int32()), [234, 288, 64]),
    "int8": (pa.array([0, 1, -1], pa.int8()), [234, 288, 64]),
    "boolean": (pa.array([False, True]), [234, 288]),
    "date": (
        pa.array([dt.date(1970, 1, 1), dt.date(2024, 2, 29), dt.date(1900, 1, 1)]),
        [234, 7, 26],
    ),
    "timestamp": (
        pa.array([0, 1_700_000_000_000_000, -5], pa.timestamp("us", "UTC")),
        [234, 42, 432],
    ),
    "timestamp without zone": (
        pa.array([0, 1_700_000_000_000_000, -5], pa.timestamp("us")),
        [234, 42, 432],
    ),
    "decimal": (
        pa.array(
            [Decimal("0.00"), Decimal("1.23"), Decimal("-1.23"), Decimal("9" * 20 + ".99")],
            pa.decimal128(30, 2),
        ),
        [220, 57, 276, 104],
    ),
    "string": (
        pa.array(["", "a", "abcdefgh", "abcdefghi", "größe", "customer-1" * 5]),
        [234, 179, 67, 202, 269, 310],
    ),
    "binary": (
        pa.array([b"", b"\x00", b"\x00\x00", b"\xff" * 8, b"\xff" * 9]),
        [234, 90, 78, 485, 34],
    ),
}


def mixed(word):
    word ^= word >> 33
    word = word * 0xFF51AFD7ED558CCD & MASK
    word ^= word >> 33
    word = word * 0xC4CEB9FE1A85EC53 & MASK
    return word ^ word >> 33


def hash_of(text):
    """The hash of one text, written down a second time and one byte after the other."""
    result = mixed(len(text) ^ SEED)
    for start in range(0, len(text), 8):
        result = mixed(result ^ int.from_bytes(text[start : start + 8], "little"))
    return result


@pytest.mark.parametrize(("keys", "shards"), GOLDEN.values(), ids=GOLDEN)
def test_a_key_has_the_shard_that_it_has_always_had_however_the_keys_are_cut(keys, shards):
    assert can_be_key(keys.type)
    for first in range(len(keys)):
        for stop in range(first, len(keys) + 1):
            assert shards_of(keys[first:stop], 512).tolist() == shards[first:stop]
    assert shards_of(pa.array([], keys.type), 8).tolist() == []
    assert shards_of(keys, 1).tolist() == [0] * len(shards)


@given(st.lists(st.binary(max_size=30)))
def test_bytes_are_hashed_eight_at_a_time(texts):
    assert shards_of(pa.array(texts, pa.binary()), 509).tolist() == [
        hash_of(text) % 509 for text in texts
    ]


@given(st.lists(st.text(max_size=12)), st.integers(0, 5), st.integers(0, 5))
def test_texts_are_hashed_as_their_utf8_bytes_wherever_they_stand(texts, before, after):
    around = pa.array(["x" * 3] * before + texts + ["y" * 9] * after, pa.string())
    cut = around.slice(before, len(texts))

    assert shards_of(cut, 509).tolist() == [hash_of(text.encode()) % 509 for text in texts]


@given(st.lists(st.integers(-(2**63), 2**63 - 1)))
def test_whole_numbers_are_hashed_by_their_bits(numbers):
    assert shards_of(pa.array(numbers, pa.int64()), 509).tolist() == [
        mixed(number & MASK ^ SEED) % 509 for number in numbers
    ]


@given(st.lists(st.integers(-128, 127)))
def test_a_whole_number_keeps_its_shard_when_its_column_becomes_wider(numbers):
    kinds = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
    one, *others = (shards_of(pa.array(numbers, kind), 64).tolist() for kind in kinds)

    assert all(other == one for other in others)


@pytest.mark.parametrize(
    "keys",
    [
        pa.array(range(100_000)),
        pa.array([f"customer-{number}" for number in range(100_000)]),
        pa.array(range(0, 100_000 << 12, 1 << 12)),
    ],
    ids=["numbers", "texts", "numbers with zeroes at the end"],
)
def test_many_keys_are_spread_evenly(keys):
    counts = np.bincount(shards_of(keys, 16), minlength=16)

    assert counts.min() > 0.95 * len(keys) / 16
    assert counts.max() < 1.05 * len(keys) / 16


@pytest.mark.parametrize(
    "kind",
    [
        pa.float32(),
        pa.float64(),
        pa.null(),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.map_(pa.string(), pa.int64()),
        pa.duration("us"),
        pa.time64("ns"),
    ],
    ids=str,
)
def test_other_types_cannot(kind):
    assert not can_be_key(kind)


SCHEMA = pa.schema([("customer", pa.string()), ("amount", pa.float64())])


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("custmer", "queue 'orders' has no column 'custmer'; did you mean 'customer'?"),
        ("zebra", "queue 'orders' has no column 'zebra'. Columns: customer, amount"),
        ("amount", "key='amount': a column of type double cannot pick the shard; use an integer"),
    ],
)
def test_a_key_that_cannot_be_one_is_refused_with_what_to_use(key, message):
    check_key("customer", SCHEMA, "orders")
    with pytest.raises(SchemaMismatch) as refusal:
        check_key(key, SCHEMA, "orders")

    assert message in str(refusal.value)
