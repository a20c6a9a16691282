"""`consume_many`: one query for many queues, each of which has a handler of its own."""

import json
import time

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from pyspark_ignis import IgnisManager, batch_handler, consume_many, shared_queries
from queue_core import Store
from queue_core.errors import BadOption, CatalogUnavailable, NoSuchQueue, SchemaMismatch
from queue_core.handling.breaker import Breaker
from tests.factories import drop
from tests.spark.rig import AVAILABLE_NOW, PATIENCE, counts, finish, wait_until

EVENTS = pa.schema([("number", pa.int64()), ("body", pa.string())])


@pytest.fixture
def queues(rig):
    """Three queues with the same columns; none retries."""
    return {
        name: rig.store.create_queue(name, EVENTS, shards=2, retry=None)
        for name in ("orders", "mails", "bills")
    }


@pytest.fixture
def consume(rig):
    """Serve queues of the test's store until they are empty."""

    def consume(handlers, **how):
        how = {"checkpoint": rig.folder / "checkpoint", "trigger": AVAILABLE_NOW} | how
        query = consume_many(rig.spark, handlers, path=rig.path, **how)
        finish(query)
        return query

    return consume


def events(*numbers):
    return [{"number": each, "body": json.dumps({"twice": 2 * each})} for each in numbers]


def approve(message):
    return True


def of_orders(message):
    assert set(message) == {"number", "body", "_message_id", "_queue", "_attempt"}
    assert message["_queue"] == "orders"
    if message["number"] == 3:
        raise KeyError("customer")
    return message["number"] != 2


def of_mails(body, rest):
    assert rest["_queue"] == "mails"
    return body["twice"] % 4 == 0


@batch_handler
def of_bills(batch):
    assert batch.schema.names == ["number", "_message_id"]
    return pa.compute.less(batch.column("number"), 2)


def test_each_queue_has_its_own_handler_and_contract(queues, consume):
    for queue in queues.values():
        queue.load(events(1, 2, 3))

    query = consume(
        {
            "orders": {"handler": of_orders, "ignorable": KeyError},
            "mails": {"handler": of_mails, "payload": "body", "with_metadata": True},
            "bills": {"handler": of_bills, "columns": ["number"]},
        }
    )

    sidelined = {
        name: sorted(queue.browse(magazine="sideline").column("number").to_pylist())
        for name, queue in queues.items()
    }
    assert sidelined == {"orders": [2], "mails": [1, 3], "bills": [2, 3]}
    assert [counts(queue, "deleted") for queue in queues.values()] == [[2], [1], [1]]
    metrics = query.recentProgress[0].observedMetrics["ignis"]
    assert metrics.asDict() == {"deleted": 3, "sidelined": 5, "ignored": 1, "reloaded": 0}


def forgets(message):
    pass


@pytest.mark.nightly
def test_a_handler_that_returns_none_stops_no_other_queue(queues, consume):
    for queue in queues.values():
        queue.load(events(1, 2))

    consume(
        {"orders": forgets, "mails": approve, "bills": {"handler": forgets, "on_none": "delete"}}
    )

    assert [counts(queue, "deleted", "sidelined") for queue in queues.values()] == [
        [0, 2],
        [2, 0],
        [2, 0],
    ]
    assert {each["kind"] for each in queues["orders"].failures().to_pylist()} == {"undecided"}


def test_a_later_run_may_have_other_queues(queues, consume):
    for queue in queues.values():
        queue.load(events(1))
    consume({"orders": approve, "mails": approve})
    for queue in queues.values():
        queue.load(events(2))

    consume({"mails": approve, "bills": approve})

    assert [counts(queue, "deleted", "fired") for queue in queues.values()] == [
        [1, 1],
        [2, 2],
        [2, 2],
    ]


def give_up(queue):
    queue.admin.deactivate()


@pytest.mark.parametrize(
    "end", [pytest.param(give_up, marks=pytest.mark.nightly), drop], ids=["deactivated", "dropped"]
)
def test_the_end_of_one_queue_ends_no_query(spark, store, address, checkpoint, end):
    names = ("orders", "mails", "bills")
    first, *others = [store.create_queue(name, EVENTS, shards=1, retry=None) for name in names]
    where = {"catalog": address.catalog, "storage": address.storage, "checkpoint": checkpoint}
    query = consume_many(spark, dict.fromkeys(names, approve), **where)
    for queue in (first, *others):
        queue.load(events(1, 2))
    wait_until(lambda: counts(first, "deleted") == [2], query)
    end(first)
    for count in range(3, 5):
        for queue in others:
            queue.load(events(count))
        wait_until(lambda: [counts(each, "deleted") for each in others] == [[count]] * 2, query)  # noqa: B023

    for queue in others:
        queue.admin.deactivate()
    wait_until(lambda: not query.isActive)
    assert "was deactivated at" in str(query.exception())


@pytest.mark.nightly
def test_a_queue_that_is_dropped_within_a_batch_loses_its_messages_only(rig, queues, consume):
    bills = queues["bills"]

    @batch_handler
    def slow(batch):
        if "bills" in rig_store().queues():
            drop(rig_store().queue("bills"))
        return pa.array([True] * len(batch))

    path = rig.path

    def rig_store():
        return Store.open(path)

    bills.load(events(1, 2))
    queues["mails"].load(events(1, 2))
    query = consume_many(
        rig.spark,
        {"bills": slow, "mails": approve},
        path=rig.path,
        checkpoint=rig.folder / "checkpoint",
    )
    wait_until(lambda: counts(queues["mails"], "deleted") == [2], query)
    queues["mails"].load(events(3))
    wait_until(lambda: counts(queues["mails"], "deleted") == [3], query)
    assert "bills" not in rig.store.queues()
    query.stop()


@pytest.mark.parametrize(
    ("handlers", "error", "told"),
    [
        ({}, BadOption, "give a dict of a handler for each queue name"),
        (
            {"orders": lambda: True},
            BadOption,
            r"handlers\['orders'\]: .*cannot take its 1 argument",
        ),
        (
            {"orders": {"handler": approve, "retry": None}},
            BadOption,
            "'retry' is for a whole query",
        ),
        ({"orders": {"handler": approve, "payloads": "x"}}, BadOption, "did you mean 'payload'"),
        (
            {"orders": {"handler": approve, "breaker": Breaker(of=5)}},
            BadOption,
            "give this queue a query of its own",
        ),
        ({"orders": approve, "order": approve}, NoSuchQueue, "did you mean 'orders'"),
        ({"orders": approve, "other": approve}, BadOption, "have different columns"),
        ({"orders": {"handler": approve, "columns": ["x"]}}, SchemaMismatch, "no column 'x'"),
        (
            {"orders": {"handler": approve, "payload": "number"}},
            BadOption,
            "is bigint, not string",
        ),
    ],
)
def test_bad_arguments_are_refused_before_the_query_starts(
    rig, queues, consume, handlers, error, told
):
    rig.store.create_queue("other", pa.schema([("x", pa.int64())]))
    with pytest.raises(error, match=told):
        consume(handlers)
    assert not (rig.folder / "checkpoint").exists()


def test_queues_of_one_log_are_refused_before_the_query_starts(rig, queues, consume):
    queues["orders"].admin.change_settings(log="1 hour")
    rig.store.subscribe("billing", to="orders")
    with pytest.raises(BadOption, match="have the same messages"):
        consume({"orders": approve, "billing": approve})
    assert not (rig.folder / "checkpoint").exists()


def test_a_column_is_refused(queues, consume):
    with pytest.raises(BadOption, match="would see the messages of all queues"):
        consume({"orders": F.col("number") > 1})


@pytest.mark.nightly
def test_queues_of_a_manager_share_a_query(rig, queues):
    expression = rig.store.create_queue("expressed", EVENTS, shards=1, retry=None)
    wide = rig.store.create_queue("wide", pa.schema([("x", pa.int64())]), shards=1, retry=None)
    for queue in (*queues.values(), expression):
        queue.load(events(1, 2))
    wide.load([{"x": 1}])

    def active():
        return sorted(query.name.partition("-")[0] for query in rig.spark.streams.active)

    def rows():
        """The rows of each micro-batch."""
        running = rig.spark.streams.active
        return [each.numInputRows for query in running for each in query.recentProgress]

    with IgnisManager(
        rig.spark,
        path=rig.path,
        handlers={"orders": approve, "mails": approve, "wide": approve, "absent": approve}
        | {"expressed": F.col("number") > 0},
        checkpoints=rig.folder / "checkpoints",
        tasks=(),
        shared=True,
        max_messages=2,
    ) as manager:
        assert active() == ["ignis:_shared", "ignis:_shared", "ignis:expressed"]
        served = (queues["orders"], queues["mails"], expression)
        wait_until(lambda: [counts(queue, "deleted") for queue in served] == [[2]] * 3)
        wait_until(lambda: counts(wide, "deleted") == [1])
        wait_until(lambda: sum(rows()) == 7)
        assert max(rows()) == 2

        manager.add_handler("bills", approve)
        wait_until(lambda: counts(queues["bills"], "deleted") == [2])
        assert len(active()) == 3
        manager.remove_handler("orders")
        queues["orders"].load(events(3))
        queues["mails"].load(events(3))
        wait_until(lambda: counts(queues["mails"], "deleted") == [3])
        assert counts(queues["orders"], "fired") == [2]
        states = {queue: state.status for queue, state in manager.state().items()}
        assert states == dict.fromkeys(("mails", "wide", "bills", "expressed"), "running") | {
            "absent": "absent"
        }

        manager.deactivate("bills")
        queues["mails"].load(events(4))
        wait_until(lambda: counts(queues["mails"], "deleted") == [4])
        assert manager.state()["bills"].status == "deactivated"
    assert rig.spark.streams.active == []
    assert {state.status for state in manager.state().values()} == {"stopped"}


def manager_of_orders(rig, **how):
    return IgnisManager(
        rig.spark,
        path=rig.path,
        handlers={"orders": approve},
        checkpoints=rig.folder / "checkpoints",
        tasks=(),
        **how,
    )


def test_a_manager_whose_catalog_fails_at_its_start_says_so_and_can_be_started_later(
    rig, queues, monkeypatch
):
    queues["orders"].load(events(1))
    manager = manager_of_orders(rig, shared=True)

    def fails(*_):
        raise CatalogUnavailable("not now")

    with monkeypatch.context() as patch:
        patch.setattr(shared_queries, "holding", fails)
        with pytest.raises(CatalogUnavailable, match="not now"):
            manager.start()
    with manager:
        wait_until(lambda: counts(queues["orders"], "deleted") == [1])


def test_a_manager_that_cannot_start_its_threads_leaves_no_query_behind(rig, queues, monkeypatch):
    manager = manager_of_orders(rig)

    def fails(*_, **__):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("pyspark_ignis.manager.Loop", fails)
        with pytest.raises(RuntimeError, match="new thread"):
            manager.start()
    assert rig.spark.streams.active == []
    queues["orders"].load(events(1))
    with manager:
        wait_until(lambda: counts(queues["orders"], "deleted") == [1])


@pytest.fixture
def manage(rig):
    """Managers of the test's store, whose queries are shared; they end with the test."""
    made = []

    def manage(*names, handler=approve):
        manager = IgnisManager(
            rig.spark,
            path=rig.path,
            handlers=dict.fromkeys(names, handler),
            checkpoints=rig.folder / "checkpoints",
            tasks=(),
            shared=True,
        )
        made.append(manager)
        manager.start()
        return manager

    yield manage
    for manager in made:
        manager.stop(grace=0)


def hangs(message):
    time.sleep(PATIENCE)


@pytest.mark.parametrize(
    "grown", [pytest.param(("orders", "mails"), marks=pytest.mark.nightly), ("orders",)]
)
def test_a_batch_that_was_not_finished_is_handled_with_other_columns_too(
    rig, queues, manage, grown
):
    """Each query has messages of queues that are now in another one, and perhaps of its own."""
    both = (queues["orders"], queues["mails"])
    for queue in both:
        queue.load(events(1, 2))
    manager = manage("orders", "mails", handler=hangs)
    wait_until(lambda: [counts(queue, "fired") for queue in both] == [[2], [2]])
    manager.stop(grace=0)
    assert [counts(queue, "deleted") for queue in both] == [[0], [0]]

    for name in grown:
        queues[name].admin.add_columns(pa.schema([("x", pa.int64())]))
    manage("orders", "mails")
    wait_until(lambda: [counts(queue, "deleted") for queue in both] == [[2], [2]])
    for queue in both:
        queue.load(events(3))
    wait_until(lambda: [counts(queue, "deleted") for queue in both] == [[3], [3]])


def test_a_batch_with_columns_that_its_query_does_not_know_goes_to_the_next_query(
    rig, queues, manage
):
    orders = queues["orders"]
    manager = manage("orders")
    orders.load(events(1))
    wait_until(lambda: counts(orders, "deleted") == [1])
    (former,) = rig.store.view("consumers").column("consumer").to_pylist()
    orders.admin.add_columns(pa.schema([("x", pa.int64())]))
    orders.load([{**each, "x": 7} for each in events(2)])
    wait_until(lambda: manager.state()["orders"].status == "failed")

    manager.refresh()
    # At once: a recovery would wait for a minute of silence.
    rows = rig.store.view("consumers").to_pylist()
    assert {each["consumer"]: each["in_flight"] for each in rows}[former] == 0
    wait_until(lambda: counts(orders, "deleted") == [2])


def test_another_manager_with_checkpoints_beside_these_is_left_alone(rig, queues, manage):
    rig.store.create_queue("wide", pa.schema([("x", pa.int64())]), retry=None).load([{"x": 1}])
    queues["orders"].load(events(1))
    wide = manage("wide", handler=hangs)
    wait_until(lambda: counts(rig.store.queue("wide"), "fired") == [1])

    manage("orders")
    wait_until(lambda: counts(queues["orders"], "deleted") == [1])
    assert wide.state()["wide"].status == "running"
    assert counts(rig.store.queue("wide"), "fired", "reloaded") == [1, 0]


def test_what_a_queue_without_its_handler_left_waits_again(rig, queues, manage):
    """The query that it shared goes on without it."""
    both = (queues["orders"], queues["mails"])
    for queue in both:
        queue.load(events(1))
    manager = manage("orders", "mails", handler=hangs)
    wait_until(lambda: [counts(queue, "fired") for queue in both] == [[1], [1]])
    manager.stop(grace=0)

    manage("mails")
    wait_until(lambda: counts(queues["mails"], "deleted") == [1])
    assert queues["orders"].peek().num_rows == 1
