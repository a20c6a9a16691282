"""Errors of tasks and commits of a sink: one sentence below one frame of Python."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.factories import make_queue
from tests.spark.rig import finish

NOBODY = {"mode": "settle", "consumer": "nobody"}


def load_of_a_null(rows):
    return rows.select(F.lit(None).cast("bigint").alias("number"), "customer", "amount"), {}


def load_without_room(rows):
    return rows.select("number", "customer", "amount"), {"onFull": "fail"}


def settlement_with_an_unknown_outcome(rows):
    return rows.select("_message_id", F.lit("deleted").alias("outcome")), NOBODY


def settlement_of_an_unknown_consumer(rows):
    return rows.select("_message_id", F.lit("delete").alias("outcome")), NOBODY


# With all frames of Python: 4, 6, 6 and 2, and up to 18 lines above the sentence.
@pytest.mark.parametrize(
    ("write", "told"),
    [
        (load_of_a_null, "SchemaMismatch: queue 'copy': column 'number' may not be null"),
        (load_without_room, "QueueFull: queue 'copy'"),
        pytest.param(
            settlement_with_an_unknown_outcome,
            "BadOutcome: outcome 'deleted' is unknown",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            settlement_of_an_unknown_consumer,
            "BadOption: consumer='nobody' has never fired",
            marks=pytest.mark.nightly,
        ),
    ],
)
@pytest.mark.parametrize(
    "streaming", [pytest.param(False, marks=pytest.mark.nightly), True], ids=["table", "stream"]
)
def test_an_error_of_ours_comes_below_one_frame(rig, write, told, streaming):
    rig.orders(3)
    make_queue(rig.store, "copy", max_size=2)
    rows, options = write(rig.source() if streaming else rig.read())

    def written():
        if streaming:
            finish(rig.sink(rows, "copy", **options))
        else:
            rig.write(rows, "copy", **options)

    with pytest.raises(PySparkException) as refused:
        written()

    shown = str(refused.value)
    assert shown.count('File "') == 1, shown
    # Spark's first line, the place of the frame, its two lines, and the sentence.
    assert shown.split(told)[0].count("\n") <= 4, shown
