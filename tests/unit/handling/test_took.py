"""How long calls took: by the outcome of each message, through a column of text."""

import pyarrow as pa
import pytest

from queue_core.handling.handler import batch_handler
from queue_core.handling.took import TOOK, read
from tests.unit.handling.handler_runs import runner_of

BATCH = pa.record_batch({"_message_id": pa.array([1, 2, 3, 4], pa.int64()), "n": [1, 2, 3, 4]})


def single(message):
    if message["n"] == 4:
        raise KeyError("ignored")
    return message["n"] != 3


@batch_handler
def batches(batch):
    return [True, True, False, True]


@pytest.mark.parametrize(
    ("handler", "counts"),
    [
        (single, {"deleted": 2, "sidelined": 1, "ignored": 1}),
        (batches, {"deleted": 3, "sidelined": 1}),
    ],
)
def test_each_message_counts_with_its_outcome(handler, counts):
    runner = runner_of(handler, ignorable=(KeyError,))
    (settled,) = runner.run([BATCH], queue="orders")

    found = list(read(settled.column(TOOK).drop_null().to_pylist()))

    assert settled.column(TOOK).null_count == 3
    assert {each.queue for each in found} == {"orders"}
    assert {each.outcome: each.measured.counts.sum() for each in found} == counts
    assert all(0 < each.measured.seconds < 60 for each in found)
