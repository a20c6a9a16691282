"""What Spark's read limits and the options make of each other."""

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import StructType

from ignis_source.admission import AdmittedStreamReader, default_limit
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


@pytest.mark.parametrize(
    ("given", "limits", "lingers"),
    [
        (MESSAGES | BYTES, (10, 1024), False),
        (LEAST, (None, None), True),
        (LEAST | MESSAGES, (10, None), True),
    ],
    ids=["both, although Spark knows of one", "least", "least and most"],
)
def test_a_trigger_keeps_the_options_limits_unless_it_asks_for_everything(given, limits, lingers):
    asked = []
    reader = AdmittedStreamReader(options(given), StructType())
    reader.after = lambda start, most, lingers=False: asked.append((start, most, lingers)) or start

    reader.latestOffset({}, default_limit(options(given)))
    reader.latestOffset({}, ReadAllAvailable())

    assert asked == [({}, limits, lingers), ({}, (None, None), False)]
