"""The selector of a firing, narrowed by the breaker of a pool."""

import pyarrow as pa
import pytest

from queue_core.handling.breakers.gate import FirePlan
from queue_core.pool.narrowing import narrowed
from queue_core.selector import Predicate

A, NULL = '"a"', "null"
BATCH = pa.record_batch({"n": [1, 2, 3, 4], "tenant": ["a", "b", None, "a"]})


def odd(batch):
    return pa.array([number % 2 == 1 for number in batch["n"].to_pylist()])


def test_without_a_column_or_without_keys_the_selector_stays():
    for by, plan in (
        (None, FirePlan("", frozenset({""}))),
        ("tenant", FirePlan(None, frozenset())),
        ("tenant", FirePlan(None, frozenset({""}))),
    ):
        assert narrowed("n > 1", by, plan) == "n > 1"
        assert narrowed(odd, by, plan) is odd


def test_a_text_gets_a_condition():
    without = FirePlan(None, frozenset({A, NULL}))
    probe = FirePlan(A, frozenset({A, NULL}))

    assert narrowed(None, "tenant", probe) == "((`tenant` IN ('a')))"
    assert narrowed("n > 1 OR n < 0", "tenant", without) == (
        "(n > 1 OR n < 0) AND NOT (((`tenant` IN ('a')) OR (`tenant` IS NULL)) IS TRUE)"
    )


@pytest.mark.parametrize("selector", [odd, Predicate(odd), Predicate(odd, ["n"])])
def test_a_function_is_combined_with_the_keys(selector):
    def mask(plan):
        found = narrowed(selector, "tenant", plan)
        columns = BATCH.schema.names if found.columns is None else found.columns
        return found.function(BATCH.select(list(columns))).to_pylist()

    assert mask(FirePlan(None, frozenset({A}))) == [False, False, True, False]
    assert mask(FirePlan(NULL, frozenset({A, NULL}))) == [False, False, True, False]
    assert mask(FirePlan(A, frozenset({A, NULL}))) == [True, False, False, False]
