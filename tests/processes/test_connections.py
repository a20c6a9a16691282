"""Connections that are cut in the middle of a verb, and threads that want more than there are."""

import threading
import time
from contextlib import ExitStack, contextmanager, suppress

import pytest
from sqlalchemy import NullPool, StaticPool, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError

from queue_core import ConsumerPool, Store
from queue_core.catalog import connections
from queue_core.catalog.databases import idle_connections
from queue_core.catalog.databases.postgresql import Postgresql
from queue_core.errors import CatalogUnavailable
from queue_core.support import faults
from queue_core.values.address import Address
from queue_core.verbs import fire
from tests import servers
from tests.books import audit, leftover_files
from tests.factories import make_filled, make_queue, orders
from tests.processes import actors
from tests.processes.actors import Actor
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import PATIENCE, Caller, all_at_once, until, waits

pytestmark = pytest.mark.each_catalog

#: Messages that become a file.
MANY = 4_000
CUT = text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'one'")


@pytest.fixture
def one(address, store, monkeypatch):
    monkeypatch.setattr(faults, "point", actors.point)
    actor = Actor("one", address)
    yield actor
    actor.close()


def cut(store):
    with store.catalog.engine.connect() as connection:
        connection.execute(CUT)


@ONLY_POSTGRESQL
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


@ONLY_POSTGRESQL
def test_a_firing_that_is_cut_in_between_has_changed_nothing(store, one):
    queue = make_filled(store, 10)
    one.start(lambda store: store.queue("orders").fire("all"), "UPDATE shard_locks")
    cut(store)

    with pytest.raises(CatalogUnavailable, match="nothing was changed"):
        one.finish()
    assert len(queue.fire("all")) == 10


def test_many_threads_share_a_store(store, monkeypatch):
    # So many threads may keep the one that has a lock from its next statement for long.
    monkeypatch.setattr(fire, "WAIT_SECONDS", PATIENCE)
    queue = make_queue(store, shards=8)

    def work():
        for _ in range(3):
            queue.load(orders(2))
            queue.delete(queue.fire(1))

    all_at_once(*[work] * 40)

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
    with counting(store.catalog.url) as count:
        yield count


@contextmanager
def counting(url):
    """A function that counts the other sessions of a database."""
    # It keeps its connection: the server may have no other one later.
    asking = create_engine(url, isolation_level="AUTOCOMMIT", poolclass=StaticPool)
    # The server has processes of its own there at times, such as one that vacuums.
    query = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
        "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )

    def count():
        with asking.connect() as connection:
            return connection.scalar(query)

    count()
    try:
        yield count
    finally:
        asking.dispose()


@ONLY_POSTGRESQL
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
    until(lambda: sessions() == 0)


@ONLY_POSTGRESQL
def test_threads_that_wait_share_a_connection_that_listens(store, sessions):
    queues = [make_queue(store, f"orders-{number}") for number in range(8)]
    callers = [
        Caller(lambda queue=queue: queue.fire(1, timeout=60)) for queue in [*queues, *queues]
    ]
    waits(store, 16, "fire")
    # Their transactions end. The pool keeps four of the connections, beside the one that listens.
    until(lambda: sessions() <= 5)

    for queue in queues:
        queue.load(orders(2))
    assert [len(caller.done()) for caller in callers] == [1] * 16
    until(lambda: sessions() <= 4)


@ONLY_POSTGRESQL
def test_pools_of_one_process_share_a_connection_that_listens(store, address, sessions):
    queues = [make_queue(store, f"orders-{number}") for number in range(8)]
    with ExitStack() as opened:
        for queue in queues:
            own = opened.enter_context(Store(address))
            pool = ConsumerPool(own, queue.name, lambda _: True, concurrency=4)
            opened.enter_context(pool)
        for queue in queues:
            queue.load(orders(4))
        until(lambda: sum(map(deleted, queues)) == 32)
        until(lambda: sessions() <= 5)


def deleted(queue):
    """The number of messages of a queue that were deleted."""
    return sum(queue.metadata()["deleted"].to_pylist())


def read_within_reads(store, depth):
    with ExitStack() as stack:
        for _ in range(depth):
            stack.enter_context(store.catalog.read())


@ONLY_POSTGRESQL
def test_a_connection_that_comes_back_after_the_close_is_closed(store):
    with store.catalog.read() as connection:
        late = connection.connection.driver_connection
        store.catalog.close()
    assert late.closed
    # A late thread opens another one, and leaves none to the garbage collector.
    with store.catalog.read() as connection:
        driver = connection.connection.driver_connection
        assert not driver.closed
    assert driver.closed


@ONLY_POSTGRESQL
def test_an_idle_process_closes_all_connections_but_one(store, sessions, monkeypatch):
    monkeypatch.setattr(idle_connections, "IDLE_SECONDS", 0.4)
    queue = make_queue(store)
    with ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(store.catalog.read())
        assert sessions() == 4
    until(lambda: sessions() == 1)
    # They are opened again when they are needed.
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(store.catalog.read())
        assert sessions() == 3
    queue.load(orders(1))
    until(lambda: sessions() == 1)
    assert len(queue.fire()) == 1


@ONLY_POSTGRESQL
def test_a_connection_that_is_used_stays_open(store, sessions, monkeypatch):
    monkeypatch.setattr(idle_connections, "IDLE_SECONDS", 0.2)
    with ExitStack() as stack:
        drivers = [
            stack.enter_context(store.catalog.read()).connection.driver_connection for _ in range(2)
        ]
    with store.catalog.read() as connection:
        used = connection.connection.driver_connection
        until(lambda: sessions() == 1)
    assert used in drivers
    assert [driver.closed for driver in drivers if driver is not used] == [True]
    assert not used.closed


@ONLY_POSTGRESQL
def test_threads_that_return_connections_at_once_start_one_timer(store, sessions, monkeypatch):
    """On a busy machine a thread starts late, and others return connections meanwhile."""

    class Slow(threading.Timer):
        made = 0

        def start(self):
            Slow.made += 1
            time.sleep(0.1)
            super().start()

    monkeypatch.setattr(threading, "Timer", Slow)
    together = threading.Barrier(8)

    def use():
        with store.catalog.read():
            together.wait(PATIENCE)

    all_at_once(*[use] * 8)
    assert Slow.made == 1


@ONLY_POSTGRESQL
def test_an_idle_pool_keeps_two_connections(store, sessions, monkeypatch):
    monkeypatch.setattr(idle_connections, "IDLE_SECONDS", 0.4)
    queue = make_queue(store, shards=4)
    together = threading.Barrier(4)

    def handler(_):
        together.wait(PATIENCE)
        return True

    with ConsumerPool(store, "orders", handler, concurrency=4, batch=1):
        queue.load(orders(8))
        until(lambda: deleted(queue) == 8)
        # One listens.
        until(lambda: sessions() == 2)


#: The connections of the server below.
MOST = 20


@pytest.fixture(scope="module")
def small_server():
    """A server with few connections."""
    with servers.postgres(f"max_connections = {MOST}") as server:
        yield server


@contextmanager
def all_connections(url):
    """All connections of a server, taken until the end of the block, or until they are closed."""
    engine = create_engine(url, poolclass=NullPool)
    with ExitStack() as taken:
        # Again after a refusal: some of before may be about to end.
        for _ in range(3):
            with suppress(OperationalError):
                for _ in range(2 * MOST):
                    taken.enter_context(engine.connect())
                pytest.fail("the server has more connections than it may have")
            time.sleep(0.05)
        yield taken


@pytest.mark.postgres
def test_many_pools_at_once_wait_while_the_server_has_no_connection_left(
    small_server, tmp_path, monkeypatch, caplog
):
    """Each of the pools has connections of its own, as in a process of its own."""
    monkeypatch.setattr(idle_connections, "IDLE_SECONDS", 0.5)
    pools = 8
    with small_server.database() as url, ExitStack() as opened:
        first = opened.enter_context(Store(Address(url, str(tmp_path))))
        queues = [make_queue(first, f"orders-{number}", shards=4) for number in range(pools)]
        for queue in queues:
            queue.load(orders(100))
        sessions = opened.enter_context(counting(url))
        for number, queue in enumerate(queues):
            own = make_url(url).update_query_dict({"application_name": f"pool-{number}"})
            address = Address(own.render_as_string(hide_password=False), str(tmp_path))
            store = opened.enter_context(Store(address, create=False))
            pool = ConsumerPool(store, queue.name, lambda _: True, concurrency=4, batch=5)
            opened.enter_context(pool)
        until(lambda: sum(map(deleted, queues)) == 100 * pools)
        # And one of the first store.
        until(lambda: sessions() <= 2 * pools + 1)
    assert [each.message for each in caplog.records if each.name != connections.__name__] == []


@pytest.mark.postgres
def test_a_store_is_opened_as_soon_as_the_server_has_a_connection(small_server, tmp_path, caplog):
    with small_server.database() as url, ExitStack() as stack:
        taken = stack.enter_context(all_connections(url))
        opening = Caller(lambda: Store(Address(url, str(tmp_path))))
        until(lambda: bool(caplog.messages))
        assert opening.is_alive()
        taken.close()
        store = stack.enter_context(opening.done())
        assert make_queue(store).load(orders(1))
    assert ["has no connection left; waiting" in each for each in caplog.messages] == [True]


@pytest.mark.postgres
def test_a_server_without_connections_is_an_error_after_a_while(
    small_server, tmp_path, monkeypatch
):
    monkeypatch.setattr(Postgresql, "busy_seconds", 0.2)
    with small_server.database() as url, ExitStack() as stack:
        stack.enter_context(all_connections(url))
        with pytest.raises(CatalogUnavailable, match="too many clients"):
            Store(Address(url, str(tmp_path)))


def test_a_waiting_firing_goes_on_when_the_connection_that_listens_is_cut(postgres, tmp_path):
    listens = "FROM pg_stat_activity WHERE datname = current_database() AND query ^@ 'LISTEN'"
    with (
        postgres.database() as url,
        Store.open(catalog=url, storage=tmp_path / "files") as store,
    ):
        queue = make_queue(store)
        waiting = Caller(lambda: queue.fire(1, timeout=PATIENCE))
        engine = create_engine(url, poolclass=NullPool)

        def count():
            with engine.connect() as connection:
                return connection.exec_driver_sql(f"SELECT count(*) {listens}").scalar()

        until(lambda: count() == 1, "nobody listens")
        with engine.connect() as connection:
            connection.exec_driver_sql(f"SELECT pg_terminate_backend(pid) {listens}")
        until(lambda: count() == 1, "nobody listens again")
        queue.load(orders(1))

        assert len(waiting.done()) == 1


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_may_have_another_encoding(postgres, tmp_path, encoding):
    with postgres.database() as url:
        engine, change = create_engine(url), f'ALTER DATABASE "{make_url(url).database}" '
        with engine.begin() as connection:
            connection.exec_driver_sql(f"{change} SET client_encoding = '{encoding}'")
        with Store.open(catalog=url, storage=tmp_path / "files") as store:
            queue = make_filled(store, 1)
            queue.sideline(queue.fire(1), reason="żółć")
            assert queue.failures().column("reason").to_pylist() == ["żółć"]
        # With the connection of before.
        with engine.begin() as connection:
            connection.exec_driver_sql(f"{change} RESET client_encoding")
        engine.dispose()
