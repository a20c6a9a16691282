"""Rows behave like a set of numbers, in each of their forms."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from queue_core.values.rows import EMPTY, Rows
from tests.factories import make_rows

NUMBERS = st.one_of(
    st.sets(st.integers(0, 40)),
    st.tuples(st.integers(0, 40), st.integers(0, 40)).map(lambda ends: set(range(*sorted(ends)))),
    st.sets(st.integers(0, (1 << 20) - 1), max_size=30),
)


def rows_of(numbers):
    return Rows.of_numbers(np.array(sorted(numbers), dtype=np.int64))


def set_of(rows):
    return set(rows.numbers().tolist())


@given(NUMBERS)
def test_rows_hold_the_numbers_they_were_made_of(numbers):
    rows = rows_of(numbers)
    has_gaps = bool(numbers) and len(numbers) < max(numbers) - min(numbers) + 1

    assert rows.numbers().tolist() == sorted(numbers)
    assert len(rows) == len(numbers)
    assert bool(rows) == bool(numbers)
    assert not numbers or (rows.start, rows.stop) == (min(numbers), max(numbers) + 1)
    # Only rows with gaps are kept as a bitmap.
    assert (rows.bitmap is not None) == has_gaps
    assert (rows.to_bytes() is not None) == has_gaps
    assert Rows.from_bytes(rows.start, rows.stop, rows.to_bytes()) == rows


@given(st.lists(st.integers(0, 100)))
def test_numbers_may_come_in_any_order_and_more_than_once(numbers):
    rows = Rows.of_numbers(np.array(numbers, dtype=np.int64))

    assert rows.numbers().tolist() == sorted(set(numbers))


@given(NUMBERS, NUMBERS)
def test_set_operations_agree_with_sets(one, other):
    both, either, rest = (
        rows_of(one) & rows_of(other),
        rows_of(one) | rows_of(other),
        rows_of(one) - rows_of(other),
    )

    assert (set_of(both), set_of(either), set_of(rest)) == (one & other, one | other, one - other)
    # Equal sets are equal rows, however they came about.
    assert (both, either) == (rows_of(one & other), rows_of(one | other))
    assert not set_of(rest) or rest == rows_of(one - other)


@given(NUMBERS, st.integers(0, 50), st.integers(0, 50))
def test_between_keeps_the_rows_of_a_half_open_range(numbers, start, stop):
    assert set_of(rows_of(numbers).between(start, stop)) == numbers & set(range(start, stop))


@given(NUMBERS, st.integers(-1, 45))
def test_split_gives_the_first_rows_and_the_others(numbers, count):
    first, others = rows_of(numbers).split(count)
    ordered = sorted(numbers)

    assert first.numbers().tolist() == ordered[: max(count, 0)]
    assert others.numbers().tolist() == ordered[max(count, 0) :]


def test_splitting_at_the_ends_returns_the_same_object():
    """The verbs tell by identity that a slice is taken whole."""
    rows = make_rows(1, 2, 5)

    assert rows.split(3)[0] is rows
    assert rows.split(0)[1] is rows


def test_nothing_changes_rows():
    one, other = make_rows(1, 2, 5), make_rows(2, 5, 9)

    _ = one & other, one | other, one - other, one.between(2, 3), one.split(1)
    one.as_bitmap().add(99)

    assert one.numbers().tolist() == [1, 2, 5]
    assert other.numbers().tolist() == [2, 5, 9]


def test_the_bytes_of_rows_are_the_portable_roaring_format():
    """They are stored for ever: https://github.com/RoaringBitmap/RoaringFormatSpec."""
    assert make_rows(0, 1, 5).to_bytes().hex() == "3a300000010000000000020010000000000001000500"


def test_an_empty_span_has_no_rows():
    rows = Rows(3, 3)

    assert not rows
    assert rows.numbers().tolist() == []
    assert (rows | EMPTY).numbers().tolist() == []
