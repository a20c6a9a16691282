"""Streaming queries that go before others, or alone, and what becomes of those that wait."""

from threading import Event

import pytest

from queue_core.catalog.holders.interests import GONE_SECONDS
from tests.factories import orders
from tests.spark.rig import PATIENCE, counts, wait_until

pytestmark = pytest.mark.nightly


class Query:
    """A query that runs until it is stopped, and the messages it has seen."""

    def __init__(self, rig, name, **options):
        self.seen = []
        #: The number of batches that have ended; the first one may be empty.
        self.batches = 0
        #: While it is clear, a batch does not end.
        self.goes_on = Event()
        self.goes_on.set()
        stream = rig.source(consumer=name, tasks="none", **options)
        self.query = rig.each(stream, self._work, checkpoint=name, trigger={})
        self._rig, self._name = rig, name

    def _work(self, batch, _):
        self.seen.extend(row.number for row in batch.collect())
        assert self.goes_on.wait(PATIENCE)
        self.batches += 1

    def is_known(self):
        """Whether it has begun, and the others know of it."""
        rows = self._rig.store.view("consumers").to_pylist()
        known = any(row["consumer"] == self._name and row["interested"] for row in rows)
        return known and self.batches > 0

    def wait_for(self, numbers):
        wait_until(lambda: set(numbers) <= set(self.seen), self.query)

    def was_silent(self):
        """Whether it sent no heartbeat for so long that the others took it for gone."""
        with self._rig.store.catalog.read() as connection:
            found = connection.exec_driver_sql(_SILENT, (self._name, self._rig.store.catalog.now()))
            return found.first() is not None


_GONE = int(GONE_SECONDS * 1e6)
_NOTED = (
    "CREATE TABLE silences (name TEXT)",
    "CREATE TRIGGER note_silence AFTER UPDATE OF heartbeat_at ON consumers "
    f"WHEN new.heartbeat_at > old.heartbeat_at + {_GONE} "
    "BEGIN INSERT INTO silences VALUES (new.name); END",
)
_SILENT = (
    "SELECT name FROM silences WHERE name = ?1 UNION "
    f"SELECT name FROM consumers WHERE name = ?1 AND heartbeat_at + {_GONE} < ?2"
)


@pytest.fixture(autouse=True)
def _noted(rig):
    """The catalog notes silences of consumers, as a busy machine may bring them about."""
    for statement in _NOTED:
        rig.store.catalog.write(lambda c, text=statement: c.exec_driver_sql(text))


def all_seen(count, *queries):
    wait_until(lambda: sum(len(query.seen) for query in queries) >= count)


def test_a_lower_priority_gets_nothing_until_the_higher_one_stops(rig):
    queue = rig.orders(0, shards=4, key="number")
    high = Query(rig, "high", priority=10)
    wait_until(high.is_known, high.query)
    low = Query(rig, "low", priority=1)
    wait_until(low.is_known, low.query)

    for first in range(0, 60, 20):
        queue.load(orders(20, first))
        all_seen(first + 20, high, low)
    assert low.seen == [] or high.was_silent()

    # Spark ends the process of its source as a kill does: it has no time to say so.
    high.query.stop()
    queue.load(orders(20, 100))
    low.wait_for(range(100, 120))
    assert sorted(low.seen)[-20:] == list(range(100, 120))


def test_credit_bounds_what_is_in_flight_over_batches(rig):
    """Unsettled messages use up the credit: here, no message is settled."""
    queue = rig.orders(20)
    stuck = Query(rig, "stuck", maxInFlight=8, maxMessagesPerTrigger=5, ack="settle")

    wait_until(lambda: len(stuck.seen) == 8, stuck.query)
    queue.delete(queue.browse()["_message_id"].to_pylist()[:3], consumer="stuck")

    wait_until(lambda: len(stuck.seen) == 11, stuck.query)
    assert counts(queue, "in_flight") == [8]
