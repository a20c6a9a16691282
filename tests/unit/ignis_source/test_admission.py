"""What Spark's read limits and the options make of each other."""

from functools import partial
from unittest.mock import call, create_autospec

import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)
from pyspark.sql.types import StructType

from ignis_source.admission import AdmittedReader, default_limit
from ignis_source.offset import Offset
from ignis_source.options import SourceOptions
from ignis_source.session import Session

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
    ("given", "limits"),
    [
        (MESSAGES | BYTES, (10, 1024)),
        (LEAST, (None, None)),
        (LEAST | MESSAGES, (10, None)),
    ],
    ids=["both, although Spark knows of one", "least", "least and most"],
)
def test_a_trigger_keeps_the_options_limits_unless_it_asks_for_everything(given, limits):
    session = create_autospec(Session, instance=True)
    start = session.next.return_value = Offset("reader", 1)
    session._options = options(given)
    session.after = partial(Session.after, session)
    reader = AdmittedReader(options(given), StructType())
    reader._session = session

    reader.latestOffset(start.to_json(), default_limit(options(given)))
    reader.latestOffset(start.to_json(), ReadAllAvailable())

    assert session.next.mock_calls == [
        call(start, *limits, lingers=True),
        call(start, None, None, lingers=False),
    ]
