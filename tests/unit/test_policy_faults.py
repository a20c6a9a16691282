"""Invalid policies: each is refused, with the position of the fault."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.policies.aggregates import Take
from queue_core.policies.binding import bind, dedup_schema
from queue_core.policies.builtin import Annihilate, Latest, Merge
from queue_core.policies.checks import per_message, vectorised
from queue_core.policies.inputs import PolicyInput
from queue_core.policies.numbering import matched
from queue_core.policies.parsing import parse
from queue_core.settings import QueueSettings

SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("kind", pa.string()),
        ("n", pa.int32()),
        ("tags", pa.list_(pa.string())),
        ("at", pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    ]
)

FAULTS = [
    ("latst", "column 1: policy 'latst' is unknown; did you mean 'latest'"),
    ("latest(n)", "no arguments are expected"),
    ("latest n", r"column 8: a '\(' is expected"),
    ("merge(sum(n)", "column 11: a '\\)' is expected"),
    ("latest(order => eldest)", "column 8: only order => newest or order => oldest"),
    ("merge()", "name the columns to merge"),
    ("merge(n)", "column 7: a call is expected"),
    ("merge(avg(n))", "'avg' is unknown"),
    ("merge(sum(kind))", r"sum\(kind\): sum is not defined for string columns"),
    ("merge(sum(m))", "column 11: the queue has no column 'm'"),
    ("merge(sum(n), max(n))", "'n' is named twice"),
    ("merge(last(key))", "'key' is the key"),
    ("merge(sum('n'))", "column 11: the name of a column is expected"),
    ("drop_duplicates(kind, )", "something is missing at the comma"),
    ("drop_duplicates", "'tags' of type list"),
    ("annihilate(kind = 'on')", "2 arguments are expected, not 1"),
    ("annihilate(kind = 'on', knd = 'off')", "column 25"),
    ("confirm(kind = 'on', order => oldest)", "this policy has a fixed order"),
    ("confirm(read_file('/etc/passwd') = 'x')", "column 9"),
    ("confirm(kind)", "policy, line 1, column 9: a condition is needed"),
    ("latest; latest", "a ';' is not allowed here"),
    ("latest -- really", "a comment is not allowed here"),
    ("", "the policy is empty"),
]


@pytest.mark.parametrize(("text", "message"), FAULTS)
def test_an_invalid_text_is_refused(text, message):
    with pytest.raises(BadOption, match=message):
        parse(text, SCHEMA, "key")


@pytest.mark.parametrize(
    "policy",
    [
        Latest("eldest"),
        Merge(()),
        Merge((Take("avg", "n"),)),
        Merge((Take("sum", "m"),)),
        Annihilate("kind = ", "kind = 'off'"),
        17,
    ],
)
def test_an_invalid_value_is_refused(policy):
    with pytest.raises(BadOption):
        bind(policy, SCHEMA, "key", QueueSettings())


def test_a_queue_without_a_key_or_messages_has_no_policy():
    with pytest.raises(BadOption, match="give the queue a key"):
        bind("latest", SCHEMA, None, QueueSettings())
    with pytest.raises(BadOption, match="max_size=0"):
        bind("latest", SCHEMA, "key", QueueSettings(max_size=0))


@pytest.mark.parametrize("names", [("tags",), ("nobody",), ("n", "n")])
def test_columns_that_cannot_be_a_de_duplication_key(names):
    with pytest.raises(BadOption, match="dedup"):
        dedup_schema(names, SCHEMA)


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
    rows = pa.Table.from_pylist([{"key": "a", "n": 1}, {"key": "b", "n": 2}], SCHEMA)
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


@pytest.mark.parametrize("kind", [pa.int32(), pa.int64(), pa.decimal128(3, 0)])
def test_a_sum_that_does_not_fit(kind):
    most = {pa.int32(): 2**31 - 1, pa.int64(): 2**63 - 1}.get(kind, 999)
    column = pa.chunked_array([pa.array([most, most], pa.decimal128(38, 0)).cast(kind)])
    with pytest.raises(SchemaMismatch, match="'n': the result of sum"):
        Take("sum", "n").fold(column, pa.array([0, 0]).to_numpy(), 1)


def test_a_large_sum_that_fits():
    column = pa.chunked_array([[2**63 - 1, -(2**63), -1, 1, None]])
    groups = pa.array([0, 1, 0, 0, 1]).to_numpy()
    assert Take("sum", "n").fold(column, groups, 2).to_pylist() == [2**63 - 1, -(2**63)]


def test_equal_values_have_equal_numbers():
    rows = [{"x": 0.0, "y": None}, {"x": -0.0, "y": None}, None, {"x": float("nan"), "y": 1.0}]
    new = pa.table({"at": pa.array(rows, SCHEMA.field("at").type)})
    ours, theirs = matched(new, new.slice(1), ["at"])
    assert (ours[0] == ours[1], len(set(ours.tolist()))) == (True, 3)
    assert theirs.tolist() == ours[1:].tolist()
    assert matched(new.slice(2), new, ["at"])[1].tolist()[:2] == [-1, -1]
