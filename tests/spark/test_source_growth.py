"""Columns are added to a queue while a query copies it: no value may be left out of the copy."""

import pyarrow as pa
import pytest
from chispa import assert_df_equality
from pyspark.errors import StreamingQueryException

from tests.factories import numbers_of, orders
from tests.spark.rig import counts, finish, wait_until

pytestmark = pytest.mark.nightly

EXTRA = pa.schema([("extra", pa.string())])
MORE = pa.schema([("more", pa.int64())])
#: A query that runs until it is stopped.
RUNNING = {"processingTime": "0 seconds"}
COPIED = ["number", "customer", "amount"]


def values(count, first, **added):
    """Orders, with values in added columns."""
    return [{"number": number, **added} for number in range(first, first + count)]


def copied(rig, *names):
    """The copy as rows of Spark, in order."""
    return rig.read("copy").select(*COPIED, *names).orderBy("number", "customer")


def fails(query, *parts):
    """Wait until a query has failed, and return what says why."""
    with pytest.raises(StreamingQueryException) as failure:
        assert query.awaitTermination(90.0)
    for part in parts:
        assert part in str(failure.value)


@pytest.mark.parametrize("grown", [1, 2])
def test_a_query_from_queue_to_queue_fails_and_copies_all_values_after_its_restart(rig, grown):
    queue, copy = rig.orders(100), rig.orders(0, "copy")
    query = rig.sink(rig.source(), "copy", trigger=RUNNING)
    wait_until(lambda: copy.browse().num_rows == 100, query)

    loaded = []
    for added, columns in [({"extra": "x"}, EXTRA), ({"extra": "y", "more": 7}, MORE)][:grown]:
        for each in ("copy", "orders"):
            rig.store.queue(each).admin.add_columns(columns)
        loaded += values(100, 100 + len(loaded), **added)
        rig.store.queue("orders").load(loaded[-100:])

    fails(query, "SchemaMismatch", "queue 'orders'", "'extra'", "restart the query")
    assert numbers_of(copy.browse()) == list(range(100))
    assert rig.store.queue("orders").browse().num_rows == 100 * grown

    finish(rig.sink(rig.source(), "copy"))

    names = ["extra", "more"][:grown]
    expected = [{**row, **dict.fromkeys(names)} for row in orders(100).to_pylist()]
    expected += [dict.fromkeys([*COPIED, *names]) | row for row in loaded]
    schema = ", ".join(["number LONG NOT NULL, customer STRING, amount DOUBLE", "extra STRING"])
    schema += ", more LONG" if grown == 2 else ""
    order = [*COPIED, *names]
    rows = [tuple(row[name] for name in order) for row in expected]
    wanted = rig.spark.createDataFrame(rows, schema).orderBy("number", "customer")
    assert_df_equality(copied(rig, *names), wanted, ignore_nullable=True)
    assert rig.store.queue("orders").browse().num_rows == 0
    assert counts(queue, "fired") == [100 + 100 * grown]


def test_a_stale_data_frame_cannot_be_started_and_one_with_a_schema_goes_on(rig):
    queue = rig.orders(2)
    stale, chosen = rig.source(), rig.source(schema="number LONG")
    queue.admin.add_columns(EXTRA)
    queue.load(values(1, 2, extra="x"))

    fails(rig.each(stale, lambda *_: None), "'orders' has the new column 'extra'")
    assert counts(queue, "fired") == [0]
    assert rig.numbers(chosen, checkpoint="chosen") == [[0, 1, 2]]
