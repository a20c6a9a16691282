"""The time limit of a load also limits its waits for locks of other transactions."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from queue_core import Store
from queue_core.catalog import database, queue_changes
from queue_core.errors import CatalogUnavailable, QueueDeactivated, QueueFull
from tests.books import audit
from tests.contract.callers import Seller
from tests.factories import main, make_queue, numbers_of, orders

pytestmark = pytest.mark.each_catalog

#: Less than the minute for which a load without a limit waits, and more than a busy machine needs.
PATIENCE = 40.0


@pytest.fixture(autouse=True)
def _brief(monkeypatch):
    """A load that may not wait gives up sooner; the others here find the locks free."""
    monkeypatch.setattr(database, "LEAST_SECONDS", 0.2)


@contextmanager
def locked(store, statement):
    """Somebody else keeps rows locked in a transaction."""
    parallel = store.catalog.engine.dialect.name == "postgresql"
    with Seller(store) as caller, caller.connected() as connection:
        if parallel:
            caller.run(connection, statement)
        else:
            connection.connection.driver_connection.execute("BEGIN IMMEDIATE")
        yield
        connection.rollback()


@pytest.mark.parametrize(
    ("settings", "statement", "timeout"),
    [
        ({}, "SELECT * FROM shards FOR UPDATE", 0),
        ({}, "SELECT * FROM shards FOR UPDATE", "400ms"),
        ({}, "SELECT * FROM queues FOR UPDATE", 0),
        ({"max_size": 100}, "LOCK TABLE segments", 0),
        ({"max_size": 100}, "SELECT * FROM queues FOR UPDATE", "400ms"),
        ({"policy": "latest", "key": "number"}, "SELECT * FROM shards FOR UPDATE", 0),
        ({"policy": "latest", "key": "number"}, "LOCK TABLE segments", "400ms"),
    ],
)
def test_a_load_does_not_wait_for_longer_than_it_may(store, statement, timeout, settings):
    queue, other = make_queue(store, **settings), make_queue(store, "other")
    with ThreadPoolExecutor(1) as threads, locked(store, statement):
        load = threads.submit(queue.load, orders(3), timeout)
        with pytest.raises(CatalogUnavailable, match=r"is busy.*changed; try again later"):
            load.result(PATIENCE)
    assert queue.browse().num_rows == 0
    other.load(orders(1), timeout=0)
    queue.load(orders(3), timeout=0)
    assert numbers_of(queue.browse()) == [0, 1, 2]


@pytest.mark.parametrize("timeout", [0, 0.5])
def test_a_load_of_a_rendezvous_does_not_wait_for_longer_either(store, timeout):
    queue = make_queue(store, max_size=0)
    statement = "SELECT * FROM shards FOR UPDATE"
    with ThreadPoolExecutor(1) as threads, locked(store, statement):
        load = threads.submit(queue.load, orders(3), timeout)
        with pytest.raises((CatalogUnavailable, QueueFull)):
            load.result(PATIENCE)
    assert queue.browse().num_rows == 0


def test_a_limit_does_not_outlast_its_load(store):
    queue = make_queue(store)
    for _ in range(20):
        queue.load(orders(1), timeout=0)
    with ThreadPoolExecutor(1) as threads:
        with locked(store, "SELECT * FROM shards FOR UPDATE"):
            # Longer than any limit of before.
            load = threads.submit(queue.load, orders(1))
            with pytest.raises(TimeoutError):
                load.result(0.8)
        assert len(load.result(PATIENCE)) == 1


@contextmanager
def changing(store, change):
    """Another process has changed something, and commits soon after the block has begun."""
    changed, may_commit = threading.Event(), threading.Event()

    def work(connection):
        change(connection)
        changed.set()
        may_commit.wait(PATIENCE)

    with Store(store.address) as other, ThreadPoolExecutor(1) as threads:
        writing = threads.submit(other.catalog.write, work)
        assert changed.wait(PATIENCE)
        commit = threading.Timer(0.3, may_commit.set)
        commit.start()
        yield
        commit.join()
        writing.result(PATIENCE)


@pytest.mark.parametrize("shards", [1, 4])
def test_a_load_follows_the_settings_that_are_changed_while_it_waits(store, shards):
    queue = make_queue(store, shards=shards)
    queue.load(orders(2))

    def bound(connection):
        queue_changes.change_settings(connection, queue.info, {"max_size": 3})

    with changing(store, bound), pytest.raises(QueueFull):
        queue.load(orders(8, 2), timeout=1)
    assert main(queue) == [0, 1]
    audit(store)


@pytest.mark.parametrize("shards", [1, 4])
def test_a_load_goes_on_after_a_change_that_does_not_concern_it(store, shards):
    queue = make_queue(store, shards=shards)
    queue.load(orders(2))
    with changing(store, lambda connection: queue_changes.pause(connection, queue.info)):
        queue.load(orders(8, 2))
    assert main(queue) == list(range(10))


@pytest.mark.parametrize("shards", [1, 4])
def test_a_load_is_refused_by_a_queue_that_is_deactivated_while_it_waits(store, shards):
    queue = make_queue(store, shards=shards)
    with (
        changing(store, lambda connection: queue_changes.deactivate(connection, queue.info)),
        pytest.raises(QueueDeactivated),
    ):
        queue.load(orders(8))
    assert queue.browse().num_rows == 0
