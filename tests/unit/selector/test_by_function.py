"""Selectors that are Python functions, evaluated on rows."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from queue_core.errors import BadSelector
from queue_core.selector import FunctionSelector, Predicate

SCHEMA = pa.schema([("number", pa.int64()), ("kind", pa.string())])
ROWS = pa.table({"#id": [7, 8, 9], "number": [1, None, 3], "kind": ["a", "b", None]})


def large(batch):
    return pc.greater(batch["number"], 1)


@pytest.mark.parametrize("rows", [ROWS, ROWS.to_batches()[0], pa.concat_tables([ROWS, ROWS])])
def test_a_function_selects_rows_and_null_does_not(rows):
    found = FunctionSelector.of(large, SCHEMA).mask(rows)
    assert found.to_pylist() == [False, False, True] * (rows.num_rows // 3)


def test_a_function_gets_all_columns_or_those_that_are_named():
    seen = []

    def keep(batch):
        seen.append(batch.schema.names)
        return pa.array([True] * len(batch))

    for given in (keep, Predicate(keep, ["kind"]), Predicate(keep, ("kind", "number", "kind"))):
        selector = FunctionSelector.of(given, SCHEMA)
        selector.mask(ROWS)
        assert selector.columns == set(seen[-1])
    assert seen == [["number", "kind"], ["kind"], ["kind", "number"]]


def test_a_function_is_not_called_without_rows_and_may_return_chunks():
    assert len(FunctionSelector.of(lambda _: 1 / 0, SCHEMA).mask(ROWS.slice(0, 0))) == 0
    chunks = pa.chunked_array([[True], [False, None]])
    found = FunctionSelector.of(lambda _: chunks, SCHEMA).mask(ROWS)
    assert found.to_pylist() == [True, False, False]


def test_statistics_and_earlier_results_say_nothing():
    selector = FunctionSelector.of(large, SCHEMA)
    assert selector.may_match({})
    assert not selector.must_match({})
    assert not selector.repeatable


def fails(_):
    raise ValueError("no such price")


def too_short(_):
    return pa.array([True])


def numbers(batch):
    return batch["number"]


def a_list(batch):
    return [True] * len(batch)


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (fails, r"test_by_function\.fails raised ValueError: no such price"),
        (too_short, r"test_by_function\.too_short returned 1 values for 3 messages"),
        (numbers, r"test_by_function\.numbers returned int64; return a pyarrow BooleanArray"),
        (a_list, r"test_by_function\.a_list returned list; return a pyarrow BooleanArray"),
    ],
)
def test_a_wrong_result_names_the_function(function, fault):
    with pytest.raises(BadSelector, match=fault):
        FunctionSelector.of(function, SCHEMA).mask(ROWS)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (5, "a selector is a text or a function, not int"),
        (Predicate(5), "a predicate has a function, not int"),
        (Predicate(large, "number"), r"large: columns='number': give a list of names"),
        (Predicate(large, ["nmber"]), r"large: there is no column 'nmber'; did you mean 'number'"),
    ],
)
def test_what_is_no_function_of_columns_is_refused(given, fault):
    with pytest.raises(BadSelector, match=fault):
        FunctionSelector.of(given, SCHEMA)
