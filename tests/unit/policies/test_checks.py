"""A user's own checks: compared with Herzner's loop, and answers that are not decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from queue_core.errors import BadOption
from queue_core.policies.checks import per_message, vectorised
from queue_core.policies.decisions import Decision
from queue_core.policies.inputs import PolicyInput
from tests.unit.policies.policy_reference import Entry
from tests.unit.policies.policy_runs import (
    NEW,
    QUEUED,
    SCHEMA,
    ask_by_numbers,
    by_numbers,
    check,
)


@pytest.mark.parametrize("order", ["newest", "oldest"])
@given(queued=QUEUED, new=NEW)
def test_a_check_per_message(order: str, queued: list[Any], new: list[Any]) -> None:
    def ask(mine: Any, its: Any) -> Decision:
        return by_numbers(mine, its, its["_retrieved"], its["_distance"])

    check(per_message(ask, order=order), ask_by_numbers, order, queued, new)


@pytest.mark.parametrize("distance", [False, True])
@pytest.mark.parametrize("order", ["newest", "oldest"])
@given(queued=QUEUED, new=NEW)
def test_a_vectorised_check(order: str, distance: bool, queued: list[Any], new: list[Any]) -> None:
    def ask(mine: pa.Table, its: pa.Table) -> pa.Array:
        far = its.column("_distance").to_numpy() if distance else np.zeros(len(its), np.int64)
        total = sum(rows.column("n").fill_null(0).to_numpy() for rows in (mine, its)) + far
        total = total + its.column("_retrieved").to_numpy()
        return pa.array([*Decision]).take(pa.array(total % 5)).dictionary_encode()

    def slowly(mine: Any, entry: Entry, there: int) -> Decision:
        return by_numbers(mine, entry.row, entry.retrieved, there if distance else 0)

    policy = vectorised(ask, order=order, distance=distance)
    check(policy, slowly, order, queued, new)


def test_an_answer_that_is_not_a_decision():
    with pytest.raises(BadOption, match="'ignor' is not a decision"):
        evaluated(vectorised(lambda new, queued: pa.array(["ignore", "ignor"])))
    with pytest.raises(BadOption, match="2 for 2 pairs"):
        evaluated(vectorised(lambda new, queued: pa.array(["ignore"])))
    with pytest.raises(BadOption, match="2 for 2 pairs"):
        evaluated(vectorised(lambda new, queued: ["ignore", "ignore"]))
    with pytest.raises(BadOption, match="'delete' is not a decision"):
        evaluated(per_message(lambda new, queued: "delete"))


def evaluated(policy):
    """The result for two pairs of messages, each with its key."""
    rows = pa.Table.from_pylist([{"key": 0, "n": 1}, {"key": 1, "n": 2}], SCHEMA)
    numbers = np.arange(2)
    return policy.bind(SCHEMA, "key").evaluate(
        PolicyInput(
            new=rows,
            queued=rows,
            new_keys=numbers,
            queued_keys=numbers,
            retrieved=np.zeros(2, np.bool_),
            new_shards=np.zeros(2, np.int64),
            queued_shards=np.zeros(2, np.int64),
            waiting_after=np.array([1, 0]),
        )
    )


def taken_over(new: Any, queued: Any, decision: Decision, retrieved: bool) -> dict[str, Any]:
    """The values that a queued message takes over: some, if it stays and waits."""
    if retrieved or decision not in (Decision.IGNORE, Decision.QUEUE):
        return {}
    total = (new["n"] or 0) + (queued["n"] or 0)
    return {"n": total} if total % 2 else {"kind": new["kind"], "x": None}


def slowly_taking_over(mine: Any, entry: Entry, there: int) -> Decision:
    decision = by_numbers(mine, entry.row, entry.retrieved, there)
    entry.row = entry.row | taken_over(mine, entry.row, decision, entry.retrieved)
    return decision


@pytest.mark.parametrize("order", ["newest", "oldest"])
@given(queued=QUEUED, new=NEW)
def test_queued_messages_take_over_values(order: str, queued: list[Any], new: list[Any]) -> None:
    def ask(mine: Any, its: Any) -> Any:
        decision = by_numbers(mine, its, its["_retrieved"], its["_distance"])
        change = taken_over(mine, its, decision, its["_retrieved"])
        return (decision, change) if change else decision

    check(per_message(ask, order=order), slowly_taking_over, order, queued, new)


@given(queued=QUEUED, new=NEW)
def test_queued_messages_take_over_values_of_pairs(queued: list[Any], new: list[Any]) -> None:
    def ask(mine: pa.Table, its: pa.Table) -> pa.Table:
        decisions, values = [], []
        for one, other in zip(mine.to_pylist(), its.to_pylist(), strict=True):
            decision = by_numbers(one, other, other["_retrieved"], other["_distance"])
            change = taken_over(one, other, decision, other["_retrieved"])
            decisions.append(decision)
            values.append({n: (other | change)[n] for n in ("n", "kind", "x")} if change else None)
        kinds = pa.struct([SCHEMA.field(name) for name in ("n", "kind", "x")])
        return pa.table({"decision": decisions, "values": pa.array(values, kinds)})

    check(vectorised(ask, distance=True), slowly_taking_over, "newest", queued, new)


def test_new_values_of_a_message_that_goes_are_refused():
    for decision in (Decision.DONT_CARE, Decision.QUEUE_AND_DELETE, Decision.IGNORE_AND_DELETE):
        with pytest.raises(BadOption, match="only with the decisions 'ignore' and 'queue'"):
            evaluated(per_message(lambda new, queued, d=decision: (d, {"n": 5})))


def test_an_indicator_without_a_decision_is_refused():
    with pytest.raises(BadOption, match="indicators: 'mine' stands for 'other'"):
        per_message(print, indicators={"mine": "other"}).bind(SCHEMA, "key")
