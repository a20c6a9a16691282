"""Retry and Later in Spark: policies of a query, and times in a settlement."""

import pytest

from pyspark_ignis import Later, Retry, constant
from tests.factories import make_filled
from tests.spark.rig import finish

pytestmark = pytest.mark.nightly


def aside(rig):
    """The waits of messages in the sideline, in seconds, by their numbers; dead ones have none."""
    numbers = {
        row["_message_id"]: row["number"]
        for row in rig.store.queue("orders").browse(magazine="sideline").to_pylist()
    }
    return {
        numbers[row["message_id"]]: (
            row["attempts"],
            "dead" if row["dead"] else round((row["due_at"] - row["sidelined_at"]).total_seconds()),
            row["kind"],
        )
        for row in rig.store.view("sideline").to_pylist()
    }


def handle(message):
    match message["number"]:
        case 1:
            raise ConnectionResetError
        case 2:
            raise KeyError
        case 3:
            raise Later(30)
        case 4:
            return False
    return True


def test_a_query_retries_by_its_own_policy_and_puts_messages_off(rig, start):
    queue = rig.orders(5)
    retry = Retry(attempts=3, backoff=constant(60), on=[ConnectionError, "rejected"])

    start(handle, queue="orders", tasks="none", retry=retry)

    assert queue.browse().num_rows == 0
    assert aside(rig) == {
        1: (1, 60, "exception"),
        2: (1, "dead", "exception"),
        3: (0, 30, None),
        4: (1, 60, "rejected"),
    }


def test_a_settlement_has_times_and_a_policy(rig):
    queue = make_filled(rig.store, 5)
    judged = rig.source(ack="settle", consumer="judge").selectExpr(
        "_message_id",
        "elt(number + 1, 'reload', 'reload', 'sideline', 'sideline', 'sideline') AS outcome",
        "if(number = 1, current_timestamp() + INTERVAL 90 SECONDS, NULL) AS not_before",
        "if(number % 2 = 0 AND number < 4, 30.0 + number, NULL) AS delay",
        "number = 3 AS dead",
    )

    before = rig.store.catalog.now()
    finish(rig.sink(judged, mode="settle", consumer="judge", retry="Retry(backoff=constant(300))"))
    after = rig.store.catalog.now()

    found = aside(rig)
    found.pop(1)
    sideline = queue.browse(magazine="sideline").to_pylist()
    (put_off,) = (row["_message_id"] for row in sideline if row["number"] == 1)
    due = {row["message_id"]: row["due_at"] for row in rig.store.view("sideline").to_pylist()}
    # From the begin of the batch in whole milliseconds, and up to a quarter of a second more.
    assert before / 1e6 - 0.001 <= due[put_off].timestamp() - 90 <= after / 1e6 + 0.25
    assert found == {
        0: (0, 30, None),
        2: (1, 32, "rejected"),
        3: (1, "dead", "rejected"),
        4: (1, 300, "rejected"),
    }
