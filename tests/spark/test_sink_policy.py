"""Smart loads through Spark: policies and de-duplication, exactly once as ever."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from tests.books import audit
from tests.factories import make_queue
from tests.spark.rig import counts, finish

ONCE = {"once": True}
MERGE = "merge(sum(amount), max(number))"


def amounts(queue):
    rows = queue.browse().select(["customer", "amount"]).to_pylist()
    return sorted((row["customer"], row["amount"]) for row in rows)


def expected(count):
    """What ten customers have ordered in all."""
    return sorted((f"customer-{at}", sum(n / 4 for n in range(at, count, 10))) for at in range(10))


@pytest.mark.parametrize(
    "trigger", [{"availableNow": True}, pytest.param(ONCE, marks=pytest.mark.nightly)]
)
def test_messages_of_one_key_become_one(rig, trigger):
    rig.orders(100, shards=4, key="number")
    stream = rig.source(maxMessagesPerTrigger=60)
    finish(rig.sink(stream, "totals", key="customer", policy=MERGE, trigger=trigger))
    totals = rig.store.queue("totals")
    if trigger is ONCE:
        finish(rig.sink(stream, "totals", key="customer", policy=MERGE))
    assert amounts(totals) == expected(100)
    assert counts(totals, "ignored") == [90]
    audit(rig.store)


def test_a_batch_that_runs_again_is_merged_once(rig):
    rig.orders(40, shards=4, key="number")
    for _ in range(2):
        stream = rig.source(maxMessagesPerTrigger=20)
        finish(rig.sink(stream, "totals", key="customer", policy=MERGE, trigger=ONCE))
        rig.forget_commit()
    assert amounts(rig.store.queue("totals")) == expected(40)
    audit(rig.store)


@pytest.mark.nightly
def test_rows_of_files_are_left_out_without_being_written_again(rig):
    rows = rig.spark.range(4000).select(
        (F.col("id") % 100).alias("key"), F.lpad(F.col("id"), 400, "x").alias("wide")
    )
    rig.write(rows.coalesce(1), "last", key="key", policy="latest", shards="2")
    last = rig.store.queue("last")
    assert counts(last, "loaded") == [100]
    assert counts(last, "ignored") == [3900]
    assert sorted(int(w.strip("x")) for w in last.browse().column("wide").to_pylist()) == list(
        range(3900, 4000)
    )
    audit(rig.store)


@pytest.mark.nightly
def test_rows_go_through_the_queues_own_check(rig):
    queue = make_queue(rig.store, "totals", shards=1, policy="tests.own_checks:add_up")
    queue.load([{"number": 0, "customer": "customer-3", "amount": 100.0}])
    rig.orders(20, shards=1)
    finish(rig.sink(rig.source(), "totals"))
    totals = dict(expected(20))
    assert dict(amounts(queue)) == totals | {"customer-3": totals["customer-3"] + 100}
    with pytest.raises(PySparkException, match="policy 'no_such_module:check' cannot be imported"):
        rig.write(rig.read(), "copy", policy="no_such_module:check", shards="1")
    assert "copy" not in rig.store.queues()
    audit(rig.store)
