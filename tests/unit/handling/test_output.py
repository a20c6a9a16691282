"""Rows that a handler returns: their messages, and those that fail."""

from asyncio import CancelledError

import numpy as np
import pyarrow as pa
import pytest

from queue_core.errors import BadOutcome, SchemaMismatch
from queue_core.handling.handler import batch_handler
from queue_core.handling.output import OUTPUT, Output, joined
from queue_core.handling.results import Later, Reject
from queue_core.values.ipc import unpack
from tests.factories import make_info
from tests.unit.handling.handler_runs import runner_of

NUMBERS = pa.schema([("n", pa.int64())])
OUTPUT_OF = Output(make_info(NUMBERS, name="results"))


def ran(handler, count=4, output=OUTPUT_OF, **how):
    """Run a handler on some messages; return the outcomes, and the rows by the message's id."""
    batch = pa.record_batch({"_message_id": pa.array(range(10, 10 + count), pa.int64())})
    (settled,) = runner_of(handler, output=output, **how).run([batch])
    data = settled.column(OUTPUT).drop_null().to_pylist()
    rows = [] if not data else unpack(data[0]).select(["_message_id", "n"]).to_pylist()
    return settled.to_pylist(), sorted((row["_message_id"], row["n"]) for row in rows)


@pytest.mark.parametrize(
    ("result", "outcome", "rows"),
    [
        ({"n": 1}, "delete", [1]),
        ([{"n": 1}, {"n": 2}], "delete", [1, 2]),
        (pa.record_batch({"n": [5, 6]}), "delete", [5, 6]),
        ((True, {"n": 1}), "delete", [1]),
        ((False, {"n": 1}), "sideline", []),
        (("reload", {"n": 1}), "reload", []),
        (("sideline", None), "sideline", []),
        ((np.True_, ({"n": n} for n in range(2))), "delete", [0, 1]),
        (True, "delete", []),
        (np.False_, "sideline", []),
    ],
)
def test_a_result_of_one_message(result, outcome, rows):
    settled, found = ran(lambda _: result, count=1)
    assert settled[0]["outcome"] == outcome
    assert found == [(10, n) for n in rows]


@pytest.mark.parametrize("result", ["done", 7, [7], {"m": 1}, {"n": "x"}, ("maybe", {"n": 1})])
def test_a_result_that_is_no_rows_fails_its_message(result):
    settled, found = ran(lambda _: result, count=1)
    assert settled[0]["outcome"] == "sideline"
    assert settled[0]["reason"]
    assert found == []


def test_a_column_of_the_key_has_no_nulls():
    keyed = Output(make_info(NUMBERS, "n"))
    with pytest.raises(SchemaMismatch, match="key column 'n' is null"):
        keyed.conformed([{"n": None}])


@pytest.mark.parametrize(
    ("result", "outcomes", "rows"),
    [
        (pa.table({"n": [0, 1, 2, 3]}), "dddd", [(10, 0), (11, 1), (12, 2), (13, 3)]),
        (pa.table({"n": [1, 2], "_message_id": [13, 13]}), "dddd", [(13, 1), (13, 2)]),
        ([{"n": 0}, [{"n": 1}, {"n": 2}], [], False], "ddds", [(10, 0), (11, 1), (11, 2)]),
        ([True, Reject("no"), Later(1), ValueError("x")], "dsrs", []),
        ([{"n": 0}, CancelledError(), True, None], "dsds", [(10, 0)]),
        ([True, True, False, None], "ddss", []),
        (([True, False, True, False], pa.table({"n": range(4)})), "dsds", [(10, 0), (12, 2)]),
        (
            ({"outcome": ["delete", "sideline", "delete", "reload"]}, [{"n": n} for n in range(4)]),
            "dsdr",
            [(10, 0), (12, 2)],
        ),
        ((True, pa.table({"n": [9], "_message_id": [12]})), "dddd", [(12, 9)]),
        ((["delete"] * 4, None), "dddd", []),
        (([True] * 4, []), "dddd", []),
        ((True, pa.Table.from_pylist([])), "dddd", []),
        (pa.array([True, False, True, True]), "dsdd", []),
    ],
)
def test_a_result_of_a_batch(result, outcomes, rows):
    settled, found = ran(batch_handler(lambda _: result))
    assert "".join(row["outcome"][0] for row in settled) == outcomes
    assert found == rows


@pytest.mark.parametrize(
    "result",
    [
        pa.table({"n": [1]}),
        pa.table({"n": [1], "_message_id": [99]}),
        [{"n": 1}],
        ([True] * 4, [[]]),
    ],
)
def test_rows_of_unknown_messages_are_refused(result):
    settled, found = ran(batch_handler(lambda _: result))
    assert {row["outcome"] for row in settled} == {"sideline"}
    assert "'results'" in settled[0]["reason"]
    assert found == []


def test_unknown_ids_are_named():
    with pytest.raises(BadOutcome, match="message 99, which is not in the batch"):
        OUTPUT_OF.of_batch(pa.table({"_message_id": [99]}), 1, pa.array([10]))


def test_rows_of_lists_are_joined():
    lists, table = joined([(0, [1, 2]), (1, None), (2, []), (3, pa.table({"n": [1]})), (4, [3])])
    assert (lists.numbers.tolist(), lists.rows) == ([0, 0, 4], [1, 2, 3])
    assert table.numbers.tolist() == [3]
