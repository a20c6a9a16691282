"""Connections that are cut in the middle of a verb, and threads that want more than there are."""

import threading
from contextlib import ExitStack

import pytest
from sqlalchemy import NullPool, create_engine, text

from queue_core import ConsumerPool, Store, faults
from queue_core.errors import CatalogUnavailable
from tests.books import audit, leftover_files
from tests.contract.pools import eventually
from tests.factories import make_queue, orders
from tests.processes import actors
from tests.processes.actors import Actor

#: Messages that become a file.
MANY = 4_000
CUT = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'one'")


@pytest.fixture
def one(address, store, monkeypatch):
    if store.catalog.file is not None:
        pytest.skip("SQLite has no connections that could be cut")
    monkeypatch.setattr(faults, "point", actors.point)
    actor = Actor("one", address)
    yield actor
    actor.close()


def cut(store):
    with store.catalog.engine.connect() as connection:
        connection.execute(CUT)


def test_a_load_that_is_cut_before_its_commit_does_not_claim_to_know(store, one):
    """Its file stays: had the commit been done, it would be needed."""
    queue = make_queue(store)
    one.start(lambda store: store.queue("orders").load(orders(MANY)), "load.before_commit")
    cut(store)

    with pytest.raises(CatalogUnavailable, match="the last change may have been made"):
        one.finish()
    assert queue.browse().num_rows == 0
    assert len(leftover_files(store)) == 1

    one.start(lambda store: len(store.queue("orders").load(orders(MANY))))
    assert one.finish() == MANY
    assert len(audit(store).ids()) == MANY


def test_a_firing_that_is_cut_in_between_has_changed_nothing(store, one):
    queue = make_queue(store)
    queue.load(orders(10))
    one.start(lambda store: store.queue("orders").fire("all"), "UPDATE turns")
    cut(store)

    with pytest.raises(CatalogUnavailable, match="nothing was changed"):
        one.finish()
    assert len(queue.fire("all")) == 10


def test_many_threads_share_a_store(store):
    queue = make_queue(store, shards=8)
    errors = []

    def work():
        try:
            for _ in range(3):
                queue.load(orders(2))
                queue.delete(queue.fire(1))
        except Exception as error:  # noqa: BLE001 - told below
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    books = audit(store)
    assert (books.deleted, len(books.ids())) == (120, 120)


def test_a_thread_that_gets_no_connection_is_told_so(store):
    make_queue(store)
    # The pool has no public way to wait for less than its 30 seconds.
    store.catalog.engine.pool._timeout = 0.05

    with pytest.raises(CatalogUnavailable, match="all connections of this process"):
        read_within_reads(store, 100)
    assert store.queues() == ["orders"]


@pytest.fixture
def sessions(store):
    """Counts the sessions of the server for the store, but for the one that asks."""
    if store.catalog.file is not None:
        pytest.skip("SQLite has no server that would keep its session")
    asking = create_engine(store.catalog.url, poolclass=NullPool)
    query = text(
        "SELECT count(*) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    def count():
        with asking.connect() as connection:
            return connection.scalar(query)

    return count


def test_stores_of_one_process_share_their_connections(store, address, sessions):
    queue = make_queue(store)
    with ExitStack() as opened:
        stores = [opened.enter_context(Store(address)) for _ in range(8)]
        for each in stores:
            each.queue("orders").load(orders(1))
        assert sessions() == 1
        # The others go on.
        stores[0].close()
        assert sessions() == 1
    assert len(queue.fire("all")) == 8
    store.close()
    eventually(lambda: sessions() == 0)


def test_threads_that_wait_share_a_connection_that_listens(store, sessions):
    queues = [make_queue(store, f"orders-{number}") for number in range(8)]
    fired = []
    threads = [
        threading.Thread(target=lambda queue=queue: fired.append(queue.fire(1, timeout=60)))
        for queue in [*queues, *queues]
    ]
    for thread in threads:
        thread.start()
    eventually(lambda: waiting(store) == 16)
    # Their transactions end. The pool keeps four of the connections, beside the one that listens.
    eventually(lambda: sessions() <= 5)

    for queue in queues:
        queue.load(orders(2))
    for thread in threads:
        thread.join(60)
    assert sorted(map(len, fired)) == [1] * 16
    eventually(lambda: sessions() <= 4)


def test_pools_of_one_process_share_a_connection_that_listens(store, address, sessions):
    queues = [make_queue(store, f"orders-{number}") for number in range(8)]
    with ExitStack() as opened:
        for queue in queues:
            own = opened.enter_context(Store(address))
            pool = ConsumerPool(own, queue.name, lambda _: True, concurrency=4)
            opened.enter_context(pool)
        for queue in queues:
            queue.load(orders(4))
        eventually(lambda: sum(map(deleted, queues)) == 32)
        eventually(lambda: sessions() <= 5)


def waiting(store):
    """The number of threads that wait in lines."""
    with store.catalog.read() as connection:
        return connection.scalar(text("SELECT count(*) FROM waiters"))


def deleted(queue):
    """The number of messages of a queue that were deleted."""
    return sum(queue.metadata()["deleted"].to_pylist())


def read_within_reads(store, depth):
    with ExitStack() as stack:
        for _ in range(depth):
            stack.enter_context(store.catalog.read())


def test_a_connection_that_comes_back_after_the_close_is_closed(store):
    if store.catalog.file is not None:
        pytest.skip("SQLite has no server that would keep its session")
    with store.catalog.read() as connection:
        late = connection.connection.driver_connection
        store.catalog.close()
    assert late.closed
    # A late thread opens another one, and leaves none to the garbage collector.
    with store.catalog.read() as connection:
        driver = connection.connection.driver_connection
        assert not driver.closed
    assert driver.closed
