"""Metadata: pointers and counters show what happened, and agree with the messages."""

import pyarrow as pa
import pytest

from queue_core import limit
from queue_core.errors import BadOption, NoSuchQueue
from queue_core.upkeep.tasks.sample import sample
from queue_core.values.views import VIEWS
from tests.dump import backdate
from tests.factories import make_filled, make_queue, numbers_of, orders, sideline_traced

pytestmark = pytest.mark.each_catalog

COUNTS = (
    *("load_pointer", "fire_pointer", "loaded", "fired", "reloaded", "deleted", "sidelined"),
    *("shovelled", "swept", "damaged", "waiting", "in_flight"),
)


def counts(queue, magazine="main"):
    """The counters that are not zero in the only shard of a queue."""
    (row,) = (r for r in queue.metadata().to_pylist() if r["magazine"] == magazine)
    return {name: row[name] for name in COUNTS if row[name]}


def test_each_verb_is_counted_where_it_happens(store):
    queue = make_queue(store)
    ids = queue.load(orders(10))
    assert counts(queue) == {"load_pointer": 10, "loaded": 10, "waiting": 10}

    queue.fire(8)
    main = {"load_pointer": 10, "fire_pointer": 8, "loaded": 10, "fired": 8}
    assert counts(queue) == main | {"waiting": 2, "in_flight": 8}

    queue.delete(ids[:3])
    queue.sideline(ids[3:5])
    queue.reload(ids[5:6])
    main |= {"deleted": 3, "sidelined": 2, "reloaded": 1}
    assert counts(queue) == main | {"waiting": 3, "in_flight": 2}
    side = {"load_pointer": 2, "loaded": 2}
    assert counts(queue, "sideline") == side | {"waiting": 2}

    backdate(store, 100)
    queue.sweep(50)
    main |= {"swept": 2}
    side = {"load_pointer": 4, "loaded": 4}
    assert counts(queue) == main | {"waiting": 3}
    assert counts(queue, "sideline") == side | {"waiting": 4}

    queue.shovel(3)
    main |= {"loaded": 13, "load_pointer": 13}
    side |= {"fire_pointer": 3, "fired": 3, "shovelled": 3}
    assert counts(queue) == main | {"waiting": 6}
    assert counts(queue, "sideline") == side | {"waiting": 1}

    assert numbers_of(queue.fire("all").messages) == [5, 8, 9, 3, 4, 6]
    main |= {"fired": 14, "fire_pointer": 13}
    assert counts(queue) == main | {"in_flight": 6}

    # The fire pointer never goes back.
    queue.reload(ids[5:6])
    queue.fire(1)
    assert counts(queue) == main | {"fired": 15, "reloaded": 2, "in_flight": 6}


def test_shards_are_counted_one_by_one(store):
    queue = make_queue(store, shards=4, key="customer")
    rows = queue.metadata().to_pylist()
    assert [(row["queue"], row["magazine"], row["shard"]) for row in rows] == [
        ("orders", magazine, shard) for magazine in ("main", "sideline") for shard in range(4)
    ]
    assert {row[name] for row in rows for name in COUNTS} == {0}

    queue.load(orders(100))
    firing = queue.fire("all")
    queue.delete(firing.ids[:50])

    rows = [row for row in queue.metadata().to_pylist() if row["magazine"] == "main"]
    shards = firing.messages.column("_shard").to_pylist()

    assert [row["fired"] for row in rows] == [shards.count(shard) for shard in range(4)]
    assert [row["deleted"] for row in rows] == [shards[:50].count(shard) for shard in range(4)]


def test_one_queue_is_told_apart_from_the_others(store):
    one, other = make_queue(store, "one"), make_queue(store, "other", shards=2)
    one.load(orders(3))

    assert counts(one) == {"load_pointer": 3, "loaded": 3, "waiting": 3}
    assert other.metadata().column("queue").unique().to_pylist() == ["other"]
    assert store.view("shards").column("queue").to_pylist() == ["one"] * 2 + ["other"] * 4


def test_the_view_of_queues_sums_up(store):
    make_queue(store, "empty")
    queue = make_filled(store, 20, shards=3, key="customer", concurrency=5)
    queue.sideline(queue.fire(6).ids[:4])

    empty, full = store.view("queues").to_pylist()

    assert full["created_at"] is not None
    assert 0 <= full.pop("oldest_age") < 600
    assert 0 <= full.pop("longest_wait") < 600
    assert {
        name: full[name] for name in full if name not in ("bytes", "settings", "created_at")
    } == {
        "queue": "orders",
        "shards": 3,
        "key": "customer",
        "columns": "number int64, customer string, amount double",
        "waiting": 14,
        "in_flight": 2,
        "sidelined": 4,
        "retrying": 4,
        "dead": 0,
        "damaged": 0,
        "deactivated_at": None,
        "paused_at": None,
        "state": "active",
        **dict.fromkeys(("waiting_p50", "waiting_p99", "handling_p50", "handling_p99")),
    }
    assert full["bytes"] > 0
    assert '"concurrency": 5' in full["settings"]
    assert (empty["queue"], empty["waiting"], empty["bytes"]) == ("empty", 0, 0)
    assert store.view("queues", "orders").column("queue").to_pylist() == ["orders"]


def test_the_view_of_slices_says_where_messages_are_and_who_holds_them(store):
    queue = make_queue(store)
    queue.load(orders(5))
    queue.load(orders(10_000, 5))
    firing = queue.fire(2, consumer=store.consumer("till-1"))

    rows = store.view("slices", "orders").to_pylist()

    (location,) = store.storage.list()
    assert [
        (row["position"], row["state"], row["messages"], row["consumer"], row["location"])
        for row in rows
    ] == [
        (0, "fired", 2, "till-1", None),
        (2, "loaded", 3, None, None),
        (5, "loaded", 10_000, None, location),
    ]
    assert rows[0]["ticket"] == firing.ticket.number
    assert [row["deliveries"] for row in rows] == [1, 0, 0]
    assert all(row["bytes"] > 0 for row in rows)


def test_the_view_of_consumers_says_who_was_here(store):
    queue = make_filled(store, 5)
    queue.fire(2, consumer=store.consumer("a"))
    store.consumer("b", beats=True)
    store.consumer("b", beats=True)

    rows = store.view("consumers").to_pylist()

    assert [
        (row["consumer"], row["epoch"], row["last_ticket"] > 0, row["acknowledged"]) for row in rows
    ] == [("a", 1, True, 0), ("b", 2, False, 0)]
    assert [row["in_flight"] for row in rows] == [2, 0]
    assert rows[0]["heartbeat_at"] is None
    assert rows[1]["heartbeat_at"] >= rows[1]["created_at"]


def test_every_view_has_its_schema_with_and_without_rows(store):
    for name, schema in VIEWS.items():
        assert store.view(name).schema.equals(schema), name
    queue = make_filled(store, 5)
    sideline_traced(queue, queue.fire("all").ids)
    queue.shovel(2)
    queue.start_shovel()
    store.admin.breaker("orders").open()
    queue.admin.change_settings(limits=limit(in_flight=9), log="7 days")
    store.subscribe("billing", to="orders")
    sample(store.catalog)

    for name, schema in VIEWS.items():
        view = store.view(name)
        assert view.schema.equals(schema), name
        assert view.num_rows > 0, name
        assert isinstance(view, pa.Table)


def test_an_unknown_view_or_queue_is_refused(store):
    with pytest.raises(BadOption, match="view='shard'; did you mean 'shards'"):
        store.view("shard")
    for name in VIEWS:
        with pytest.raises(NoSuchQueue, match="no queue 'orders'"):
            store.view(name, "orders")
