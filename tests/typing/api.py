"""User code that mypy checks; it is never run."""

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_type

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from pyspark_ignis import (
    DefaultSource,
    IgnisDataSource,
    IgnisManager,
    QueueState,
    QueueStats,
    batch_handler,
    consume,
    consumer_of,
)
from queue_core import (
    VIEWS,
    Annihilate,
    Breaker,
    Buffer,
    Conflict,
    ConsumerPool,
    Decision,
    Firing,
    IgnisError,
    Invalid,
    Latest,
    Merge,
    NoSuchQueue,
    Predicate,
    Pressure,
    Queue,
    QueueAdmin,
    QueueExists,
    QueueInTransaction,
    QueueSettings,
    Settlement,
    Store,
    StoreAdmin,
    Take,
    Ticket,
    Trace,
    Unavailable,
    per_message,
    tracing,
    vectorised,
)

COLUMNS = pa.schema([("order_id", pa.int64()), ("customer", pa.string())])


def open_stores() -> None:
    with Store.open("some/folder") as store:
        assert_type(store, Store)
    Store.open(Path("some/folder"), create=False).close()
    Store.open(catalog="postgresql+psycopg://host/db", storage="s3://bucket/prefix").close()


@dataclass
class Order:
    order_id: int


def make_queues(store: Store) -> Queue:
    store.create_queue("orders", schema=COLUMNS)
    store.create_queue("orders", COLUMNS, shards=4, key="customer", exist_ok=True)
    store.create_queue("orders", COLUMNS, sweep_after=60.0, concurrency=2, attributes=["order_id"])
    assert_type(store.queues(), list[str])
    assert_type(store.create_queue("typed", Order), Queue)
    assert_type(store.queue("typed", Order), Queue)
    return store.queue("orders")


def call_the_verbs(orders: Queue) -> None:
    orders.load([{"order_id": 1, "customer": "a"}])
    orders.load({"order_id": n, "customer": None} for n in range(3))
    orders.load(COLUMNS.empty_table())

    with sqlite3.connect("catalog.db") as connection:
        ours = orders.within(connection)
        assert_type(ours, QueueInTransaction)
        ours.load([{"order_id": 1, "customer": "a"}])
        assert_type(ours.delete(ours.fire()), int)

    firing = orders.fire("all")
    assert_type(firing, Firing)
    assert_type(len(firing), int)
    orders.fire(100)
    orders.fire(max_messages=100, max_bytes=1 << 20, timeout=1.0, magazine="sideline")
    orders.fire("all", selector="order_id > 10", order_by="order_id DESC", timeout=1)
    orders.fire(order="global", timeout=None)
    orders.fire(10, selector=large, fallback=True)

    assert_type(orders.delete(firing), int)
    assert_type(orders.sideline(firing.ids, reason="declined"), int)
    assert_type(orders.sideline([1, 2, 3]), int)
    assert_type(orders.reload(firing), int)
    assert_type(orders.shovel(), int)
    assert_type(orders.shovel(10), int)
    assert_type(orders.shovel(to="other", selector="order_id > 1", rate=5, dry_run=True), int)
    assert_type(orders.start_shovel(100, to="other", rate=5.0, ids=[1, 2], who="Ann"), str)
    assert_type(orders.store.admin.cancel("3f9a2c1b"), bool)
    assert_type(orders.choose("all").count("delete"), int)
    assert_type(orders.choose([1, 2], magazine="main").delete(), int)
    assert_type(orders.choose(selector="order_id > 1").sideline("why"), int)
    assert_type(orders.choose(1).requeue(), int)
    orders.edit(1, {"customer": "b"})
    assert_type(orders.choose("all").reload(consumer="till"), int)
    assert_type(orders.sweep(), int)
    assert_type(orders.sweep(older_than=60, dead_after=5), int)
    assert_type(orders.admin, QueueAdmin)
    assert_type(orders.store.admin, StoreAdmin)
    assert_type(orders.admin.repair().messages, int)
    orders.admin.pause()
    orders.admin.resume()
    assert_type(orders.objects(firing, Order), list[Order])
    orders.load([Order(1)])
    orders.load(Order(1))
    orders.load({"order_id": 1})
    orders.peek()
    orders.peek(10, magazine="sideline", selector="order_id > 10", order_by="order_id")
    orders.peek(selector=Predicate(large, columns=["order_id"]), order="global")
    orders.browse(magazine="sideline")
    orders.browse(selector=large)


def large(orders: pa.RecordBatch) -> pa.BooleanArray:
    return pc.greater(orders.column("order_id"), 1000)


def decide(new: Mapping[str, Any], queued: Mapping[str, Any]) -> Decision:
    return Decision.QUEUE_AND_DELETE if new["amount"] > queued["amount"] else Decision.IGNORE


def decide_at_once(new: pa.Table, queued: pa.Table) -> pa.Array:
    return pa.array([Decision.QUEUE] * int(new.num_rows))


def load_with_policies(orders: Queue) -> None:
    rows = [{"order_id": 1, "customer": "a"}]
    orders.load(rows, policy=Latest())
    orders.load(rows, policy=Merge((Take("last", "order_id"),)))
    orders.load(rows, policy=Annihilate(on="order_id > 0", off="order_id < 0"))
    orders.load(rows, policy=per_message(decide))
    orders.load(rows, policy=vectorised(decide_at_once, order="oldest"))
    orders.load(rows, 1.0, policy="latest", ttl=60.0, hold=1.0)


def settle_by_hand(orders: Queue) -> None:
    firing = orders.get_and_keep(10, timeout=1.0)
    if firing.ticket is not None:
        assert_type(firing.ticket, Ticket)
        outcomes = pa.table({"_message_id": firing.ids, "outcome": ["delete"] * len(firing)})
        assert_type(orders.settle(Settlement.of(outcomes), firing.ticket.consumer), int)
    assert_type(orders.reset(), int)


def write_into_buffers(orders: Queue) -> None:
    with orders.request(1000, timeout=1.0, widths={"pixels": 64}) as buffer:
        assert_type(buffer, Buffer)
        buffer["order_id"][:] = 1
    orders.load(buffer)


def trace(pool: ConsumerPool) -> None:
    with tracing() as traced:
        assert_type(traced, Trace)
        pool.drain()
    print(traced.steps)


def misuse_the_verbs(spark: SparkSession, orders: Queue) -> None:
    """Calls that mypy must refuse; if it accepted one, it would report an unused comment."""
    orders.fire("ten")  # type: ignore[arg-type]
    orders.shovel(limit="all")  # type: ignore[arg-type]
    consume(spark, "orders", charge)  # type: ignore[call-arg]
    consume(spark, "orders", 5, checkpoint="some/where")  # type: ignore[arg-type]


def describe(store: Store, orders: Queue) -> None:
    assert_type(orders.name, str)
    assert_type(orders.refresh(), Queue)
    assert_type(orders.admin.change_settings(sweep_after=5), QueueSettings)
    orders.admin.add_columns(pa.schema([("note", pa.string())]))
    print(orders.schema, orders.metadata(), orders.failures(), store.view("queues"))
    print(store.view("failures", "orders"), VIEWS["failures"])


def tidy(store: Store) -> None:
    assert_type(store.admin.vacuum(grace=60.0, dry_run=True), list[str])
    assert_type(store.admin.fsck(deep=True, repair=True), pa.Table)
    assert_type(store.admin.recover(), int)


def handle_errors(store: Store) -> str:
    try:
        return store.queue("orders").name
    except NoSuchQueue as error:
        return str(error)
    except (QueueExists, Invalid, Conflict, Unavailable):
        raise
    except IgnisError as error:
        return f"{error!r}"


def charge(order: dict[str, Any]) -> bool:
    return bool(order["amount"] > 0)


@batch_handler
def approve(orders: pa.RecordBatch) -> list[bool]:
    return [True] * int(orders.num_rows)


def consume_with_each_kind_of_handler(spark: SparkSession) -> None:
    query = consume(spark, "orders", charge, path="some/folder", checkpoint="some/where")
    assert_type(query, StreamingQuery)
    assert_type(consumer_of("some/where"), str)
    consume(
        spark,
        path=Path("some/folder"),
        queue=["orders", "returns"],
        handler=approve,
        ignorable=(ValueError, KeyError),
        checkpoint=Path("some/where"),
        trigger={"availableNow": True},
        max_messages=1000,
        handler_timeout=5.0,
        numPartitions=4,
    )
    consume(
        spark,
        queue="orders",
        handler=F.col("amount") > 10,
        catalog="postgresql+psycopg://host/db",
        storage="s3://bucket/prefix",
        checkpoint="some/where",
        magazine="sideline",
        columns=["order_id"],
        ignorable=ValueError,
    )


def manage(spark: SparkSession) -> None:
    with IgnisManager(
        spark,
        path="some/folder",
        handlers={"orders": charge, "returns": {"handler": approve, "max_messages": 1000}},
        checkpoints=Path("some/where"),
    ) as manager:
        assert_type(manager.increase_consumers("orders", 5), int)
        manager.decrease_consumers("orders")
        assert_type(manager.create_queue("late", COLUMNS, handler=charge, shards=1), Queue)
        manager.remove_handler("late", grace=1.0)
        manager.add_handler("late", {"handler": approve, "message_type": Order})
        manager.schedule_shovel("orders", None)
        assert_type(manager.shovel("orders", limit=10), int)
        assert_type(manager.stats(), dict[str, QueueStats])
        assert_type(manager.state(), dict[str, QueueState])
        assert_type(manager.stats()["orders"].unconsumed, int)
        assert_type(manager.state()["orders"].status, str)
    IgnisManager(
        spark,
        catalog="postgresql+psycopg://host/db",
        storage="s3://bucket/prefix",
        handlers={"orders": F.col("amount") > 10},
        checkpoints="some/where",
        refresh_interval=60,
        zookeeper="host:2181",
        tasks=("sweep",),
    )


def handle_without_spark(store: Store) -> None:
    pressure = Pressure()
    with ConsumerPool(store, "orders", charge, ignorable=ValueError, pressure=pressure) as pool:
        assert_type(pool.drain(10.0), bool)
        assert_type(pool.increase(2), int)
        assert_type(pool.counts, dict[str, int])
    ConsumerPool(
        store,
        ["orders", "returns"],
        approve,
        priority=5,
        max_bytes=64 << 20,
        max_in_flight=1000,
        single_active=True,
        name="till",
        breaker=Breaker(of=50, check="shop.health:is_up"),
    ).start().stop(timeout=5.0)
    store.admin.breaker("orders,returns").open()
    store.admin.breaker("orders,returns").release()


def use_the_format(spark: SparkSession) -> StreamingQuery:
    orders: DataFrame = spark.readStream.format("ignis").option("queue", "orders").load("folder")
    return orders.writeStream.format("ignis").option("queue", "copy").start("folder")


def register_by_hand(spark: SparkSession) -> None:
    spark.dataSource.register(IgnisDataSource)
    assert_type(DefaultSource.name(), str)
