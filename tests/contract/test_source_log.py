"""The log of a query tells the story of each batch."""

import logging
import re
import subprocess
import sys

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from ignis_sink.load import stage
from ignis_sink.options import SinkOptions
from ignis_sink.planning import find_target
from ignis_sink.publishing import in_turn, publish, publish_tasks
from ignis_source.offset import Offset
from queue_core import Store
from queue_core.values.model import Batch
from tests.factories import make_queue, orders

START = Offset("reader", 0)


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name.startswith("ignis_")]


def test_each_step_of_a_batch_has_a_line(store, session, caplog):
    caplog.set_level(logging.INFO, "ignis_source")
    make_queue(store).load(orders(3))
    query = session()

    end = query.next(START, None, None)
    query.plan(START, end)
    query.acknowledge(end)

    who = "queue orders, consumer reader"
    assert lines(caplog) == [
        f"{who}: begins epoch 1",
        f"{who}: fired 3 messages as ticket 1",
        f"{who}: planned tickets 1 to 1: 3 messages",
        f"{who}: committed up to ticket 1",
    ]


def test_a_batch_that_an_earlier_run_fired_has_a_line_of_its_own(store, session, caplog):
    make_queue(store).load(orders(3))
    session().next(START, None, None)
    caplog.set_level(logging.INFO, "ignis_source")

    session().next(START, None, None)

    assert "queue orders, consumer reader: begins epoch 2" in lines(caplog)
    assert lines(caplog)[-1].endswith("ticket 1, which an earlier run fired, comes first")


def test_an_idle_query_is_silent(store, session, caplog):
    make_queue(store)
    query = session()
    query.next(START, None, None)
    caplog.set_level(logging.INFO, "ignis_source")

    query.next(START, None, None)

    assert lines(caplog) == []


def test_a_batch_that_spark_writes_twice_has_two_different_lines(store, caplog):
    queue = make_queue(store)
    options = SinkOptions.of({"catalog": store.address.catalog, "storage": store.address.storage,
                              "queue": "orders"})  # fmt: skip
    target = find_target(options, from_arrow_schema(queue.schema))
    caplog.set_level(logging.INFO, "ignis_sink")

    for _ in range(2):
        task = stage(orders(3).to_batches(), target)
        batch = Batch(query_id="copy", number=4, rows=3, digest=0)
        staged = {"orders": in_turn([task.staged["orders"]], 0, queue.info.shards)}
        publish(store, [queue.info], staged, options, batch)

    assert lines(caplog) == [
        "queue orders: loaded the 3 rows of query copy, batch 4",
        "queue orders: query copy, batch 4 was loaded before, and is not loaded again",
    ]


def write_version(store, version, count, **where):
    """As one task of a batch write does, in this process."""
    place = {"catalog": store.address.catalog, "storage": store.address.storage}
    options = SinkOptions.of(place | where | {"txnAppId": "etl", "txnVersion": version})
    rows = orders(count)
    if "queueColumn" in where:
        names = ["odd" if number % 2 else "even" for number in range(count)]
        rows = rows.append_column("_to", pa.array(names, pa.string()))
    target = find_target(options, from_arrow_schema(rows.schema))
    task = stage(rows.to_batches(), target)
    publish_tasks(target, [task], options, 0, options.transaction)


@pytest.mark.parametrize("policy", [None, "latest"])
def test_rows_of_a_version_that_is_recorded_are_named_in_a_warning(store, caplog, policy):
    """A new checkpoint counts from 0 again, and the source deletes what its batches had."""
    make_queue(store, key="number" if policy else None, policy=policy)
    write_version(store, "6", 3, queue="orders")
    write_version(store, "6", 0, queue="orders")
    assert lines(caplog) == []

    for version, count in (("6", 4), ("0", 2)):
        write_version(store, version, count, queue="orders")
        begin = f"queue orders: the {count} rows of txnAppId='etl', txnVersion={version} were not "
        (line,) = lines(caplog)
        assert line.startswith(begin + "loaded, since version 6 is recorded.")
        assert "another txnAppId" in line
        caplog.clear()


def test_the_warning_is_about_the_queues_that_have_the_version(store, caplog):
    for name in ("odd", "even", "other"):
        make_queue(store, name)
    caplog.set_level(logging.INFO, "ignis_sink")
    for name in ("odd", "other"):
        write_version(store, "3", 1, queue=name)
    write_version(store, "5", 1, queue="odd")
    caplog.clear()

    write_version(store, "4", 5, queueColumn="_to")
    write_version(store, "4", 5, queueColumn="_to")

    loaded, part, whole = lines(caplog)
    assert loaded == "queue even: loaded the 3 rows of query txn:etl, batch 4"
    assert part.startswith("queue odd: the 2 rows of txnAppId='etl', txnVersion=4 were not loaded")
    assert part.partition(".")[0].endswith("since version 5 is recorded")
    assert whole.startswith("queue even,odd: the 5 rows of txnAppId='etl', txnVersion=4 were not ")
    assert whole.partition(".")[0].endswith("since version 4,5 is recorded")


#: Makes a reader, as one of Spark's processes does, and fires.
SCRIPT = """
import sys
from pyspark.sql.types import LongType, StructType
from pyspark_ignis.source import IgnisDataSource

source = IgnisDataSource({"path": sys.argv[1], "queue": "orders", "tasks": "none"})
reader = source.streamReader(StructType().add("number", LongType()))
reader.after(reader.initialOffset())
"""


def told(path, level):
    environment = {"IGNIS_LOG": level} if level else {}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path)],
        env={"PYTHONPATH": ":".join(sys.path)} | environment,
        stderr=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return done.stderr


def test_a_process_of_spark_logs_to_standard_error_if_it_is_asked_to(tmp_path):
    with Store.open(tmp_path / "store") as store:
        make_queue(store).load(orders(3))

    said = told(tmp_path / "store", "info")

    line = r" INFO ignis_source\.firing: queue orders, consumer spark:orders:\S+: fired 3 messages "
    assert re.search(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}" + line, said, re.MULTILINE)


def test_by_default_it_logs_no_steps(tmp_path):
    with Store.open(tmp_path / "store") as store:
        make_queue(store).load(orders(3))

    assert told(tmp_path / "store", None) == ""
