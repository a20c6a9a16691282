"""Queues: created, found, described, changed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from queue_core.catalog import queue_changes
from queue_core.errors import (
    BadName,
    BadOption,
    NoSuchQueue,
    QueueExists,
    SchemaMismatch,
)
from queue_core.values.retry import Retry
from queue_core.values.settings import QueueSettings
from tests.dump import dump
from tests.factories import ORDERS, make_queue, numbers_of, orders
from tests.waiting import all_at_once


def test_a_new_queue_is_found_as_it_was_made(store):
    made = make_queue(store, shards=5, key="customer", compression="zstd", attributes=["amount"])
    found = store.queue("orders")
    assert found.info == made.info
    assert found.schema.equals(ORDERS)
    assert (found.info.shards, found.info.key, found.info.schema_version) == (5, "customer", 1)
    assert found.info.settings == QueueSettings(compression="zstd", attributes=("amount",))
    assert repr(found).startswith("<Queue 'orders', 5 shards, of <Store ")


def test_a_queue_has_eight_shards_and_no_key_unless_told(store):
    queue = store.create_queue("orders", ORDERS)
    assert (queue.info.shards, queue.info.key) == (8, None)


def test_queues_are_listed_by_name_and_keep_their_messages_apart(store):
    """Even if the names differ only in case."""
    assert store.queues() == []
    one, other, _ = (make_queue(store, name) for name in ("a", "A", "b"))
    one.load(orders(3))
    other.load(orders(3, 10))
    one.sideline(one.fire("all"))
    one.shovel()

    assert store.queues() == store.view("queues").column("queue").to_pylist()
    assert sorted(store.queues()) == ["A", "a", "b"]
    assert numbers_of(store.queue("A").fire("all").messages) == [10, 11, 12]
    assert numbers_of(store.queue("a").fire("all").messages) == [0, 1, 2]


def test_a_queue_that_exists_warns_of_the_settings_that_it_keeps(store):
    first = make_queue(store, message_expiry="1h", retry=Retry(attempts=3), attributes="amount")

    # Those that are not given, and those that are equal, say nothing.
    make_queue(store, exist_ok=True)
    make_queue(store, exist_ok=True, message_expiry=3600, attributes=["amount"])
    make_queue(store, exist_ok=True, retry="Retry(attempts=3)")
    others = {"message_expiry": "2h", "sweep_after": 1200, "dedup": ["amount"]}
    with pytest.warns(UserWarning, match="keeps") as told:
        kept = make_queue(store, exist_ok=True, **others)

    (warning,) = told
    assert str(warning.message) == (
        "queue 'orders' exists already and keeps message_expiry=3600.0, dedup=(), not "
        "message_expiry='2h', dedup=['amount']; to change the queue, call its "
        "admin.change_settings(message_expiry='2h', dedup=['amount'])"
    )
    assert kept.info == first.info
    assert store.queue("orders").info == first.info
    # It names the line of the caller.
    with pytest.warns(UserWarning, match="keeps compression=None, not compression='lz4'") as told:
        store.create_queue("orders", ORDERS, shards=1, exist_ok=True, compression="lz4")
    assert told[0].filename == __file__


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"shards": 2}, "shards 1, not 2"),
        ({"key": "customer"}, "key none, not customer"),
        ({"schema": pa.schema([("a", pa.int64())])}, "columns"),
        ({"schema": ORDERS.remove(2)}, "columns"),
    ],
)
def test_a_queue_of_another_shape_is_refused(store, other, what):
    first = make_queue(store)
    before = dump(store)

    with pytest.raises(QueueExists, match="queue 'orders' exists already"):
        make_queue(store)
    assert make_queue(store, exist_ok=True).info == first.info
    with pytest.raises(QueueExists) as refusal:
        make_queue(store, exist_ok=True, **other)
    assert what in str(refusal.value)
    assert dump(store) == before


def test_a_name_that_a_drop_frees_while_a_queue_is_created_is_taken(store, monkeypatch):
    find, dropped = queue_changes.find, [NoSuchQueue("dropped since its name was taken")]

    def finds(connection, name):
        if dropped:
            raise dropped.pop()
        return find(connection, name)

    monkeypatch.setattr(queue_changes, "find", finds)

    assert make_queue(store).load(orders(2)).to_pylist()


@pytest.mark.parametrize("exist_ok", [True, False])
def test_of_many_that_create_a_queue_at_once_one_does(store, exist_ok):
    outcomes = []
    barrier = threading.Barrier(6)

    def create():
        barrier.wait()
        try:
            outcomes.append(make_queue(store, exist_ok=exist_ok).info.id)
        except QueueExists:
            outcomes.append(None)

    all_at_once(*[create] * 6)

    made = [outcome for outcome in outcomes if outcome is not None]
    assert len(outcomes) == 6
    assert len(set(made)) == 1
    assert len(made) == (6 if exist_ok else 1)
    assert store.view("shards").num_rows == 2


@pytest.mark.parametrize("name", ["../x", "'; drop table queues; --", None])
def test_a_name_that_could_do_harm_is_refused_everywhere(store, name):
    before = dump(store)
    for call in (lambda: make_queue(store, name), lambda: store.queue(name)):
        with pytest.raises(BadName) as refusal:
            call()
        assert repr(name) in str(refusal.value)
    assert dump(store) == before


def test_an_unknown_queue_is_refused_with_the_nearest_name(store):
    with pytest.raises(NoSuchQueue, match="no queue 'orders'; it has no queues yet"):
        store.queue("orders")
    make_queue(store, "orders")
    make_queue(store, "payments")

    with pytest.raises(NoSuchQueue, match="'ordesr'; did you mean 'orders'"):
        store.queue("ordesr")
    with pytest.raises(NoSuchQueue, match=r"'zebra'\. Queues: orders, payments"):
        store.queue("zebra")
    for number in range(20):
        make_queue(store, f"shop-{number}")
    with pytest.raises(NoSuchQueue, match=r"'shop-77'; did .* and 17 more") as refused:
        store.queue("shop-77")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"key": "custmer"}, SchemaMismatch, "queue 'orders' has no column 'custmer'; did you"),
        ({"key": ["n"]}, SchemaMismatch, "key=['n']: queue 'orders' has no column"),
        ({"key": 5}, SchemaMismatch, "key=5: queue 'orders' has no column"),
        ({"key": "amount"}, SchemaMismatch, "key='amount': a column of type double cannot"),
        ({"shards": 0}, BadOption, "shards=0"),
        ({"concurency": 3}, BadOption, "unknown setting 'concurency'; did you mean 'concurrency'"),
        ({"attributes": ["amout"]}, BadOption, "attributes: the queue has no column 'amout'"),
        ({"schema": pa.schema([("a", pa.uint64())])}, SchemaMismatch, "column 'a'"),
        ({"schema": pa.schema([("_shard", pa.int8())])}, BadName, "'_shard' is reserved"),
        ({"schema": {"a": "int"}}, SchemaMismatch, "not dict"),
    ],
)
def test_a_queue_that_makes_no_sense_is_not_made(store, wrong, error, message):
    other = make_queue(store, "other")
    before = dump(store)

    with pytest.raises(error) as refusal:
        make_queue(store, **wrong)
    assert message in str(refusal.value)
    if error is BadOption and "shards" not in wrong:
        with pytest.raises(BadOption) as refusal:
            other.admin.change_settings(**wrong)
        assert message in str(refusal.value)
    assert dump(store) == before


def test_changing_one_setting_keeps_what_another_process_has_changed(store):
    queue, other = make_queue(store), store.queue("orders")
    assert queue.admin.change_settings(concurrency=3).concurrency == 3
    assert other.info.settings == QueueSettings()
    other.admin.change_settings(sweep_after=5.0)
    changed = QueueSettings(concurrency=3, sweep_after=5.0)
    assert queue.refresh().info.settings == other.info.settings == changed


def test_concurrency_is_scaled_within_its_bounds(store):
    queue = make_queue(store, concurrency=4)

    assert queue.admin.scale(5) == 9
    assert queue.admin.scale(-1) == 8
    assert queue.admin.scale(1000) == 100
    assert queue.admin.change_settings(concurrency=101).concurrency == 100
    assert make_queue(store, "others", concurrency=101).info.settings.concurrency == 100
    assert queue.admin.scale(-1000) == 0
    assert store.queue("orders").info.settings.concurrency == 0
    with pytest.raises(BadOption, match=r"by=1\.5"):
        queue.admin.scale(1.5)


def test_of_those_who_scale_at_once_all_count(store):
    queue = make_queue(store, concurrency=10)

    def scale(_):
        return store.queue("orders").admin.scale(1)

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(scale, range(20))) == list(range(11, 31))

    assert queue.refresh().info.settings.concurrency == 30
