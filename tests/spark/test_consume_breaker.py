"""`consume` with a circuit breaker: executors stop, the source waits and probes."""

import pytest
from pyspark.sql import functions as F

from queue_core import Breaker
from queue_core.errors import BadOption
from tests.spark.consuming import Journal, left_in, make_cases, reasons
from tests.spark.rig import wait_until

pytestmark = pytest.mark.nightly


def test_an_outage_sidelines_few_messages_and_the_rest_waits(start, tmp_path):
    queue = make_cases(tmp_path, *["a"] * 120)
    store, down = queue.store, tmp_path / "down"
    down.touch()
    journal = Journal(tmp_path / "journal")

    def call(message):
        journal.note(message["number"])
        if down.exists():
            raise ConnectionError("503")
        return True

    breaker = Breaker(of=4, pause=2, max_pause=2)
    query = start(call, columns=["number", "what"], breaker=breaker, trigger=None)
    wait_until(lambda: store.view("breakers").num_rows)
    (row,) = store.view("breakers").to_pylist()
    assert row["breaker"] == "cases"
    assert row["state"] in ("open", "probing")
    called = journal.seen().total()
    # The first probe comes after two seconds.
    assert called <= 4
    # Probes, one message each.
    wait_until(lambda: journal.seen().total() >= called + 2)
    assert set(queue.browse().column("_attempt").to_pylist()) == {0}

    down.unlink()
    wait_until(lambda: left_in(queue) == [])
    query.stop()

    failed = left_in(queue, "sideline")
    assert len(failed) <= 14
    assert {kind for kind, _ in reasons(queue).values()} == {"exception"}
    assert journal.seen() == dict.fromkeys(range(120), 1)
    assert store.view("breakers").column("state").to_pylist() == ["closed"]


def test_a_check_is_made_by_the_source_and_a_forced_breaker_fires_nothing(start, tmp_path):
    queue = make_cases(tmp_path, *["a"] * 4)
    queue.store.admin.breaker("cases").open()
    breaker = Breaker(check="os:getcwd")

    start(lambda _: True, breaker=breaker)
    assert len(left_in(queue)) == 4

    queue.store.admin.breaker("cases").release()
    start(lambda _: True, breaker=breaker)
    assert left_in(queue) == []


@pytest.mark.parametrize(
    ("handler", "breaker", "told"),
    [
        (lambda _: True, Breaker(check=lambda: True), "no import path"),
        (lambda _: True, "open", "give a Breaker"),
        (None, Breaker(), "for handlers in Python"),
    ],
)
def test_breakers_that_cannot_be_used_are_refused(start, tmp_path, handler, breaker, told):
    make_cases(tmp_path, "a")
    handler = handler or F.col("what") == "a"

    with pytest.raises(BadOption, match=told):
        start(handler, breaker=breaker)
