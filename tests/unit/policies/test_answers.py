"""Answers of a user's own check: decisions, and new values of queued messages."""

from __future__ import annotations

import pyarrow as pa
import pytest

from queue_core.errors import BadOption, SchemaMismatch
from queue_core.policies.answers import CODES, answers_of, answers_one_by_one
from queue_core.policies.decisions import Decision

SCHEMA = pa.schema([("key", pa.string()), ("n", pa.int32()), ("text", pa.string())])
QUEUED = [{"key": "a", "n": 1, "text": "x"}, {"key": "b", "n": 2, "text": "y"}]


def one_by_one(*found, indicators=None):
    return answers_one_by_one(found, QUEUED[: len(found)], SCHEMA, "key", indicators or {})


def at_once(table, indicators=None):
    return answers_of(table, table.num_rows, SCHEMA, "key", indicators or {})


def struct(*rows):
    return pa.array(rows, pa.struct([(name, SCHEMA.field(name).type) for name in ("n", "text")]))


def test_own_indicators_stand_for_decisions():
    own = {"replaces": Decision.QUEUE_AND_DELETE, 5: Decision.IGNORE}
    assert one_by_one("replaces", 5, indicators=own).decisions.tolist() == [
        CODES["queue and delete"],
        CODES["ignore"],
    ]
    answers = answers_of(pa.array(["replaces", "queue"]), 2, SCHEMA, "key", own)
    assert answers.decisions.tolist() == [CODES["queue and delete"], CODES["queue"]]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((Decision.IGNORE, {"txt": 1}), "no such column; did you mean 'text'"),
        ((Decision.IGNORE, {"key": "b"}), "cannot change the key 'key'"),
        ("replaces", "'replaces' is not a decision"),
        (None, "the check returned nothing"),
        ([], r"\[\] is not a decision"),
    ],
)
def test_a_wrong_answer_is_refused(answer, told):
    with pytest.raises(BadOption, match=told):
        one_by_one(answer)


def test_values_that_do_not_fit_are_refused():
    for change in ({"n": 1.5}, {"n": 1 << 40}, {"text": 5}):
        with pytest.raises(SchemaMismatch, match="policy: new values of a queued message: column"):
            one_by_one((Decision.IGNORE, change))
    with pytest.raises(BadOption, match="this one has values"):
        at_once(pa.table({"values": [{"n": 5}]}))
    with pytest.raises(BadOption, match="must be a struct"):
        at_once(pa.table({"decision": ["ignore"], "values": [5]}))
    with pytest.raises(BadOption, match="cannot change the key"):
        at_once(pa.table({"decision": ["ignore"], "values": [{"key": "z"}]}))
