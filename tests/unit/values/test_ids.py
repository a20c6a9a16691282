"""Sets of message ids behave as sets of numbers do, and travel well."""

import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap

from queue_core.errors import BadOutcome
from queue_core.values.ids import IdSet, first_id
from queue_core.values.model import MAX_SEGMENT_ROWS

IDS = st.sets(
    st.tuples(st.integers(0, 5), st.one_of(st.integers(0, 20), st.just(MAX_SEGMENT_ROWS - 1))).map(
        lambda place: first_id(place[0]) + place[1]
    )
)


def set_of(ids):
    return set(ids.numbers().tolist())


@given(IDS.flatmap(lambda numbers: st.permutations(sorted(numbers))))
def test_a_set_holds_the_ids_it_was_made_of_ascending(numbers):
    ids = IdSet.of(numbers)

    assert ids.numbers().tolist() == sorted(numbers)
    assert len(ids) == len(numbers)
    assert ids == IdSet.of(sorted(numbers))
    assert pickle.loads(pickle.dumps(ids)) == ids
    assert sorted(ids.segments) == sorted({number >> 20 for number in numbers})
    for segment in ids.segments:
        rows = ids.rows(segment).numbers().tolist()
        assert [first_id(segment) + row for row in rows] == sorted(
            number for number in numbers if number >> 20 == segment
        )


@given(IDS, IDS)
def test_union_intersection_and_difference_agree_with_sets(one, other):
    assert set_of(IdSet.of(one) | IdSet.of(other)) == one | other
    assert (IdSet.of(one) & IdSet.of(other)) == IdSet.of(one & other)
    assert (IdSet.of(one) - IdSet.of(other)) == IdSet.of(one - other)


def test_a_million_ids_are_a_few_bytes_to_send():
    ids = IdSet.of(np.arange(1 << 20) + first_id(7))

    assert len(ids) == 1 << 20
    assert len(pickle.dumps(ids)) < 1000


@pytest.mark.parametrize(
    "given_as",
    [
        list,
        tuple,
        np.array,
        pa.array,
        lambda numbers: pa.array(numbers, pa.int32()),
        lambda numbers: pa.chunked_array([pa.array(numbers[:1]), pa.array(numbers[1:])]),
    ],
    ids=["list", "tuple", "numpy", "arrow", "int32", "chunked"],
)
def test_ids_may_come_in_any_form(given_as):
    numbers = [first_id(1) + 3, first_id(1) + 1, first_id(2)]

    assert IdSet.of(given_as(numbers)) == IdSet.of(numbers)
    assert set_of(IdSet.of(given_as(numbers))) == set(numbers)


@pytest.mark.parametrize(
    "empty",
    [[], (), np.array([]), np.array([], dtype=np.int64), pa.array([], pa.int64())],
)
def test_no_ids_are_an_empty_set(empty):
    ids = IdSet.of(empty)

    assert len(ids) == 0
    assert ids.segments == ()
    assert ids.numbers().dtype == np.int64


@pytest.mark.parametrize(
    ("wrong", "culprit"),
    [
        ([-1], "-1"),
        (["one"], "one"),
        ([1.5], "1.5"),
        (np.array([1.5]), "double"),
        (pa.array([1.5]), "1.5"),
        ([None], "null"),
        (pa.array([1, None]), "null"),
        (7, "int"),
        ([1 << 70], "whole numbers"),
        (np.ma.masked_array(np.array([1, 2]), [False, True]), "null"),
        (np.array([[1, 2]]), "1-dimensional"),
        (np.array(7), "1-dimensional"),
    ],
)
def test_what_is_no_id_is_refused_by_name(wrong, culprit):
    with pytest.raises(BadOutcome, match=culprit):
        IdSet.of(wrong)


def test_a_segment_that_is_not_in_the_set_has_no_rows():
    assert len(IdSet.of([first_id(1)]).rows(2)) == 0


def test_a_set_tells_how_large_it_is():
    ids = IdSet({1: BitMap([0, 1]), 2: BitMap([5])})

    assert repr(ids) == "<IdSet of 3 messages in 2 segments>"


def test_equal_sets_have_equal_hashes():
    assert hash(IdSet.of([1, first_id(3)])) == hash(IdSet.of([first_id(3), 1]))
    assert IdSet.of([1]) != IdSet.of([2])
    assert IdSet.of([1]) != {1}
