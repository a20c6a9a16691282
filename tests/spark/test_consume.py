"""`consume`: each kind of handler gives each message the right outcome."""

import time
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from pyspark_ignis import batch_handler
from queue_core.watching.prometheus import page
from tests.contract.test_metrics import scraped
from tests.spark.consuming import (
    CASES,
    Declined,
    DeclinedForGood,
    Journal,
    left_in,
    make_cases,
    reasons,
)
from tests.spark.rig import assert_rows, counts


def decide(message):
    """The decision table: the message itself names its outcome."""
    match message["what"]:
        case "true":
            return True
        case "false":
            return False
        case "none":
            return None
        case "error":
            raise KeyError("customer")
        case "ignorable":
            raise Declined("no funds")
        case "ignorable subclass":
            raise DeclinedForGood("no account")


WORDS = ("true", "false", "none", "error", "ignorable", "ignorable subclass")


def test_a_function_of_a_message_decides_by_what_it_returns_or_raises(start, tmp_path):
    queue = make_cases(tmp_path, *WORDS)

    start(decide, ignorable=Declined, on_none="sideline")

    assert left_in(queue) == []
    assert reasons(queue) == {
        "false": ("rejected", None),
        "none": ("undecided", "not a bool: the handler returned NoneType"),
        "error": ("exception", "KeyError: 'customer'"),
    }
    assert counts(queue, "deleted") == [3]
    (kept,) = queue.store.view("traces").to_pylist()
    assert kept["fingerprint"] == "KeyError: *"
    assert kept["trace"].splitlines()[1].endswith("in decide")


def test_how_long_messages_waited_and_handlers_took_is_counted(start, tmp_path):
    """The tasks measure, and the commit counts."""
    queue = make_cases(tmp_path, "true", "true", "false")

    def slow(message):
        time.sleep(0.03)
        return message["what"] == "true"

    start(slow)

    found = scraped(page(queue.store))
    for outcome, messages in (("deleted", 2), ("sidelined", 1)):
        here = (("outcome", outcome), ("queue", "cases"))
        assert found["ignis_handling_seconds_count", here] == messages
        assert found["ignis_handling_seconds_sum", here] > 0.03 * messages
    assert found["ignis_waiting_seconds_count", (("queue", "cases"),)] == 3


def test_an_exception_class_of_the_test_itself_reaches_the_executors(start, tmp_path):
    """As in a notebook: the class is sent along, and is the same class at both ends."""

    class Local(Exception):
        pass

    class LocalToo(Local):
        pass

    def handler(message):
        raise LocalToo(message["what"])

    queue = make_cases(tmp_path, "a", "b")
    start(handler, ignorable=[Local])

    assert left_in(queue, "sideline") == []
    assert counts(queue, "deleted") == [2]


def test_a_handler_that_returns_nothing_ends_the_query_and_repeats_nothing(start, tmp_path):
    queue = make_cases(tmp_path, *"abcdef", shards=1)
    journal = Journal(tmp_path / "journal")

    def charge(message):
        journal.note(message["number"])

    message = "(?s)queue 'cases': the handler .*charge returned None instead of a decision"
    with pytest.raises(StreamingQueryException, match=message):
        start(charge)

    assert journal.seen() == {0: 1}
    assert reasons(queue)["a"][0] == "undecided"
    assert left_in(queue) == [*"bcdef"]

    # The batch is settled. A mended handler goes on with the other messages.
    start(charge, on_none="delete")
    assert journal.seen() == dict.fromkeys(range(6), 1)
    assert left_in(queue) == []


@pytest.mark.nightly
def test_a_handler_of_batches_decides_by_outcomes_and_reasons(start, tmp_path):
    queue = make_cases(tmp_path, "delete", "sideline", "reload")

    @batch_handler
    def obey(batch):
        told = pc.binary_join_element_wise("told to", batch["what"], " ")
        kinds = pa.array(["late"] * batch.num_rows)
        return pa.record_batch([batch["what"], told, kinds], ["outcome", "reason", "kind"])

    start(obey)

    assert left_in(queue) == ["reload"]
    assert reasons(queue) == {"sideline": ("late", "told to sideline")}


def test_an_expression_decides_without_python(start, tmp_path):
    queue = make_cases(tmp_path, "true", "false", "null")

    start(F.when(F.col("what") != "null", F.col("what") == "true"))

    assert left_in(queue) == []
    assert reasons(queue) == {"false": ("rejected", None), "null": ("undecided", None)}
    assert counts(queue, "deleted") == [1]


def test_an_expression_is_evaluated_once_per_message(start, tmp_path):
    """Otherwise one evaluation might delete a message that the next one rejects."""
    queue = make_cases(tmp_path, *["a"] * 200)

    start(F.rand() < 0.5)

    (deleted,) = counts(queue, "deleted")
    assert 0 < deleted < 200
    assert len(left_in(queue, "sideline")) == 200 - deleted
    assert queue.failures().column("kind").to_pylist() == ["rejected"] * (200 - deleted)


def test_a_call_that_takes_too_long_is_sidelined(start, tmp_path):
    queue = make_cases(tmp_path, "slow", "fast")

    def wait(message):
        import time

        time.sleep(60 if message["what"] == "slow" else 0)
        return True

    start(wait, handler_timeout=3)

    assert reasons(queue) == {"slow": ("timeout", "not done after 3 s")}
    assert "in wait" in queue.store.view("traces").column("trace")[0].as_py()
    assert counts(queue, "deleted") == [1]


def test_an_empty_queue_ends_at_once(start, tmp_path):
    queue = make_cases(tmp_path)

    query = start(decide, on_none="sideline")

    assert query.lastProgress is None or query.lastProgress.numInputRows == 0
    assert counts(queue, "fired") == [0]


def test_handlers_are_given_the_queues_columns_and_some_metadata(start, tmp_path):
    queue = make_cases(tmp_path, "a")

    def tell(message):
        raise Declined(sorted(message))

    start(tell)

    columns = ["_attempt", "_message_id", "_queue", "number", "what"]
    assert reasons(queue) == {"a": ("exception", f"Declined: {columns}")}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (["what", "_loaded_at"], ["what", "_loaded_at", "_message_id"]),
        (["_message_id", "number"], ["_message_id", "number"]),
        ([], ["_message_id"]),
    ],
)
def test_handlers_are_given_the_columns_that_they_ask_for(start, tmp_path, asked, given):
    queue = make_cases(tmp_path, "a")

    @batch_handler
    def tell(batch):
        raise Declined(batch.schema.names)

    start(tell, columns=asked)

    assert reasons(queue) == {"a": ("exception", f"Declined: {given}")}


def test_the_messages_of_a_shard_are_handled_in_order(start, tmp_path):
    queue = make_cases(tmp_path, *["a"] * 200)
    there = queue.browse()
    shard_of = dict(zip(there["number"].to_pylist(), there["_shard"].to_pylist(), strict=True))
    journal = Journal(tmp_path / "journal")

    start(lambda message: journal.note(message["number"]) or True, max_messages=100)

    assert set(shard_of.values()) == {0, 1}
    for shard in (0, 1):
        handled = [number for number in journal.seen() if shard_of[number] == shard]
        assert handled == [number for number in range(200) if shard_of[number] == shard]


@pytest.mark.nightly
def test_the_sideline_can_be_consumed(start, tmp_path, checkpoint):
    queue = make_cases(tmp_path, *WORDS)
    start(decide, on_none="sideline")

    def second_look(message):
        assert message["_attempt"] == 1
        return message["what"] in ("false", "none")

    start(second_look, magazine="sideline", checkpoint=checkpoint + "-sideline")

    assert left_in(queue) == []
    assert left_in(queue, "sideline") == ["error", "ignorable", "ignorable subclass"]
    attempts = queue.browse(magazine="sideline").column("_attempt").to_pylist()
    assert attempts == [2, 2, 2]
    told = queue.failures().to_pylist()[-3:]
    assert [(each["attempt"], each["kind"]) for each in told] == [(1, "rejected")] * 3


def test_several_queues_are_consumed_by_one_query(start, tmp_path):
    queue = make_cases(tmp_path, "true", "false")
    other = queue.store.create_queue("others", CASES, shards=1)
    other.load([{"number": 7, "what": "error"}, {"number": 8, "what": "true"}])

    start(decide, queue=["cases", "others"], on_none="sideline")

    assert reasons(queue) == {"false": ("rejected", None)}
    assert reasons(other) == {"error": ("exception", "KeyError: 'customer'")}
    assert left_in(queue) == left_in(other) == []


def test_the_progress_counts_the_outcomes(start, tmp_path):
    make_cases(tmp_path, *WORDS)

    query = start(decide, ignorable=Declined, name="counted", on_none="sideline")

    assert query.name == "counted"
    counted = next(p.observedMetrics["ignis"] for p in query.recentProgress if p.numInputRows)
    assert counted.asDict() == {"deleted": 1, "sidelined": 3, "ignored": 2, "reloaded": 0}


def test_further_options_go_to_the_source(start, tmp_path):
    make_cases(tmp_path, *["true"] * 10)

    query = start(decide, max_messages=4, numPartitions=1, idleWait="50ms")

    assert [p.numInputRows for p in query.recentProgress if p.numInputRows] == [4, 4, 2]


@pytest.mark.nightly
def test_the_view_of_failures_shows_who_gave_up_and_why(start, tmp_path, spark):
    make_cases(tmp_path, "true", "false", "error")
    start(decide, consumer="till-1")

    def read(**options):
        reader = spark.read.format("ignis").option("queue", "cases").options(**options)
        return reader.load(str(tmp_path / "store"))

    sidelined = read(magazine="sideline").withColumnRenamed("_message_id", "message_id")
    told = read(view="failures").join(sidelined, "message_id")

    columns = "queue", "number", "what", "kind", "reason", "attempt", "consumer", "_attempt"
    assert_rows(
        told.select(*columns),
        ("cases", 1, "false", "rejected", None, 0, "till-1", 1),
        ("cases", 2, "error", "exception", "KeyError: 'customer'", 0, "till-1", 1),
    )


@pytest.mark.nightly
def test_a_query_can_be_started_in_a_thread(start, tmp_path):
    queue = make_cases(tmp_path, "true", "false")

    with ThreadPoolExecutor(1) as pool:
        pool.submit(start, decide).result()

    assert left_in(queue) == []
    assert counts(queue, "deleted") == [1]
