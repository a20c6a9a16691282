"""A storage that is unmounted while messages wait: no message is lost, used up or forgotten."""

from __future__ import annotations

import logging

import pytest

from queue_core import ConsumerPool
from queue_core.errors import CatalogUnavailable, DamagedCatalog, StorageUnavailable
from queue_core.pool import browsing, outage, worker
from queue_core.queue import opened
from tests.contract.pools import Recorder
from tests.factories import make_filled, numbers_of, orders
from tests.storages import mount_again, mount_away
from tests.waiting import PATIENCE, until


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Pools try again soon."""
    for module in (outage, worker):
        monkeypatch.setattr(module, "RETRY_SECONDS", 0.2)


@pytest.fixture
def queue(store, in_files):
    """A queue with ten messages in files, which are abandoned after two firings."""
    return make_filled(store, 10, shards=2, max_deliveries=2)


@pytest.fixture
def troubles(caplog):
    """The messages that pools have logged about their troubles."""
    caplog.set_level(logging.INFO, "queue_core.pool.outage")
    return lambda: [r.message for r in caplog.records if r.name == "queue_core.pool.outage"]


@pytest.mark.parametrize("count", [3, "all"], ids=["some", "all"])
def test_a_firing_that_cannot_read_leaves_no_trace(store, queue, count):
    store.consumer()
    mount_away(store)
    before = store.view("slices").to_pylist(), store.view("shards").to_pylist()
    for _ in range(3):
        with pytest.raises(StorageUnavailable):
            queue.fire(count)
    after = store.view("slices").to_pylist(), store.view("shards").to_pylist()
    mount_again(store)

    assert sum(row["messages"] for row in after[0]) == 10
    assert {row["deliveries"] for row in after[0]} == {0}
    assert {row["fired_at"] for row in after[0]} == {None}
    for shard in (*before[1], *after[1]):
        # A view for people: the highest place that was ever fired.
        del shard["fire_pointer"]
    assert after[1] == before[1]
    assert queue.sweep(older_than=0) == 0
    assert sorted(numbers_of(queue.fire("all").messages)) == list(range(10))


def test_what_can_neither_be_read_nor_put_back_is_put_back_by_the_next_firing(
    store, queue, monkeypatch
):
    def fails(*_):
        raise CatalogUnavailable("the catalog is away")

    mount_away(store)
    with monkeypatch.context() as patched:
        patched.setattr(opened, "recover_ticket", fails)
        with pytest.raises(CatalogUnavailable):
            queue.fire("all")
    mount_again(store)

    assert sorted(numbers_of(queue.fire("all").messages)) == list(range(10))


@pytest.mark.parametrize("error", [KeyboardInterrupt, DamagedCatalog, MemoryError])
def test_what_could_not_be_planned_is_put_back_by_the_next_firing(store, queue, monkeypatch, error):
    def fails(*_):
        raise error

    with monkeypatch.context() as patched:
        # A firing of many slices plans them once it is committed.
        patched.setattr(opened, "plan_firing", fails)
        with pytest.raises(error):
            queue.fire("all")

    assert sorted(numbers_of(queue.fire("all").messages)) == list(range(10))
    assert set(store.view("slices").column("deliveries").to_pylist()) == {1}


def test_a_later_firing_that_cannot_read_is_no_delivery_either(store, queue):
    queue.reload(queue.fire("all"))
    mount_away(store)
    with pytest.raises(StorageUnavailable):
        queue.fire("all")
    mount_again(store)

    assert set(store.view("slices").column("deliveries").to_pylist()) == {1}


def test_a_pool_waits_for_the_storage_and_says_so_once(store, queue, troubles):
    recorder = Recorder()
    mount_away(store)
    with ConsumerPool(store, "orders", recorder, concurrency=2, tasks=()) as pool:
        until(troubles)
        assert not pool.drain(0.8)
        assert recorder.numbers == []
        (said,) = troubles()
        assert said.startswith("queue 'orders': the pool cannot take messages")
        assert "not mounted" in said
        mount_again(store)
        assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(10))
    (over,) = troubles()[1:]
    assert over.startswith("queue 'orders': the pool takes messages again after ")


def test_a_browser_shows_the_messages_that_it_could_not_read(store, queue):
    recorder = Recorder()
    mount_away(store)
    with ConsumerPool(store, "orders", recorder, browse=True) as pool:
        assert not pool.drain(0.5)
        mount_again(store)
        assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(10))


def test_a_browser_shows_the_messages_that_it_could_not_plan(store, queue, monkeypatch):
    plan, failed = browsing.browse, []

    def fails_once(*given):
        if not failed:
            failed.append(given)
            raise DamagedCatalog
        return plan(*given)

    monkeypatch.setattr(browsing, "browse", fails_once)
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, browse=True) as pool:
        until(lambda: failed)
        assert pool.drain(PATIENCE)

    assert recorder.numbers == list(range(10))


@pytest.mark.spoiled
def test_a_pool_drains_the_messages_beside_a_damaged_segment(store, queue, troubles):
    queue.load(orders(10, 10))
    store.storage.remove(sorted(store.storage.list())[0])
    recorder = Recorder()
    with ConsumerPool(store, "orders", recorder, concurrency=1, tasks=()) as pool:
        assert pool.drain(PATIENCE)

    assert len(recorder.numbers) == 10
    assert len(troubles()) == 2
