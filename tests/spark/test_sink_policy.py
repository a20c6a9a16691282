"""Smart loads through Spark: policies and de-duplication, exactly once as ever."""

import pyarrow as pa
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


@pytest.mark.parametrize("trigger", [{"availableNow": True}, ONCE])
def test_messages_of_one_key_become_one(rig, trigger):
    rig.orders(100, shards=4, key="number")
    stream = rig.source(maxMessagesPerTrigger=30)
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
def test_the_latest_of_each_key_is_left(rig):
    rig.orders(100, shards=1)
    finish(rig.sink(rig.source(maxMessagesPerTrigger=35), "last", key="customer", policy="latest"))
    last = rig.store.queue("last").browse().column("number").to_pylist()
    assert sorted(last) == list(range(90, 100))


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
def test_what_is_known_is_left_out(rig):
    rows = rig.spark.createDataFrame([(1, "a"), (2, "b"), (1, "c")], "id LONG, text STRING")
    rig.write(rows.coalesce(1), "known", dedup="id", dedupWindow="1h")
    rig.write(rows.coalesce(1), "known", dedup="id", dedupWindow="1h")
    known = rig.store.queue("known")
    assert sorted(known.browse().column("text").to_pylist()) == ["a", "b"]
    rig.write(rows, "known")
    assert counts(known, "loaded") == [5]


@pytest.mark.nightly
def test_the_settings_of_the_queue_hold_without_options(rig):
    make_queue(rig.store, "totals", key="customer", policy=MERGE)
    rig.orders(50, shards=2)
    finish(rig.sink(rig.source(), "totals"))
    assert amounts(rig.store.queue("totals")) == expected(50)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"policy": "latest"}, "give the queue a key"),
        ({"policy": "latests", "key": "customer"}, "did you mean 'latest'"),
        ({"policy": "merge(sum(customer))", "key": "number"}, "is not defined for string"),
        ({"dedup": "numbr"}, "did you mean 'number'"),
    ],
)
def test_a_policy_that_does_not_fit_is_refused_at_once(rig, options, told):
    rig.orders(1)
    with pytest.raises(PySparkException, match=told):
        rig.write(rig.read(), "copy", **options)
    assert "copy" not in rig.store.queues()


@pytest.mark.nightly
def test_columns_that_came_later_are_read_back(rig):
    rows = pa.table({"key": [1, 1], "amount": [1.0, 2.0]})
    queue = rig.store.create_queue("old", rows.schema, key="key", shards=1)
    queue.load(rows)
    more = rig.spark.createDataFrame([(1, 4.0, "new")], "key LONG, amount DOUBLE, note STRING")
    options = {"policy": "merge(sum(amount), last(note))", "mergeSchema": "true"}
    rig.write(more, "old", **options)
    found = rig.store.queue("old").browse().select(["amount", "note"]).to_pylist()
    assert found == [{"amount": 1.0, "note": None}, {"amount": 6.0, "note": "new"}]
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


@pytest.mark.nightly
def test_the_policy_of_a_new_queue_holds_for_all_its_producers(rig):
    rows = rig.spark.createDataFrame([(1, 1.0), (1, 2.0)], "id LONG, amount DOUBLE")
    policy = " merge( sum(amount) ) "
    finish(rig.sink(rig.orders(4) and rig.source(), "new", key="customer", policy="latest"))
    assert rig.store.queue("new").info.settings.policy == "latest"
    rig.write(rows.coalesce(1), "sums", key="id", policy=policy)
    rig.write(rows.coalesce(1), "sums", key="id", policy=policy)

    rig.write(rows.coalesce(1), "sums")
    rig.store.queue("sums").load([{"id": 1, "amount": 4.0}])

    sums = rig.store.queue("sums")
    assert [row["amount"] for row in sums.browse().to_pylist()] == [13.0]
    with pytest.raises(PySparkException, match="policy='latest': queue 'sums' has policy"):
        rig.write(rows, "sums", policy="latest")


def test_an_option_of_an_existing_queue_changes_no_setting(rig):
    queue = make_queue(rig.store, key="customer")
    rig.write(
        rig.spark.createDataFrame([(1, "a")], "number LONG, customer STRING"), policy="latest"
    )
    assert queue.refresh().info.settings.policy is None
