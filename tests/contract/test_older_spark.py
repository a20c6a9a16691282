"""
Spark 4.0 and 4.1 do not say where a batch starts: the reader knows from the plans they request.

The calls are those that a query of Spark 4.0.2 and 4.1.1 made, with kills: a query that restarts
plans a batch from the last logged offset to itself, then, if need be, the batch that is not
committed, and only then asks for more. `tests.crash.spark.campaign` runs under these versions too.
"""

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from ignis_source.older_spark import OlderReader
from ignis_source.options import SourceOptions
from ignis_source.session import Session
from queue_core.errors import BadOption
from tests.books import audit
from tests.factories import ORDERS, make_queue, numbers_of, orders


@pytest.fixture
def life(store, monkeypatch):
    """Return the reader of the next life of a query, which takes two messages for each batch."""
    make_queue(store, "orders").load(orders(6))
    sessions = []

    def opened(options):
        sessions.append(Session(options))
        return sessions[-1]

    monkeypatch.setattr("ignis_source.session.Session", opened)

    def begin(**options):
        given = {"catalog": store.address.catalog, "storage": store.address.storage}
        given |= {"queue": "orders", "tasks": "none", "idleWait": "0.05"}
        given |= {"maxMessagesPerTrigger": "2", "includeMetadata": "false"}
        return OlderReader(SourceOptions.of(given | options), from_arrow_schema(ORDERS))

    yield begin
    for session in sessions:
        session.close()
    audit(store)


def rows(reader, start, end):
    """Read a batch, as a query does once its end is logged."""
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return numbers_of(pa.Table.from_batches(batches, ORDERS))


def first_batch(reader):
    """Run the first batch of a new query; return its end and its rows."""
    end = reader.latestOffset()
    return end, rows(reader, reader.initialOffset(), end)


def in_flight(store):
    return sum(store.queue("orders").metadata()["in_flight"].to_pylist())


@pytest.mark.parametrize("named", [{"consumer": "copier"}, {}], ids=["named", "unnamed"])
def test_a_query_that_was_killed_after_a_commit_goes_on_behind_it(store, life, named):
    logged, done = first_batch(life(**named))

    again = life(**named)
    assert again.partitions(logged, logged) == []
    end = again.latestOffset()
    done += rows(again, logged, end)
    done += rows(again, end, last := again.latestOffset())

    assert again.latestOffset() == last
    assert sorted(done) == list(range(6))
    assert store.queue("orders").browse().num_rows == in_flight(store) == 0


def test_a_batch_that_is_not_committed_is_planned_again_and_acknowledged_after_it(store, life):
    reader = life()
    logged, first = first_batch(reader)
    uncommitted = reader.latestOffset()
    lost = rows(reader, logged, uncommitted)

    again = life()
    assert again.partitions(uncommitted, uncommitted) == []
    assert in_flight(store) == 2
    assert rows(again, logged, uncommitted) == lost
    assert in_flight(store) == 2
    last = again.latestOffset()

    assert sorted(first + lost + rows(again, uncommitted, last)) == list(range(6))


def test_the_first_batch_is_planned_again_from_an_offset_that_spark_asks_for(life):
    uncommitted, lost = first_batch(life())

    again = life()
    assert again.partitions(uncommitted, uncommitted) == []
    assert rows(again, again.initialOffset(), uncommitted) == lost


def test_messages_that_were_fired_and_never_logged_are_the_next_batch(life):
    reader = life()
    logged, _ = first_batch(reader)
    unlogged = reader.latestOffset()

    again = life()
    again.partitions(logged, logged)

    assert again.latestOffset() == unlogged


def test_a_spark_that_asks_before_it_tells_what_is_logged_is_refused(store, life):
    logged, _ = first_batch(life())

    again = life()
    again.latestOffset()
    with pytest.raises(BadOption, match="triggerAvailableNowWrapper"):
        again.partitions(logged, logged)
