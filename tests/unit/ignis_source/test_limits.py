"""What Spark's read limits and the options make of each other."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from ignis_source.limits import admitted, default_limit
from ignis_source.options import SourceOptions

MESSAGES = {"maxMessagesPerTrigger": "10"}
BYTES = {"maxBytesPerTrigger": "1k"}


def options(given):
    return SourceOptions.of({"path": "/shop", "queue": "orders"} | given)


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        (MESSAGES, ReadMaxRows(10)),
        (BYTES, ReadMaxBytes(1024)),
        (MESSAGES | BYTES, ReadMaxRows(10)),
    ],
    ids=["none", "messages", "bytes", "both"],
)
def test_spark_is_told_one_limit(given, limit):
    assert default_limit(options(given)) == limit


def test_of_two_limits_both_hold_although_spark_knows_of_one():
    chosen = options(MESSAGES | BYTES)
    assert admitted(chosen, default_limit(chosen)) == (10, 1024)


def test_a_trigger_that_asks_for_everything_gets_it():
    assert admitted(options(MESSAGES | BYTES), ReadAllAvailable()) == (None, None)
