"""Connections that are cut in the middle of a verb, and threads that want more than there are."""

import threading
from contextlib import ExitStack

import pytest
from sqlalchemy import text

from queue_core import faults
from queue_core.errors import CatalogUnavailable
from tests.books import audit, leftover_files
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


def read_within_reads(store, depth):
    with ExitStack() as stack:
        for _ in range(depth):
            stack.enter_context(store.catalog.read())


def test_a_connection_that_comes_back_after_the_close_is_closed(store):
    if store.catalog.file is not None:
        pytest.skip("SQLite has no server that would keep its session")
    with store.catalog.read() as connection:
        late = connection.connection.driver_connection
        store.close()
    assert late.closed
    # The store opens others, and keeps them.
    with store.catalog.read() as connection:
        driver = connection.connection.driver_connection
    assert not driver.closed
