"""`spark.read`: a queue as a table, and the views of a store."""

import pytest
from pyspark.errors import PySparkException

from queue_core.values.ids import IdSet
from queue_core.values.outcomes import Settlement
from tests.factories import make_queue, orders
from tests.spark.rig import assert_rows, counts, finish


def test_a_table_has_what_waits_and_what_is_in_flight_and_nothing_is_taken(rig):
    queue = rig.orders(5, shards=2, key="number")
    queue.fire(2)
    assert_rows(rig.read("orders_SIDELINE"))
    assert_rows(rig.read().select("number"), 0, 1, 2, 3, 4)
    assert rig.read().where("_fired_at IS NOT NULL").count() == 2
    assert counts(queue, "waiting", "in_flight") == [3, 2]


def test_an_empty_queue_is_an_empty_table(rig):
    rig.orders(0)
    assert_rows(rig.read())
    assert_rows(rig.read(magazine="sideline"))


def test_a_table_shows_what_was_there_when_it_was_first_read(rig):
    """Spark plans the reads of a DataFrame once; a new one shows the present state."""
    queue = rig.orders(2)
    table = rig.read()
    assert table.count() == 2
    queue.load(orders(3))
    assert table.count() == 2
    assert rig.read().count() == 5


def test_a_schema_picks_columns_of_a_table(rig):
    rig.orders(2)
    assert_rows(rig.read(schema="_shard INT, number LONG"), (0, 0), (0, 1))
    assert rig.read(schema="customer STRING").count() == 2


def test_the_views_show_a_store(rig):
    red, blue = rig.orders(6, "red", shards=2, key="number"), rig.orders(3, "blue")
    consumer = rig.store.consumer("clerk")
    fired = red.fire(4, consumer=consumer)
    red.settle(Settlement.sideline(IdSet.of(fired.ids[:1]), "declined"), consumer)

    assert_rows(rig.view("queues").select("queue"), "blue", "red")
    figures = rig.view("queues", "red").select("waiting", "in_flight", "sidelined")
    assert_rows(figures, (2, 3, 1))
    concurrency = "get_json_object(settings, '$.concurrency') AS concurrency"
    assert_rows(rig.view("queues", "blue").selectExpr(concurrency), "8")
    shards = rig.view("shards", "red")
    assert shards.count() == 4
    assert_rows(shards.selectExpr("sum(fired)", "sum(sidelined)"), (4, 1))
    slices = rig.view("slices", "red").groupBy("magazine", "state").sum("messages")
    assert_rows(slices, ("main", "fired", 3), ("main", "loaded", 2), ("sideline", "loaded", 1))
    rig.store.admin.breaker("red").open()
    assert_rows(rig.read(None, queues="red,blue", view="breakers").select("breaker"), "red")
    make_queue(rig.store, "green", log="7 days")
    rig.store.subscribe("reader", to="green")
    both = rig.read(None, queues="green,reader", view="subscriptions").select("queue", "log_of")
    assert_rows(both, ("reader", "green"))
    for queue in (None, "red"):
        found = rig.view("consumers", queue).select("consumer", "in_flight")
        assert_rows(found, ("clerk", 3))
    failures = rig.view("failures").select("queue", "reason", "consumer")
    assert_rows(failures, ("red", "declined", "clerk"))
    assert rig.view("failures", "blue").count() == 0
    assert blue.metadata().num_rows == 2


def test_a_schema_picks_columns_of_a_view(rig):
    rig.orders(2)
    assert_rows(rig.view("queues", schema="waiting LONG, queue STRING"), (2, "orders"))
    with pytest.raises(PySparkException, match="view 'queues' has no column 'waitin'"):
        rig.view("queues", schema="waitin LONG").collect()


def test_a_view_is_no_stream(rig):
    rig.orders(1)
    with pytest.raises(PySparkException, match=r"view='queues' is for spark.read"):
        finish(rig.each(rig.source(None, view="queues"), lambda *_: None))


@pytest.mark.parametrize(
    ("queue", "message"),
    [
        ("oders", "has no queue 'oders'; did you mean 'orders'"),
        ("../orders", "queue name '../orders': use a letter"),
        ("'; DROP TABLE queues", 'queue name "\'; DROP TABLE queues": use a letter'),
    ],
)
def test_a_queue_that_is_not_there_is_refused(rig, queue, message):
    rig.orders(1)
    with pytest.raises(PySparkException, match=message):
        rig.read(queue)
    assert rig.read().count() == 1


def test_a_store_that_is_not_there_is_refused_and_not_made(rig):
    path = rig.folder / "nowhere"
    with pytest.raises(PySparkException, match=f"there is no ignis store at {path}"):
        rig.spark.read.format("ignis").option("queue", "orders").load(str(path))
    assert not path.exists()
