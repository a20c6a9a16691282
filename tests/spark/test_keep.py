"""Queries that keep their messages: until they are confirmed, and again after a reset."""

import pytest
from pyspark.errors import StreamingQueryException

from tests.books import audit
from tests.factories import make_queue, numbers_of, orders
from tests.spark.rig import counts, finish, wait_until

AT_ONCE = {"processingTime": "0 seconds"}


@pytest.fixture
def line(rig):
    """A queue of ten packets, which messages with a negative amount confirm, the oldest first."""
    queue = make_queue(rig.store, "line", shards=1, key="customer", policy="confirm(amount < 0)")
    queue.load(orders(10, customers=1))
    return queue


def keeping(rig, **options):
    return rig.source("line", ack="keep", consumer="sender", maxMessagesPerTrigger=4, **options)


def confirm(rig, count):
    rows = rig.spark.range(count).selectExpr("-id AS number", "'customer-0' AS customer")
    rig.write(rows.selectExpr("number", "customer", "-1.0D AS amount"), "line")


def test_kept_messages_stay_until_they_are_confirmed_and_no_sweep_takes_them(rig, line):
    numbers = rig.numbers(keeping(rig))

    assert numbers == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert line.sweep(older_than=0, dead_after=0) == 0
    assert counts(line, "in_flight", "deleted") == [10, 0]
    confirm(rig, 3)
    assert numbers_of(line.browse()) == [3, 4, 5, 6, 7, 8, 9]
    assert rig.numbers(keeping(rig)) == []
    audit(rig.store)


def test_a_line_that_fails_sends_again_from_the_oldest_that_is_not_confirmed(rig, line):
    """Two restarts, a batch that fails in the middle of its work, and a window of six packets."""
    sent = []

    def send(batch, _):
        packets = sorted(row.number for row in batch.collect())
        sent.append(packets)
        if len(sent) in (2, 4):
            raise ConnectionError("the line is down")
        if packets:
            confirm(rig, 2)

    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="the line is down"):
            finish(rig.each(keeping(rig, reset="true", maxInFlight=6), send))
    query = rig.each(keeping(rig, reset="true", maxInFlight=6), send, trigger=AT_ONCE)
    wait_until(lambda: numbers_of(line.browse()) == [6, 7, 8, 9], query)
    query.stop()

    again = [[2, 3, 4, 5], [2, 3, 4, 5], [6, 7, 8, 9]]
    assert [packets for packets in sent if packets] == [[0, 1, 2, 3], [4, 5, 6, 7], *again]
    audit(rig.store)


def test_a_reset_from_outside_lets_a_running_query_read_again(rig, line):
    seen = []
    query = rig.each(
        keeping(rig),
        lambda batch, _: seen.extend(r.number for r in batch.collect()),
        trigger=AT_ONCE,
    )
    wait_until(lambda: len(seen) == 10, query)

    assert line.reset(consumer="sender") == 10

    wait_until(lambda: len(seen) == 20, query)
    query.stop()
    assert seen == [*range(10), *range(10)]
