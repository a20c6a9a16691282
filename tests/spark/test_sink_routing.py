"""The sink routes rows into several queues by a column, in one transaction."""

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import functions as F

from tests.factories import main, make_queue
from tests.spark.rig import assert_rows, counts, finish

ROUTE = {"queueColumn": "_to"}


def by_parity():
    return F.expr("IF(number % 2 = 1, 'odd', 'even')")


@pytest.fixture
def routed(rig):
    """A queue of ten orders, two queues for them, and the stream with its routes."""
    rig.orders(10)
    make_queue(rig.store, "odd", shards=2)
    make_queue(rig.store, "even", key="number", shards=4)
    return rig.source(ack="browse").withColumn("_to", by_parity())


def numbers(rig, queue):
    return main(rig.store.queue(queue))


def test_each_row_goes_to_the_queue_of_its_column_and_a_restart_goes_on(rig, routed):
    finish(rig.sink(routed, None, **ROUTE))

    assert_rows(rig.read("odd").select("number"), 1, 3, 5, 7, 9)
    assert_rows(rig.read("even").select("number"), 0, 2, 4, 6, 8)
    # The column is not stored.
    assert rig.store.queue("odd").schema.names == ["number", "customer", "amount"]
    assert rig.store.admin.fsck(deep=True).num_rows == 0

    rig.store.queue("orders").load([{"number": 11}, {"number": 12}])
    finish(rig.sink(routed, None, **ROUTE))
    assert numbers(rig, "odd") == [1, 3, 5, 7, 9, 11]
    assert numbers(rig, "even") == [0, 2, 4, 6, 8, 12]


def test_a_batch_that_is_repeated_is_in_each_queue_once_even_if_it_is_routed_anew(rig, routed):
    finish(rig.sink(routed, None, **ROUTE))
    rig.forget_commit()
    make_queue(rig.store, "other")
    elsewhere = rig.source(ack="browse").withColumn("_to", F.lit("other"))
    finish(rig.sink(elsewhere, None, **ROUTE))

    assert (numbers(rig, "odd"), numbers(rig, "even")) == ([1, 3, 5, 7, 9], [0, 2, 4, 6, 8])
    assert numbers(rig, "other") == []


@pytest.mark.nightly
def test_two_queries_route_into_the_same_queues(rig, routed):
    other = rig.source(ack="browse").withColumn("_to", F.lit("odd"))
    both = [
        rig.sink(routed, None, checkpoint="first", **ROUTE),
        rig.sink(other, None, checkpoint="second", **ROUTE),
    ]
    for query in both:
        finish(query)
    assert len(numbers(rig, "odd")) == 15
    assert len(numbers(rig, "even")) == 5


def test_a_policy_and_dedup_of_one_of_the_queues_decide(rig, routed):
    rig.store.queue("odd").admin.change_settings(dedup=["number"])
    make_queue(rig.store, "latest", key="customer", policy="latest")
    rows = rig.read(ack="browse").select("number", F.lit("ann").alias("customer"), "amount")
    rig.write(rows.withColumn("_to", F.lit("latest")), None, **ROUTE)
    for _ in range(2):
        rig.write(rows.withColumn("_to", by_parity()), None, **ROUTE)

    assert numbers(rig, "odd") == [1, 3, 5, 7, 9]
    assert len(numbers(rig, "even")) == 10
    assert len(numbers(rig, "latest")) == 1


def test_unknown_queues_are_named_and_nothing_is_loaded(rig, routed):
    lost = rig.source(ack="browse").withColumn(
        "_to", F.when(F.col("number") < 3, F.concat(F.lit("new"), "number")).otherwise("even")
    )
    with pytest.raises(StreamingQueryException, match=r"names queues that the store does not have"):
        finish(rig.sink(lost, None, **ROUTE))
    assert numbers(rig, "even") == []


def test_a_template_makes_new_queues_with_its_settings(rig, routed):
    make_queue(
        rig.store, "tenant", shards=3, key="customer", concurrency=7, retry="Retry(attempts=2)"
    )
    rows = rig.source(ack="browse").withColumn("_to", F.concat(F.lit("tenant-"), F.col("number")))
    finish(rig.sink(rows, None, template="tenant", **ROUTE))

    made = rig.store.queue("tenant-4")
    assert (made.info.shards, made.info.key) == (3, "customer")
    assert made.info.settings == rig.store.queue("tenant").info.settings
    assert numbers(rig, "tenant-4") == [4]
    assert len(rig.store.queues()) == 14


def test_the_rows_of_a_queue_fit_its_own_columns(rig, routed):
    rig.store.create_queue("narrow", rig.store.queue("odd").schema.remove(2))
    rows = rig.read(ack="browse").withColumn("_to", F.lit("narrow"))
    with pytest.raises(PySparkException, match="narrow"):
        rig.write(rows, None, **ROUTE)
    rig.write(rows.drop("amount"), None, **ROUTE)
    assert numbers(rig, "narrow") == list(range(10))


def test_a_row_without_a_queue_is_refused(rig, routed):
    rows = rig.read(ack="browse").withColumn("_to", F.lit(None).cast("string"))
    with pytest.raises(PySparkException, match="is null in 10 rows"):
        rig.write(rows, None, **ROUTE)


def test_the_option_queues_limits_the_routes(rig, routed):
    with pytest.raises(StreamingQueryException, match="queue 'even', which the option queues"):
        finish(rig.sink(routed, None, queues="odd", **ROUTE))
    # Nor does a template make others; those that are named are made.
    with pytest.raises(StreamingQueryException, match=r"queue 'even', which the option queues"):
        finish(rig.sink(routed, None, queues="odd", template="odd", **ROUTE))
    rows = rig.read(ack="browse").withColumn("_to", F.lit("strange"))
    with pytest.raises(PySparkException, match=r"queue 'strange', which the option queues"):
        rig.write(rows, None, queues="odd,new", template="odd", **ROUTE)
    assert "strange" not in rig.store.queues()
    rig.write(rows.withColumn("_to", F.lit("new")), None, queues="odd,new", template="odd", **ROUTE)
    assert (numbers(rig, "new"), numbers(rig, "odd")) == (list(range(10)), [])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"key": "number"}, "key concerns one queue"),
        ({"queueColumn": "_ot"}, "did you mean '_to'"),
        ({"queueColumn": "number"}, "must be a string"),
        ({"template": "nope"}, "no queue 'nope'"),
        ({"queues": "odd,nope"}, "no queue 'nope'"),
    ],
)
def test_options_that_do_not_fit_are_refused(rig, routed, options, text):
    rows = rig.read(ack="browse").withColumn("_to", by_parity())
    with pytest.raises((AnalysisException, PySparkException), match=text):
        rig.write(rows, None, **ROUTE | options)
    assert numbers(rig, "odd") == []


def test_a_query_that_changes_from_one_queue_to_several_loads_no_batch_twice(rig, routed):
    plain = routed.drop("_to")
    finish(rig.sink(plain, "odd"))
    rig.forget_commit()
    with pytest.raises(StreamingQueryException, match=r"already published to queue 'odd'"):
        finish(rig.sink(routed, None, **ROUTE))
    finish(rig.sink(plain, "odd"))
    rig.store.queue("orders").load([{"number": 10}])
    finish(rig.sink(routed, None, **ROUTE))
    rig.forget_commit()
    with pytest.raises(StreamingQueryException, match=r"already published to several queues"):
        finish(rig.sink(plain, "odd"))
    assert (len(numbers(rig, "odd")), numbers(rig, "even")) == (10, [10])


def test_a_full_queue_keeps_the_others_waiting(rig, routed):
    rig.store.queue("even").admin.change_settings(max_size=4)
    with pytest.raises(StreamingQueryException, match=r"queue 'even'.* 5 messages"):
        finish(rig.sink(routed, None, **ROUTE))
    assert (numbers(rig, "odd"), numbers(rig, "even")) == ([], [])
    rig.store.queue("even").admin.change_settings(max_size=5)
    finish(rig.sink(routed, None, **ROUTE))
    assert len(numbers(rig, "odd")) == 5


def test_many_rows_for_many_queues_are_bounded_in_memory(rig):
    """Rows are divided and written before a task has read all of them."""
    for number in range(20):
        make_queue(rig.store, f"q{number}")
    rows = rig.spark.range(200_000).select(
        F.col("id").alias("number"),
        F.repeat(F.lit("x"), 500).alias("customer"),
        F.lit(1.0).alias("amount"),
        F.concat(F.lit("q"), (F.col("id") % 20).cast("string")).alias("_to"),
    )
    rig.write(rows.coalesce(1), None, **ROUTE)
    found = {row["queue"]: row["waiting"] for row in rig.store.view("queues").to_pylist()}
    assert found == {f"q{number}": 10_000 for number in range(20)}
    # In order.
    first = rig.store.queue("q3").peek(3).column("number").to_pylist()
    assert first == [3, 23, 43]


def test_a_version_of_a_writer_is_loaded_once(rig):
    """As in foreachBatch, where a batch may run again."""
    rig.orders(4)
    make_queue(rig.store, "copy")
    rows = rig.read(ack="browse")
    for version, times in ((5, 2), (6, 2), (4, 1)):
        for _ in range(times):
            rig.write(rows, "copy", txnAppId="etl", txnVersion=str(version))
    assert len(numbers(rig, "copy")) == 8
    rig.write(rows, "copy", txnAppId="another", txnVersion="5")
    assert len(numbers(rig, "copy")) == 12
    routed = rows.withColumn("_to", F.lit("copy"))
    for _ in range(2):
        rig.write(routed, None, txnAppId="etl", txnVersion="9", **ROUTE)
    assert len(numbers(rig, "copy")) == 16
    for options in ({"txnAppId": "etl"}, {"txnVersion": "3"}):
        with pytest.raises(PySparkException, match="together"):
            rig.write(rows, "copy", **options)


def test_each_queue_knows_the_versions_of_a_writer(rig, routed):
    """As each table of Delta does: one batch may be written by several writes of one writer."""
    writer = {"txnAppId": "etl", "txnVersion": "1"}
    rows = rig.read(ack="browse")
    to_odd, to_even = (rows.withColumn("_to", F.lit(name)) for name in ("odd", "even"))
    for _ in range(2):
        rig.write(to_odd, None, **writer, **ROUTE)
        rig.write(to_even, None, **writer, **ROUTE)
    assert (len(numbers(rig, "odd")), len(numbers(rig, "even"))) == (10, 10)

    # One of the two has the version already.
    rig.write(rows, "odd", txnAppId="etl", txnVersion="2")
    both = rows.withColumn("_to", by_parity())
    rig.write(both, None, txnAppId="etl", txnVersion="2", **ROUTE)
    assert (len(numbers(rig, "odd")), len(numbers(rig, "even"))) == (20, 15)
    with pytest.raises(PySparkException, match="txnVersion"):
        rig.write(rows, "odd", txnAppId="etl", txnVersion=str(2**63))
    assert rig.store.admin.fsck().to_pylist() == []


@pytest.mark.nightly
def test_a_writer_with_a_new_checkpoint_needs_another_name(rig):
    """Its batches count from 0 again, so those up to the recorded version count as repeated."""
    queue = rig.orders(4)
    make_queue(rig.store, "copy")

    def run(name, checkpoint, again=False):
        def write(batch, number):
            for _ in range(1 + again):
                rig.write(batch, "copy", txnAppId=name, txnVersion=str(number))

        source = rig.source(maxMessagesPerTrigger=2).select("number")
        finish(rig.each(source, write, checkpoint=checkpoint))

    run("etl", "first", again=True)
    assert numbers(rig, "copy") == [0, 1, 2, 3]
    queue.load([{"number": number} for number in range(10, 14)])
    run("etl", "second")
    assert numbers(rig, "copy") == [0, 1, 2, 3]
    queue.load([{"number": number} for number in range(20, 24)])
    run("etl-2", "third")
    assert numbers(rig, "copy") == [0, 1, 2, 3, 20, 21, 22, 23]
    assert counts(queue, "deleted", "in_flight") == [12, 0]


def test_a_stream_refuses_a_version(rig, routed):
    with pytest.raises((StreamingQueryException, AnalysisException), match="batch write"):
        finish(rig.sink(routed, "odd", txnAppId="etl", txnVersion="1"))
