"""The verdicts of a batch handler: booleans, or a table of outcomes."""

import numpy as np
import pyarrow as pa
import pytest

from pyspark_ignis import batch_handler
from queue_core.handling.verdicts import Verdicts
from tests.unit.handling.handler_runs import DELETED, REJECTED, messages, outcomes, runner_of

UNDECIDED = ("sideline", "undecided", None)


@pytest.mark.parametrize(
    ("given", "settled"),
    [
        # Any booleans; a null is undecided.
        (np.array([True, False, None], dtype=object), [DELETED, REJECTED, UNDECIDED]),
        (pa.chunked_array([[True], [False, None]]), [DELETED, REJECTED, UNDECIDED]),
        ([True, False, None], [DELETED, REJECTED, UNDECIDED]),
        # A table of outcomes, with reasons, kinds, or nothing else.
        (
            pa.table(
                {"outcome": ["reload", "sideline", "sideline"], "reason": ["x", "late", None]}
            ),
            [("reload",), ("sideline", "rejected", "late"), REJECTED],
        ),
        (
            pa.record_batch(
                {"outcome": ["delete", "sideline", "reload"], "reason": ["x", "y", "z"]}
            ),
            [DELETED, ("sideline", "rejected", "y"), ("reload",)],
        ),
        (
            pa.table(
                {"outcome": ["delete", "sideline", "sideline"], "kind": ["No!", "late", None]}
            ),
            [DELETED, ("sideline", "late", None), REJECTED],
        ),
        (
            pa.table({"outcome": pa.array(["delete", "sideline", "delete"]).dictionary_encode()}),
            [DELETED, REJECTED, DELETED],
        ),
        # With ids, in any order.
        (
            pa.table({"_message_id": [2, 0, 1], "outcome": ["sideline", "delete", "delete"]}),
            [DELETED, DELETED, REJECTED],
        ),
        # Columns of nulls are computed, and another batch may have decisions.
        (pa.nulls(3, pa.bool_()), [UNDECIDED] * 3),
        (pa.table({"outcome": pa.nulls(3, pa.string())}), [UNDECIDED] * 3),
    ],
)
def test_the_result_of_a_batch_decides_each_message(given, settled):
    assert outcomes(batch_handler(lambda _: given)) == settled


class Unreadable:
    """As a DataFrame of pandas, which is no array and has other keys."""

    def __len__(self):
        return 3

    def __getitem__(self, key):
        raise KeyError(key)


def twice(name):
    """A table of outcomes with a column that is there twice."""
    columns = [pa.array(["delete"] * 3), *[pa.array([1, 2, 3]).cast(pa.string())] * 2]
    return pa.table(columns, names=["outcome" if name != "outcome" else "x", name, name])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (None, "gave a NoneType, not one verdict per message"),
        ([True], "gave 1 verdicts for 3 messages"),
        ([1, 2, 3], "gave int64 values"),
        (pa.table({"outcomes": ["delete"] * 3}), "did you mean 'outcomes'?"),
        (
            pa.table({"outcome": ["delete", "drop", "delete"]}),
            "not one of delete, sideline, reload",
        ),
        (Unreadable(), "gave a Unreadable, not one verdict per message"),
        (
            pa.table({"outcome": ["delete"] * 3, "_message_id": [1, 2, 99]}),
            "no row for message",
        ),
        (
            pa.table({"outcome": ["delete"] * 3, "_message_id": ["1", "2", "3"]}),
            "_message_id column is string",
        ),
        (pa.table({"outcome": ["delete"]}), "gave 1 outcomes for 3 messages"),
        (pa.table({"outcome": [[1]] * 3}), "outcome column is list<item: int64>"),
        (pa.table({"outcome": ["sideline"] * 3, "kind": ["No word"] * 3}), "kind='No word'"),
        (pa.table({"outcome": ["sideline"] * 3, "reason": [[1]] * 3}), "reason column is list"),
        (twice("outcome"), "the batch handler's table has the column 'outcome' twice"),
        (twice("reason"), "has the column 'reason' twice"),
        (twice("_message_id"), "has the column '_message_id' twice"),
    ],
)
def test_an_invalid_result_sidelines_the_batch_and_is_never_ignored(given, told):
    settled = outcomes(batch_handler(lambda _: given), ignorable=(Exception,))

    assert {verdict[:2] for verdict in settled} == {("sideline", "undecided")}
    assert all(told in reason for _, _, reason in settled)


@pytest.mark.parametrize(
    "given", [[True, None, False], pa.table({"outcome": ["delete", None, "sideline"]})]
)
@pytest.mark.parametrize(
    ("on_none", "middle"), [(None, UNDECIDED), ("sideline", UNDECIDED), ("delete", DELETED)]
)
def test_a_null_among_decisions_is_a_none_of_its_message(given, on_none, middle):
    settled = outcomes(batch_handler(lambda _: given), on_none=on_none)

    assert settled == [DELETED, middle, REJECTED]


@pytest.mark.parametrize("given", [[None] * 3, None])
def test_a_batch_handler_that_decides_nothing_is_refused_like_any_other(given):
    batches = []
    runner = runner_of(batch_handler(lambda batch: batches.append(batch) or given))

    settled = list(runner.run([messages(3), messages(3)]))

    assert len(batches) == 1
    assert "returned None instead of a decision" in runner.refusal
    assert settled[0].column("outcome").to_pylist() == ["sideline"] * 3
    assert settled[0].column("dead").to_pylist() == [True] * 3
    assert settled[1].column("outcome").to_pylist() == ["reload"] * 3


def test_reloaded_messages_with_a_time_are_put_off():
    table = pa.table({"outcome": ["reload", "sideline"], "delay": [None, 3.0]})
    assert not Verdicts.of_batch(table, 2).put_off
    table = pa.table({"outcome": ["reload", "sideline"], "delay": [5, 3.0], "dead": [None, True]})
    verdicts = Verdicts.of_batch(table, 2)
    assert verdicts.put_off
    assert not verdicts.at_once().put_off
    assert list(verdicts.at_once().waits) == ["dead"]
