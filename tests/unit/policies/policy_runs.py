"""Run a policy and the plain loop on the same messages, and compare the queues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from queue_core.policies.aggregates import Take
from queue_core.policies.builtin import Policy
from queue_core.policies.decisions import Decision
from queue_core.policies.inputs import PolicyInput, PolicyResult
from queue_core.policies.numbering import matched
from tests.unit.policies import policy_reference as reference
from tests.unit.policies.policy_reference import Ask, Entry

SCHEMA = pa.schema(
    [("key", pa.int64()), ("kind", pa.string()), ("n", pa.int32()), ("x", pa.float64())]
)


ROWS = st.fixed_dictionaries(
    {
        "key": st.integers(0, 3),
        "kind": st.sampled_from(["on", "off", None]),
        "n": st.none() | st.integers(-3, 3),
        "x": st.none() | st.sampled_from([0.0, -0.0, 0.5, 2.0]),
    }
)


QUEUED = st.lists(st.tuples(ROWS, st.booleans()), max_size=8)


NEW = st.lists(ROWS, min_size=1, max_size=10)


TAKES = (Take("sum", "n"), Take("max", "x"), Take("last", "kind"))


_OTHERS = (Take("count", "n"), Take("min", "x"), Take("first", "kind"))


def _is(kind: str) -> Any:
    return lambda row: row["kind"] == kind


BUILT_IN: list[tuple[str, Ask, str]] = [
    ("latest", reference.latest, "newest"),
    ("latest(order => oldest)", reference.latest, "oldest"),
    ("drop_duplicates", reference.drop_duplicates(SCHEMA.names), "newest"),
    ("drop_duplicates(kind, order => oldest)", reference.drop_duplicates(["kind"]), "oldest"),
    ("drop_duplicates(`n`, x)", reference.drop_duplicates(["n", "x"]), "newest"),
    ("merge(sum(n), max(x), last(kind))", reference.merge(TAKES), "newest"),
    ("merge(sum(n), max(x), last(kind), order => oldest)", reference.merge(TAKES), "oldest"),
    ("merge(count(n), min(x), first(kind))", reference.merge(_OTHERS), "newest"),
    ("merge_adjacent(sum(n), max(x), last(kind))", reference.merge_adjacent(TAKES), "newest"),
    ("merge_adjacent(count(n))", reference.merge_adjacent(_OTHERS[:1]), "newest"),
    (
        "annihilate(kind = 'on', kind = 'off')",
        reference.annihilate(_is("on"), _is("off")),
        "newest",
    ),
    (
        "annihilate(kind = 'on', kind = 'off', order => oldest)",
        reference.annihilate(_is("on"), _is("off")),
        "oldest",
    ),
    (
        "annihilate(n IS NULL OR n > 0, kind = 'off' OR n > 1)",
        reference.annihilate(
            lambda row: row["n"] is None or row["n"] > 0,
            lambda row: row["kind"] == "off" or (row["n"] is not None and row["n"] > 1),
        ),
        "newest",
    ),
    ("confirm(kind = 'off')", reference.confirm(_is("off")), "retrieved first"),
]


def by_numbers(new: Any, queued: Any, retrieved: bool, distance: int) -> Decision:
    """Decide by all of the input, so that every decision occurs."""
    total = (new["n"] or 0) + (queued["n"] or 0) + retrieved + distance
    return list(Decision)[total % 5]


def ask_by_numbers(new: Any, entry: Entry, distance: int) -> Decision:
    return by_numbers(new, entry.row, entry.retrieved, distance)


def check(policy: Policy, ask: Ask, order: str, queued: list[Any], new: list[Any]) -> None:
    """Both queues are equal in the end, and the result depends on all messages that it changes."""
    expected = [
        Entry(row, row["key"] % 2, retrieved, ("queued", at))
        for at, (row, retrieved) in enumerate(queued)
    ]
    for at, row in enumerate(new):
        reference.put(expected, Entry(row, row["key"] % 2, False, ("new", at)), "key", ask, order)
    inputs, places = _inputs([row for row, _ in queued], [taken for _, taken in queued], new)
    result = policy.bind(SCHEMA, "key").evaluate(inputs)
    assert _after(result, inputs, places, queued, new) == {e.name: e.row for e in expected}
    touched = {("queued", places[at]) for at in result.depends_on.tolist()}
    names = {entry.name: entry.row for entry in expected}
    assert touched >= {
        ("queued", at) for at, (row, _) in enumerate(queued) if names.get(("queued", at)) != row
    }


def _inputs(
    queued: list[Any], retrieved: list[bool], new: list[Any]
) -> tuple[PolicyInput, list[int]]:
    mine, its = pa.Table.from_pylist(new, SCHEMA), pa.Table.from_pylist(queued, SCHEMA)
    new_keys, queued_keys = matched(mine, its, ["key"])
    shards = np.array([row["key"] % 2 for row in queued], np.int64)
    waiting_after = [
        sum(not retrieved[j] and shards[j] == shards[i] for j in range(i + 1, len(queued)))
        for i in range(len(queued))
    ]
    known = np.flatnonzero(queued_keys >= 0)
    inputs = PolicyInput(
        new=mine,
        queued=its.take(pa.array(known)),
        new_keys=new_keys,
        queued_keys=queued_keys[known],
        retrieved=np.array(retrieved, np.bool_)[known],
        new_shards=np.array([row["key"] % 2 for row in new], np.int64),
        queued_shards=shards[known],
        waiting_after=np.array(waiting_after, np.int64)[known],
    )
    return inputs, known.tolist()


def _after(
    result: PolicyResult, inputs: PolicyInput, places: list[int], queued: list[Any], new: list[Any]
) -> dict[Any, Any]:
    after = {("queued", at): row for at, (row, _) in enumerate(queued)}
    after |= {("new", at): new[at] for at in np.flatnonzero(result.kept).tolist()}
    for at in result.deleted.tolist():
        del after["queued", places[at]]
    for changed, name in ((result.overwritten, "queued"), (result.overwritten_new, "new")):
        rows = pa.table(dict(changed.values)).to_pylist() if changed.values else []
        for at, row in zip(changed.rows.tolist(), rows, strict=True):
            place = (name, places[at] if name == "queued" else at)
            after[place] = after[place] | row
    return after
