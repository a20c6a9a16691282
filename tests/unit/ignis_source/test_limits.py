"""What Spark's read limits and the options make of each other."""

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

from ignis_source.limits import admitted, default_limit, lingers
from ignis_source.options import SourceOptions

MESSAGES = {"maxMessagesPerTrigger": "10"}
BYTES = {"maxBytesPerTrigger": "1k"}
LEAST = {"minMessagesPerTrigger": "5"}


def options(given):
    return SourceOptions.of({"path": "/shop", "queue": "orders"} | given)


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, ReadAllAvailable()),
        (MESSAGES, ReadMaxRows(10)),
        (BYTES, ReadMaxBytes(1024)),
        (MESSAGES | BYTES, ReadMaxRows(10)),
        (LEAST, ReadMinRows(5)),
        (LEAST | MESSAGES, ReadMaxRows(10)),
    ],
    ids=["none", "messages", "bytes", "both", "least", "least and most"],
)
def test_spark_is_told_one_limit(given, limit):
    assert default_limit(options(given)) == limit


def test_of_two_limits_both_hold_although_spark_knows_of_one():
    chosen = options(MESSAGES | BYTES)
    assert admitted(chosen, default_limit(chosen)) == (10, 1024)


def test_a_trigger_that_asks_for_everything_gets_it():
    assert admitted(options(MESSAGES | BYTES), ReadAllAvailable()) == (None, None)


@pytest.mark.parametrize("given", [LEAST, LEAST | MESSAGES], ids=["least", "least and most"])
def test_a_trigger_that_asks_for_everything_waits_for_nothing(given):
    chosen = options(given)
    assert lingers(chosen, default_limit(chosen))
    assert not lingers(chosen, ReadAllAvailable())


def test_without_a_least_number_no_trigger_waits():
    assert not lingers(options(MESSAGES), ReadMaxRows(10))
