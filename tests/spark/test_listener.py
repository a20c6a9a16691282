"""The listener reports each batch, and the source tells its figures to Spark's progress."""

import json
import logging

import pytest

from pyspark_ignis import BatchReport, listener
from queue_core import Store
from tests.spark.consuming import make_cases
from tests.waiting import until

pytestmark = pytest.mark.nightly


def decide(message):
    if message["what"] == "ignorable":
        raise KeyError("known")
    return message["what"] == "true"


def test_a_listener_reports_the_batches_of_all_queries(spark, start, tmp_path, caplog):
    queue = make_cases(tmp_path, *["true"] * 5, *["false"] * 2, "ignorable")
    reports = []
    failing, good = listener(lambda report: 1 / 0), listener(reports.append)
    for each in (failing, good):
        spark.streams.addListener(each)
    try:
        with caplog.at_level(logging.ERROR, logger="pyspark_ignis.listening"):
            query = start(decide, ignorable=KeyError, max_messages=4, name="tills")
            until(lambda: sum(report.rows for report in reports) == 8)
    finally:
        for each in (failing, good):
            spark.streams.removeListener(each)

    assert {report.query for report in reports} == {"tills"}
    assert all(isinstance(report, BatchReport) and report.seconds > 0 for report in reports)
    for name, count in {"deleted": 5, "sidelined": 2, "ignored": 1, "reloaded": 0}.items():
        assert sum(getattr(report, name) for report in reports) == count, name
    first = reports[0]
    assert first.waiting + first.in_flight == 8
    assert first.oldest_age is None or first.oldest_age < 600
    assert "was not reported" in caplog.text

    (source,) = query.lastProgress.sources
    told = json.loads(source.latestOffset)
    assert told.keys() == {
        *("consumer", "ticket", "waiting", "oldest_age", "in_flight", "sidelined", "bytes")
    }
    with Store.open(tmp_path / "store") as store:
        (row,) = store.view("queues").to_pylist()
    assert (row["waiting"], row["sidelined"]) == (0, 2)
    assert queue.info.name == row["queue"]
