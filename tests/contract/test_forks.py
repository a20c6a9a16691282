"""Forked processes: a child uses the store as its own, or is refused before anything happens."""

import copy
import os
import pickle
import signal
import threading

import pytest
from sqlalchemy.exc import StatementError

from queue_core import ConsumerPool, ConsumerTarget, Invalid, Store
from queue_core.values.histogram import Measured
from tests.books import leftover_files
from tests.factories import main, make_filled, make_queue, orders
from tests.forks import in_a_fork
from tests.storages import ONLY_POSTGRESQL, ONLY_SQLITE
from tests.waiting import PATIENCE, until

pytestmark = [
    pytest.mark.each_catalog,
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]

REFUSED = "spawn or forkserver"


@pytest.fixture
def in_use(store):
    """A connection that another thread uses."""
    release, begun = threading.Event(), threading.Event()

    def use():
        with store.catalog.read():
            begun.set()
            release.wait()

    thread = threading.Thread(target=use)
    thread.start()
    begun.wait()
    yield
    release.set()
    thread.join()


@ONLY_SQLITE
def test_a_child_is_refused_before_anything_is_written(store, address, in_use):
    queue = make_filled(store, 2)

    for work in (
        lambda: queue.load(orders(1)),
        lambda: queue.fire(1),
        lambda: queue.peek(1),
        lambda: store.queue("orders"),
        lambda: Store(address),
        # A child of a child.
        lambda: in_a_fork(lambda: Store(address).queue("orders").load(orders(1))),
        lambda: Store(address, create=False).queue("orders").load(orders(1)),
    ):
        with pytest.raises(Invalid, match=REFUSED):
            in_a_fork(work)

    assert leftover_files(store) == set()
    assert main(queue) == [0, 1]
    queue.load(orders(1, first=2))
    assert main(queue) == [0, 1, 2]


def test_the_children_of_a_child_that_may_use_the_store(store):
    queue = make_queue(store)

    def work():
        queue.load(orders(1))
        in_a_fork(lambda: len(queue.load(orders(1, first=1))))
        return len(queue.load(orders(1, first=2)))

    assert in_a_fork(work) == 1
    queue.load(orders(1, first=3))
    assert main(queue) == [0, 1, 2, 3]


@ONLY_POSTGRESQL
def test_a_child_on_postgresql_may_always_use_the_store(store, address, in_use):
    queue = make_queue(store)

    in_a_fork(lambda: len(queue.load(orders(1))))
    in_a_fork(lambda: len(Store(address).queue("orders").load(orders(1, first=1))))

    assert main(queue) == [0, 1]


def test_a_child_may_use_another_store(store, in_use, tmp_path):
    def work():
        with Store.open(tmp_path / "another") as another:
            return len(make_queue(another).load(orders(2)))

    assert in_a_fork(work) == 2


def test_a_handler_of_a_pool_that_forks(store, address):
    make_queue(store).load(orders(2))
    copied = make_queue(store, "copied")
    said = []

    def load(number):
        with Store(address) as opened:
            return len(opened.queue("copied").load(orders(1, first=number)))

    def handle(row):
        try:
            said.append(in_a_fork(lambda: load(row["number"])))
        except Invalid as error:
            said.append(REFUSED in str(error))
        return True

    with ConsumerPool(store, "orders", handle, concurrency=1, tasks=[]) as pool:
        pool.drain()

    assert said == [True, True]
    assert main(copied) == ([0, 1] if store.catalog.file is None else [])


@ONLY_POSTGRESQL
def test_a_pool_of_a_child_learns_of_messages_beside_a_pool_of_its_parent(store, address):
    make_queue(store)
    handled = []

    def handle(row):
        handled.append(row["number"])
        return True

    def work():
        with (
            Store(address) as own,
            ConsumerPool(own, "orders", handle, concurrency=1, tasks=[]),
        ):
            # Only a thread of the pool can see what another process loads.
            in_a_fork(lambda: len(Store(address).queue("orders").load(orders(1))))
            until(lambda: handled == [0])
        return handled

    with ConsumerPool(store, "orders", handle, concurrency=1, tasks=[], selector="number < 0"):
        assert in_a_fork(work) == [0]


@ONLY_POSTGRESQL
def test_a_child_that_stops_a_pool_of_its_parent_takes_nothing_from_it(store):
    """As the end of a server's worker may, that was forked from the process with the pool."""
    make_queue(store).load(orders(1))
    entered, goes_on, handled = threading.Event(), threading.Event(), []

    def handle(row):
        handled.append(row["number"])
        entered.set()
        return goes_on.wait(PATIENCE)

    with ConsumerPool(store, "orders", handle, concurrency=1, tasks=[]) as pool:
        assert entered.wait(PATIENCE)
        in_a_fork(pool.stop)
        goes_on.set()
        assert pool.drain(PATIENCE)
    assert (pool.counts, handled) == ({"deleted": 1}, [0])


@ONLY_POSTGRESQL
def test_a_child_that_stops_a_target_of_its_parent_takes_nothing_from_it(store):
    queue = make_filled(store, 1)
    with ConsumerTarget(store, "orders", lambda: None) as target:
        firing = target.consumers[0].pull()
        in_a_fork(target.stop)
        assert queue.delete(firing) == 1


def test_a_child_logs_a_failure_like_one_that_its_parent_has_logged(store, caplog):
    caplog.set_level("INFO", "queue_core.handling.failure_log")
    queue = make_filled(store, 2)

    def logged():
        caplog.clear()
        queue.sideline(queue.fire(1), "no funds")
        return [record.getMessage() for record in caplog.records if "failed" in record.msg]

    assert len(logged()) == 1
    assert len(in_a_fork(logged)) == 1


@pytest.mark.parametrize("how", ["commit", "roll back", "statement"])
@ONLY_SQLITE
def test_a_child_leaves_the_transaction_of_its_parent_alone(store, how):
    queue = make_queue(store)

    def in_child(connection):
        if how == "statement":
            connection.exec_driver_sql("SELECT 1")
        elif how == "commit":
            connection.commit()
        else:
            connection.rollback()
            connection.close()

    def work(connection):
        connection.exec_driver_sql("CREATE TABLE mine (number INTEGER)")
        if how == "roll back":
            in_a_fork(lambda: in_child(connection))
        else:
            # SQLAlchemy wraps the error of a statement.
            with pytest.raises((Invalid, StatementError), match=REFUSED):
                in_a_fork(lambda: in_child(connection))
        connection.exec_driver_sql("INSERT INTO mine VALUES (1)")

    store.catalog.write(work)

    with store.catalog.read() as connection:
        assert connection.exec_driver_sql("SELECT number FROM mine").scalar() == 1
    queue.load(orders(1))
    assert main(queue) == [0]


def test_a_fork_keeps_the_store_of_the_parent_usable(store):
    queue = make_queue(store)
    for number in range(3):
        queue.load(orders(1, first=number))
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)

    assert main(queue) == [0, 1, 2]


def test_a_child_measures_although_another_thread_did_at_the_fork(store):
    timings = store.catalog.timings

    def work():
        # It ends rather than wait for ever.
        signal.alarm(30)
        store.catalog.timings.add(1, Measured.of([0.1]), "deleted")

    # The other thread is at a moment that no call of the tests could hit.
    with timings._lock:
        in_a_fork(work)
    assert store.catalog.timings is timings


@pytest.mark.parametrize("duplicate", [pickle.dumps, copy.deepcopy, copy.copy])
def test_stores_and_queues_are_neither_pickled_nor_copied(store, duplicate):
    queue = make_queue(store)

    with pytest.raises(Invalid, match=r"a store can be .*: .* open it there with Store\.open"):
        duplicate(store)
    with pytest.raises(Invalid, match=r"queue 'orders' can be .* Store\.open and Store\.queue"):
        duplicate(queue)
