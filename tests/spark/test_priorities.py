"""Streaming queries that go before others, or alone, and what becomes of those that wait."""

from threading import Event

import pytest
from pyspark.errors import StreamingQueryException

from tests.factories import orders
from tests.spark.rig import PATIENCE, counts, wait_until


class Query:
    """A query that runs until it is stopped, and the messages it has seen."""

    def __init__(self, rig, name, **options):
        self.seen = []
        #: While it is clear, a batch does not end.
        self.goes_on = Event()
        self.goes_on.set()
        stream = rig.source(consumer=name, tasks="none", **options)
        self.query = rig.each(stream, self._work, checkpoint=name, trigger={})
        self._rig, self._name = rig, name

    def _work(self, batch, _):
        self.seen.extend(row.number for row in batch.collect())
        assert self.goes_on.wait(PATIENCE)

    def is_known(self):
        """Whether the others know of it."""
        rows = self._rig.store.view("consumers").to_pylist()
        return any(row["consumer"] == self._name and row["interested"] for row in rows)

    def wait_for(self, numbers):
        wait_until(lambda: set(numbers) <= set(self.seen), self.query)


def test_a_lower_priority_gets_nothing_until_the_higher_one_stops(rig):
    queue = rig.orders(0, shards=4, key="number")
    high = Query(rig, "high", priority=10)
    wait_until(high.is_known, high.query)
    low = Query(rig, "low", priority=1)
    wait_until(low.is_known, low.query)

    for first in range(0, 60, 20):
        queue.load(orders(20, first))
        high.wait_for(range(first, first + 20))
    assert low.seen == []

    # Spark ends the process of its source as a kill does: it has no time to say so.
    high.query.stop()
    queue.load(orders(20, 100))
    low.wait_for(range(100, 120))
    assert sorted(low.seen) == list(range(100, 120))


def test_without_credit_the_higher_priority_steps_aside(rig):
    queue = rig.orders(0, shards=2, key="number")
    high = Query(rig, "high", priority=10, maxInFlight=5)
    wait_until(high.is_known, high.query)
    low = Query(rig, "low", priority=1)
    wait_until(low.is_known, low.query)
    high.goes_on.clear()

    queue.load(orders(20))

    wait_until(lambda: len(low.seen) == 15, low.query)
    assert len(high.seen) == 5
    assert sorted(high.seen + low.seen) == list(range(20))

    high.goes_on.set()
    wait_until(lambda: counts(queue, "deleted") == [20] and high.is_known(), high.query)
    queue.load(orders(5, 100))
    high.wait_for(range(100, 105))


def test_credit_bounds_what_is_in_flight_over_batches(rig):
    """Unsettled messages use up the credit: here, no message is settled."""
    queue = rig.orders(20)
    stuck = Query(rig, "stuck", maxInFlight=8, maxMessagesPerTrigger=5, ack="settle")

    wait_until(lambda: len(stuck.seen) == 8, stuck.query)
    queue.delete(queue.browse()["_message_id"].to_pylist()[:3], consumer="stuck")

    wait_until(lambda: len(stuck.seen) == 11, stuck.query)
    assert counts(queue, "in_flight") == [8]


def test_a_queue_that_somebody_has_alone_is_refused_to_others(rig):
    queue = rig.orders(1)
    alone = Query(rig, "alone", exclusive=True)
    alone.wait_for([0])
    other = Query(rig, "other")

    with pytest.raises(StreamingQueryException, match=r"QueueTaken.*'alone' has it to itself"):
        other.query.awaitTermination(PATIENCE)

    queue.load(orders(3, 10))
    alone.wait_for(range(10, 13))
    assert other.seen == []


def test_of_single_active_queries_a_spare_takes_over(rig):
    queue = rig.orders(1)
    active = Query(rig, "active", singleActive=True)
    active.wait_for([0])
    spare = Query(rig, "spare", singleActive=True)
    wait_until(spare.is_known, spare.query)
    queue.load(orders(5, 10))
    active.wait_for(range(10, 15))
    assert spare.seen == []

    active.query.stop()

    queue.load(orders(5, 20))
    spare.wait_for(range(20, 25))
    assert spare.seen == list(range(20, 25))
