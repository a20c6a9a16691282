"""A message that kills the process of its handler is found as the query restarts, and no other."""

import os
import signal

import pytest
from pyspark.errors import StreamingQueryException

from tests.spark.consuming import Journal, left_in, make_cases, reasons
from tests.spark.rig import counts, finish


def test_a_killer_is_sidelined_alone_and_the_others_are_handled(start, tmp_path):
    queue = make_cases(tmp_path, *"abcdef", "killer", shards=1)
    journal = Journal(tmp_path / "journal")

    def handler(message):
        if message["what"] == "killer":
            os.kill(os.getpid(), signal.SIGKILL)
        journal.note(message["number"])
        return True

    deaths = 0
    while True:
        try:
            start(handler)
            break
        except StreamingQueryException:
            deaths += 1
            # Seven, three, one, and alone for a second time; some batches hold no killer.
            assert deaths <= 6

    assert left_in(queue) == []
    assert left_in(queue, "sideline") == ["killer"]
    kind, reason = reasons(queue)["killer"]
    assert kind == "killed"
    assert "the last 2 times, it handled this message alone" in reason
    assert set(journal.seen()) == set(range(6))
    assert journal.seen().total() <= 6 + 2 * 7


@pytest.mark.nightly
def test_a_query_that_fails_before_it_reads_its_messages_accuses_none(rig):
    queue = rig.orders(7)
    held = rig.source(ack="settle", consumer="judge")

    def broken(_frame, _batch):
        raise ValueError("the service does not answer")

    for _ in range(6):
        with pytest.raises(StreamingQueryException, match="the service does not answer"):
            finish(rig.each(held, broken))
    assert counts(queue, "in_flight", "sidelined") == [3, 0]

    outcomes = held.selectExpr("_message_id", "'delete' AS outcome")
    finish(rig.sink(outcomes, mode="settle", consumer="judge"))
    assert counts(queue, "deleted", "sidelined") == [7, 0]
