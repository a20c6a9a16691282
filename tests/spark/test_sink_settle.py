"""mode=settle: what becomes of messages that a query or a table names."""

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from queue_core import Breaker
from tests.factories import main, numbers_of
from tests.spark.rig import assert_rows, counts, finish

NAMED = {"ack": "settle", "consumer": "judge"}
SETTLE = {"mode": "settle", "consumer": "judge"}


def verdicts(rig, *rows, schema="_message_id LONG, outcome STRING, reason STRING"):
    return rig.spark.createDataFrame(rows, schema).coalesce(1)


def fired(rig, count=4):
    """A queue with messages in flight, and their ids."""
    queue = rig.orders(count)
    return queue, queue.fire(count).ids.to_pylist()


def test_a_stream_gives_each_message_its_outcome_and_its_reason(rig):
    queue = rig.orders(12, shards=3, key="number")
    judged = rig.source(maxMessagesPerTrigger=7, **NAMED).selectExpr(
        "_message_id",
        "elt(number % 3 + 1, 'delete', 'sideline', 'reload') AS outcome",
        "if(number >= 4, 'late', NULL) AS kind",
        "if(number = 4, 'too late', NULL) AS reason",
    )
    finish(rig.sink(judged, **SETTLE))

    assert counts(queue, "deleted", "sidelined", "reloaded", "in_flight") == [4, 4, 4, 0]
    assert main(queue) == [2, 5, 8, 11]
    sidelined = queue.browse(magazine="sideline")
    assert sorted(numbers_of(sidelined)) == [1, 4, 7, 10]
    assert set(sidelined.column("_attempt").to_pylist()) == {1}
    ids = dict(zip(numbers_of(sidelined), sidelined.column("_message_id").to_pylist(), strict=True))
    failures = rig.view("failures").select("message_id", "kind", "reason", "consumer", "attempt")
    assert_rows(
        failures,
        (ids[1], "rejected", None, "judge", 0),
        (ids[4], "late", "too late", "judge", 0),
        (ids[7], "late", None, "judge", 0),
        (ids[10], "late", None, "judge", 0),
    )


def test_a_table_settles_what_is_in_flight(rig):
    queue, ids = fired(rig)
    rig.write(
        verdicts(
            rig, (ids[0], "delete", None), (ids[1], "sideline", "no"), (ids[2], "reload", "x")
        ),
        mode="settle",
    )
    assert counts(queue, "deleted", "sidelined", "reloaded", "in_flight") == [1, 1, 1, 1]


@pytest.mark.nightly
def test_without_reasons_a_settlement_needs_two_columns_and_may_have_more(rig):
    queue, ids = fired(rig)
    table = verdicts(
        rig, ("x", "delete", ids[0]), schema="n STRING, outcome STRING, _message_id LONG"
    )
    rig.write(table, mode="settle")
    rig.write(table.selectExpr("_message_id", "outcome", "NULL AS reason"), mode="settle")
    assert counts(queue, "deleted", "in_flight") == [1, 3]


def test_a_batch_that_runs_again_is_settled_once(rig):
    queue = rig.orders(6)
    stream = rig.source(**NAMED).select("_message_id", F.lit("sideline").alias("outcome"))
    finish(rig.sink(stream, **SETTLE))
    books = queue.metadata()
    rig.forget_commit()
    finish(rig.sink(stream, **SETTLE))
    assert queue.metadata() == books
    assert counts(queue, "sidelined") == [6]


def test_messages_of_a_source_that_deletes_on_commit_are_refused(rig):
    queue = rig.orders(4)
    outcomes = ("_message_id", "CASE number WHEN 1 THEN 'sideline' ELSE 'delete' END AS outcome")
    with pytest.raises(StreamingQueryException, match=r"has ack=onCommit .* set ack=settle"):
        finish(rig.sink(rig.source().selectExpr(*outcomes), mode="settle"))
    assert counts(queue, "deleted", "in_flight") == [0, 4]

    finish(rig.sink(rig.source(ack="settle").selectExpr(*outcomes), mode="settle"))
    assert counts(queue, "deleted", "sidelined", "in_flight") == [3, 1, 0]


@pytest.mark.nightly
def test_messages_of_several_queues_are_settled_together(rig):
    red, blue = rig.orders(3, "red"), rig.orders(2, "blue")
    stream = rig.source(None, queues="red,blue", **NAMED)
    judged = stream.selectExpr("_message_id", "if(_queue = 'red', 'delete', 'sideline') AS outcome")
    writer = judged.writeStream.format("ignis").option("queues", "red,blue").options(**SETTLE)
    writer = writer.option("checkpointLocation", str(rig.folder / "checkpoint"))
    finish(writer.trigger(availableNow=True).start(rig.path))
    assert counts(red, "deleted") + counts(blue, "sidelined") == [3, 2]


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("_message_id LONG, outcom STRING", "needs the column 'outcome'; did you mean 'outcom'"),
        ("id LONG, outcome STRING", "needs the column '_message_id'"),
        ("_message_id INT, outcome STRING", "column '_message_id' is int, not bigint"),
        ("_message_id LONG, outcome INT", "column 'outcome' is int, not string"),
        ("_message_id LONG, outcome STRING, reason INT", "column 'reason' is int, not string"),
        ("_message_id LONG, outcome STRING, kind INT", "column 'kind' is int, not string"),
    ],
)
def test_a_table_that_is_no_settlement_is_refused_by_its_columns(rig, schema, message):
    rig.orders(0)
    with pytest.raises(PySparkException, match=message):
        rig.write(rig.spark.createDataFrame([], schema), mode="settle")


def test_a_query_ends_when_its_settlement_makes_no_sense(rig):
    queue = rig.orders(2)
    stream = rig.source(**NAMED).select("_message_id", F.lit("keep").alias("outcome"))
    with pytest.raises(StreamingQueryException, match=r"BadOutcome.*outcome 'keep' is unknown"):
        finish(rig.sink(stream, **SETTLE))
    assert counts(queue, "in_flight") == [2]


@pytest.mark.parametrize("place", ["store", "elsewhere"])
def test_where_there_is_no_queue_nothing_is_settled_and_nothing_is_made(rig, place):
    folder = rig.folder / place
    writer = verdicts(rig).write.format("ignis").option("queue", "orders").mode("append")
    expected = "has no queue 'orders'" if place == "store" else "there is no ignis store"
    with pytest.raises(PySparkException, match=expected):
        writer.option("mode", "settle").save(str(folder))
    assert folder.exists() is (place == "store")


@pytest.mark.nightly
def test_settlements_of_ones_own_open_the_breaker(rig):
    queue = rig.orders(30, retry=None)
    breaker = str(Breaker(of=4, pause=60, max_pause=60, name="shop"))
    source = rig.source(ack="settle", consumer="judge", breaker=breaker, maxMessagesPerTrigger=10)
    fails = "number % 10 < 3"
    judged = source.selectExpr(
        "_message_id",
        f"IF({fails}, 'sideline', 'delete') AS outcome",
        f"IF({fails}, 'exception', NULL) AS kind",
    )
    finish(rig.sink(judged, mode="settle", consumer="judge", breaker=breaker))

    assert queue.browse().num_rows == 20
    (row,) = rig.store.view("breakers").to_pylist()
    assert (row["breaker"], row["state"]) == ("shop", "open")
