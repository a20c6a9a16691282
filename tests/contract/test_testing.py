"""Help for tests of handlers, used as in a test of a user."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from queue_core import (
    BadOption,
    BadOutcome,
    CatalogUnavailable,
    ConsumerPool,
    Later,
    Retry,
    SchemaMismatch,
    batch_handler,
    constant,
)
from queue_core.consumers.presence import beat_now
from queue_core.testing import crash_at, handle, temporary, temporary_store

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS = [{"id": number, "text": f"text {number}"} for number in range(4)]


@pytest.fixture
def own():
    with temporary_store() as opened:
        yield opened


def filled(store, name="orders", **settings):
    queue = store.create_queue(name, SCHEMA, shards=1, **settings)
    queue.load(ROWS)
    return queue


def decide(message):
    if message["id"] == 1:
        raise ValueError("declined")
    if message["id"] == 2:
        raise Later(30)
    return message["id"] == 0


def test_outcomes_are_returned_and_settled_on_each_catalog(store):
    queue = filled(store)

    handled = handle(queue, decide)

    handled.assert_deleted(1)
    handled.assert_sidelined(1, kind="exception", reason="declined")
    handled.assert_sidelined(1, kind="rejected")
    handled.assert_reloaded(1)
    assert handled.messages.column("id").to_pylist() == [0, 1, 2, 3]
    assert handled.reloaded.column("delay").to_pylist() == [30.0]
    assert queue.browse().num_rows == 0
    assert sorted(queue.browse(magazine="sideline").column("id").to_pylist()) == [1, 2, 3]
    assert queue.failures().num_rows == 2


def test_loads_of_the_handler_are_returned_on_each_catalog(store):
    queue, bills = filled(store), store.create_queue("bills", SCHEMA)
    bills.load(ROWS[3:])

    def bill(message):
        bills.load([{"id": message["id"], "text": "bill"}])
        return True

    handled = handle(queue, bill, max_messages=2)

    handled.assert_deleted(2)
    handled.assert_loaded("bills", [{"id": 1, "text": "bill"}, {"id": 0, "text": "bill"}])
    assert set(handled.loaded) == {"bills"}


def test_rows_that_the_handler_returns_are_loaded_with_the_settlement(own):
    queue, results = filled(own), own.create_queue("results", SCHEMA)
    rows = [False, {"id": 1, "text": "done"}, {"id": "two"}, {"id": 3, "text": "done"}]

    handled = handle(queue, lambda message: rows[message["id"]], output="results", batch=3)

    assert handled.deleted.column("id").to_pylist() == [1, 3]
    handled.assert_sidelined(1, kind="rejected")
    handled.assert_sidelined(1, kind="exception")
    handled.assert_loaded("results", [rows[1], rows[3]])
    assert results.browse().num_rows == queue.failures().num_rows == 2
    assert handle(queue, bool, output="results").messages.num_rows == 0


def test_batch_handlers_get_batches(own):
    sizes = []

    @batch_handler
    def count(messages):
        sizes.append(messages.num_rows)
        return [True] * messages.num_rows

    handle(filled(own), count, batch=3).assert_deleted(4)
    assert sizes == [3, 1]


def test_handlers_get_objects(own):
    @dataclass
    class Order:
        id: int | None
        text: str | None

    handled = handle(filled(own), lambda order: order.id > 1, message_type=Order)

    assert handled.deleted.column("id").to_pylist() == [2, 3]


def test_columns_with_names_of_outcomes_give_way_to_them(own):
    queue = own.create_queue("events", pa.schema([("kind", pa.string()), ("reason", pa.string())]))
    queue.load([{"kind": "click", "reason": "none"}])

    handled = handle(queue, lambda event: event["kind"] != "click")

    handled.assert_sidelined(1, kind="rejected")
    assert handled.messages.column("kind").to_pylist() == ["rejected"]
    assert str(handled).endswith("1 sidelined as rejected: no reason")


def test_a_handler_that_returns_nothing_is_refused(own):
    queue = filled(own)

    with pytest.raises(BadOutcome, match="returned None"):
        handle(queue, lambda _: None)
    assert queue.browse(magazine="sideline").num_rows == 1
    assert queue.peek(10).num_rows == 3


def test_arguments_that_do_not_fit_are_refused_before_the_first_call(own):
    queue = filled(own)

    with pytest.raises(BadOption, match="payload='id' is int64"):
        handle(queue, bool, payload="id")
    with pytest.raises(SchemaMismatch, match="no column 'ids'"):
        handle(queue, bool, columns=["ids"])
    with pytest.raises(BadOption, match="batch=0"):
        handle(queue, bool, batch=0)
    assert queue.peek(10).num_rows == 4


def test_retries_come_when_time_passes_and_then_are_dead(own):
    queue = filled(own, retry=Retry(attempts=2, backoff=constant(60)))

    handle(queue, lambda _: False, max_messages=1)
    own.pass_time(50)
    assert queue.peek(10).num_rows == 3
    own.pass_time(11)
    assert queue.peek(10).num_rows == 4
    handle(queue, lambda message: message["id"] > 0).assert_sidelined(1)
    own.pass_time(1e6)
    handle(queue, lambda _: True).assert_deleted(0)
    assert own.view("sideline", "orders").column("dead").to_pylist() == [True]


def test_delays_and_expiry_go_by_the_moved_clock(own):
    queue = own.create_queue("orders", SCHEMA)
    queue.load(ROWS[:1], hold=3600)
    queue.load(ROWS[1:2], ttl=7200)

    assert queue.fire(max_messages=5).messages.column("id").to_pylist() == [1]
    own.pass_time(3601)
    assert queue.fire(max_messages=5).messages.column("id").to_pylist() == [0]


def test_messages_of_a_crash_are_swept_when_time_passes(own):
    queue = filled(own)

    with crash_at("settle.before_commit"):
        handle(queue, lambda _: True)
    assert own.view("queues").column("in_flight").to_pylist() == [4]
    own.pass_time(1201)

    assert queue.browse(magazine="sideline").num_rows == 4


def test_no_message_in_living_hands_is_swept_when_time_passes(own):
    queue = filled(own)
    kept = queue.get_and_keep()
    busy, go_on = threading.Event(), threading.Event()

    def wait(_):
        busy.set()
        return go_on.wait(60)

    with ConsumerPool(own, "orders", wait, concurrency=1) as pool:
        assert busy.wait(60)
        own.pass_time("30m")
        assert queue.browse(magazine="sideline").num_rows == 0
        go_on.set()
        assert pool.drain(60)

    assert pool.counts == {"deleted": 3}
    queue.delete(kept)
    assert own.view("queues").column("in_flight").to_pylist() == [0]


def test_hands_live_by_the_moved_clock_before_any_sweep_believes_it(own, monkeypatch):
    queue = filled(own)
    busy, go_on = threading.Event(), threading.Event()

    def wait(_):
        busy.set()
        return go_on.wait(60)

    def after_a_sweep(catalog):
        with suppress(CatalogUnavailable):
            queue.sweep()
        beat_now(catalog)

    monkeypatch.setattr(temporary, "beat_now", after_a_sweep)
    queue.sweep()
    with ConsumerPool(own, "orders", wait, concurrency=1, tasks=[]) as pool:
        assert busy.wait(60)
        own.pass_time("30m")
        go_on.set()
        assert pool.drain(60)

    assert pool.counts == {"deleted": 4}


def test_the_folder_is_removed():
    with temporary_store() as opened:
        folder = Path(opened.address.storage)
        filled(opened)
        assert folder.is_dir()

    assert not folder.exists()


def test_a_temporary_store_is_in_order_after_time_passed(own):
    filled(own)
    own.pass_time(1e6)

    assert own.admin.fsck(deep=True).num_rows == 0
