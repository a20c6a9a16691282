"""A restarted query keeps its outcomes, and handles unsettled messages again."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from pyspark_ignis import consume
from pyspark_ignis.query_plan import consumer_of
from queue_core import Store
from tests.crash.spark.checkpoint import forget_commit
from tests.spark.consuming import Declined, Journal, left_in, make_cases
from tests.spark.rig import AVAILABLE_NOW, counts, finish
from tests.tree import ROOT


def noting(journal):
    """Return a handler that notes each message, and rejects every tenth."""

    def handler(message):
        journal.note(message["number"])
        if message["number"] % 10 == 0:
            raise Declined(message["number"])
        return True

    return handler


def drain(spark, folder, checkpoint, journal, **how):
    """Consume until nothing is left; return the query."""
    query = consume(
        spark,
        "cases",
        noting(journal),
        path=folder / "store",
        checkpoint=checkpoint,
        trigger=AVAILABLE_NOW,
        **how,
    )
    finish(query)
    return query


@pytest.mark.parametrize(
    "side_tasks", [pytest.param("thread", marks=pytest.mark.nightly), "stream"]
)
def test_a_query_that_ended_while_it_wrote_its_first_offsets_starts_again(
    spark, tmp_path, checkpoint, side_tasks
):
    queue = make_cases(tmp_path, *["a"] * 9)
    for folder in (Path(checkpoint), Path(checkpoint, "_side-tasks")):
        (folder / "offsets").mkdir(parents=True)
        (folder / "offsets" / ".0.ab3f9c.tmp").write_text("v1")
    journal = Journal(tmp_path / "journal")

    drain(spark, tmp_path, checkpoint, journal, side_tasks=side_tasks)

    assert journal.seen() == Counter(range(9))
    assert left_in(queue) == []


def test_settled_messages_are_not_handled_again(spark, tmp_path, checkpoint):
    queue = make_cases(tmp_path, *["a"] * 30)
    journal = Journal(tmp_path / "journal")
    drain(spark, tmp_path, checkpoint, journal, max_messages=20)
    queue.load([{"number": 30, "what": "b"}])

    drain(spark, tmp_path, checkpoint, journal, max_messages=20)

    assert journal.seen() == Counter(range(31))
    assert left_in(queue) == []
    assert queue.failures().num_rows == 4


def test_a_batch_that_was_settled_and_not_noted_by_spark_is_not_handled_again(
    spark, tmp_path, checkpoint
):
    queue = make_cases(tmp_path, *["a"] * 30)
    journal = Journal(tmp_path / "journal")
    drain(spark, tmp_path, checkpoint, journal, max_messages=20)
    assert forget_commit(Path(checkpoint)) == "commits/1"

    drain(spark, tmp_path, checkpoint, journal, max_messages=20)

    assert journal.seen() == Counter(range(30))
    assert counts(queue, "deleted") == [27]
    assert queue.failures().num_rows == 3


def test_another_checkpoint_is_another_consumer_unless_both_are_named(spark, tmp_path, checkpoint):
    queue = make_cases(tmp_path, "a")
    journal = Journal(tmp_path / "journal")
    drain(spark, tmp_path, checkpoint, journal)
    drain(spark, tmp_path, checkpoint + "-2", journal)
    drain(spark, tmp_path, checkpoint + "-3", journal, consumer="till-1")
    drain(spark, tmp_path, checkpoint + "-4", journal, consumer="till-1")

    names = queue.store.view("consumers").column("consumer").to_pylist()
    assert sorted(names) == sorted(
        [consumer_of(checkpoint), consumer_of(checkpoint + "-2"), "till-1"]
    )


@pytest.mark.parametrize(
    ("one", "other"),
    [("some/where", "some/where/"), ("some/where", Path("some/where").absolute())],
)
def test_a_checkpoint_is_one_consumer_however_it_is_written(one, other):
    assert consumer_of(one) == consumer_of(other)
    assert consumer_of(one) != consumer_of("some")


def test_the_name_of_a_consumer_tells_its_checkpoint():
    assert re.fullmatch(r"consume:charge-cards:[0-9a-f]{16}", consumer_of("/data/charge cards/"))
    assert re.fullmatch(r"consume:charge:[0-9a-f]{16}", consumer_of("s3://bucket/charge"))
    assert consumer_of("s3://bucket/charge") != consumer_of("s3://other/charge")


def test_a_continuous_query_handles_new_messages(start, tmp_path):
    queue = make_cases(tmp_path, "a")
    journal = Journal(tmp_path / "journal")
    query = start(noting(journal), trigger={"processingTime": "100 milliseconds"})
    query.processAllAvailable()
    queue.load([{"number": 1, "what": "b"}, {"number": 2, "what": "c"}])
    query.processAllAvailable()
    query.stop()

    assert journal.seen() == Counter(range(3))
    assert left_in(queue) == []
    assert left_in(queue, "sideline") == ["a"]


def consume_in_a_process(folder, fault=None):
    """Run in a child process: a separate Spark, killed at the crash point *fault*."""
    script = "import sys; from tests.spark import test_consume_restart as t; t.child(sys.argv[1])"
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable}
    if fault:
        environment["IGNIS_FAULT"] = fault
    with Path(folder, "child.log").open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(folder)],
            env=environment,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        return child.wait(timeout=200)


def child(folder):
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", False).getOrCreate()
    place = Path(folder)
    drain(spark, place, place / "checkpoint", Journal(place / "journal"), max_messages=20)


@pytest.mark.nightly
@pytest.mark.crash
def test_only_a_crash_lets_a_handler_see_a_message_twice(tmp_path):
    """Killed with a batch handled but not settled: only that batch is handled again."""
    queue = make_cases(tmp_path, *["a"] * 50)
    with Store.open(tmp_path / "store") as store:
        assert consume_in_a_process(tmp_path, "sink.before_commit:2=session") == -signal.SIGKILL
        held = set(store.queue("cases").browse().column("number").to_pylist())
    journal = Journal(tmp_path / "journal")
    unsettled = {number for number in journal.seen() if number in held}
    assert len(journal.seen()) == 40
    assert len(unsettled) == 20

    assert consume_in_a_process(tmp_path) == 0, Path(tmp_path, "child.log").read_text()

    assert journal.seen() == Counter(range(50)) + Counter(unsettled)
    assert left_in(queue) == []
    assert counts(queue, "deleted") == [45]
    sidelined = queue.browse(magazine="sideline")
    assert sorted(sidelined.column("number").to_pylist()) == [0, 10, 20, 30, 40]
    assert sidelined.column("_attempt").to_pylist() == [1] * 5
    assert queue.failures().num_rows == 5
