"""`consume` with a circuit breaker: executors stop, the source waits and probes."""

import time

import pytest
from pyspark.sql import functions as F

from pyspark_ignis import consume
from queue_core import Breaker
from queue_core.errors import BadOption
from tests.spark.consuming import Journal, left_in, make_cases, reasons
from tests.spark.rig import PATIENCE

pytestmark = pytest.mark.nightly


def eventually(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_an_outage_sidelines_few_messages_and_the_rest_waits(spark, tmp_path, checkpoint):
    queue = make_cases(tmp_path, *["a"] * 120)
    store, down = queue.store, tmp_path / "down"
    down.touch()
    journal = Journal(tmp_path / "journal")

    def call(message):
        journal.note(message["number"])
        if down.exists():
            raise ConnectionError("503")
        return True

    query = consume(
        spark,
        "cases",
        call,
        path=tmp_path / "store",
        checkpoint=checkpoint,
        columns=["number", "what"],
        breaker=Breaker(of=4, pause=2, max_pause=2),
    )
    eventually(lambda: store.view("breakers").num_rows)
    (row,) = store.view("breakers").to_pylist()
    assert row["breaker"] == "cases"
    assert row["state"] in ("open", "probing")
    called = journal.seen().total()
    # The first probe comes after two seconds.
    assert called <= 4
    # Probes, one message each.
    eventually(lambda: journal.seen().total() >= called + 2)
    assert set(queue.browse().column("_attempt").to_pylist()) == {0}

    down.unlink()
    eventually(lambda: left_in(queue) == [])
    query.stop()

    failed = left_in(queue, "sideline")
    assert len(failed) <= 14
    assert {kind for kind, _ in reasons(queue).values()} == {"exception"}
    assert journal.seen() == dict.fromkeys(range(120), 1)
    assert store.view("breakers").column("state").to_pylist() == ["closed"]


def test_a_check_is_made_by_the_source_and_a_forced_breaker_fires_nothing(
    spark, tmp_path, checkpoint
):
    queue = make_cases(tmp_path, *["a"] * 4)
    queue.store.admin.breaker("cases").open()
    how = {"path": tmp_path / "store", "checkpoint": checkpoint, "trigger": {"availableNow": True}}
    breaker = Breaker(check="os:getcwd")

    assert consume(spark, "cases", lambda _: True, breaker=breaker, **how).awaitTermination(120)
    assert len(left_in(queue)) == 4

    queue.store.admin.breaker("cases").release()
    assert consume(spark, "cases", lambda _: True, breaker=breaker, **how).awaitTermination(120)
    assert left_in(queue) == []


@pytest.mark.parametrize(
    ("handler", "breaker", "told"),
    [
        (lambda _: True, Breaker(check=lambda: True), "no import path"),
        (lambda _: True, "open", "give a Breaker"),
        (None, Breaker(), "for handlers in Python"),
    ],
)
def test_breakers_that_cannot_be_used_are_refused(
    spark, tmp_path, checkpoint, handler, breaker, told
):
    make_cases(tmp_path, "a")
    handler = handler or F.col("what") == "a"

    with pytest.raises(BadOption, match=told):
        consume(spark, "cases", handler, path=tmp_path / "store", checkpoint=checkpoint,
                breaker=breaker)  # fmt: skip
