"""Hashes of values: equal for equal values wherever they stand, and others for all others."""

import numpy as np
import pyarrow as pa
import pytest

from queue_core.segments.value_hash import LONG, hash_values, weighed

LENGTHS = [*range(26), *range(LONG - 9, LONG + 10), 4 * LONG]
VALUES = [bytes(n % 127 + 1 for n in range(length)) for length in LENGTHS]


@pytest.mark.parametrize("value", VALUES, ids=LENGTHS)
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
    together = hash_values(pa.array(VALUES))
    behind = hash_values(pa.array([b"before", *VALUES]).slice(1))
    apart = [hash_values(pa.array([value]))[0] for value in VALUES]

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
