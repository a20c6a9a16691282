"""No call waits for ever for a PostgreSQL that is frozen, or for locks of strangers."""

import time

import pytest
import sqlalchemy as sa

from queue_core import Store
from queue_core.catalog.databases import bounded_waits
from queue_core.catalog.databases.interface import Dialect
from queue_core.catalog.records import task_log
from queue_core.errors import CatalogUnavailable
from tests.factories import make_queue, orders, with_sidelined
from tests.waiting import Caller

pytestmark = pytest.mark.postgres

#: More than any advisory lock of an older ignis: all that it took, and whole ranges beside them.
ADVISORY = [(0x69676E6973,), (0x69676E6974,), *((0x69676E69, queue) for queue in range(1, 50))]


@pytest.fixture
def address(postgres, tmp_path):
    """The address of a store on PostgreSQL."""
    with postgres.database() as url:
        yield dialect_address(url, tmp_path)


def dialect_address(url, tmp_path):
    with Store.open(catalog=url, storage=str(tmp_path / "store")) as store:
        make_queue(store)
        return store.address


@pytest.fixture
def quick(monkeypatch):
    """Limits of a second or two instead of a minute."""
    monkeypatch.setattr(bounded_waits, "CONNECT_SECONDS", 2)
    monkeypatch.setattr(bounded_waits, "PING_SECONDS", 1.0)
    monkeypatch.setattr(bounded_waits, "STATEMENT_SECONDS", 1.0)
    monkeypatch.setattr(bounded_waits, "MARGIN_SECONDS", 1.0)


def ends(call, seconds=60.0):
    """Call in a thread, and return the error that it raised; fail if it does not come back."""
    caller = Caller(call)
    caller.join(seconds)
    assert not caller.is_alive(), "the call hangs"
    return caller.error or caller.result


def works_again(queue, count):
    """Load into a queue as soon as its server, which was frozen, answers in time."""
    end = time.monotonic() + 60
    while True:
        try:
            return len(queue.load(orders(count))) == count
        except CatalogUnavailable:
            assert time.monotonic() < end, "the server does not answer any more"


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.queue("orders").load(orders(1)),
        pytest.param(lambda store: store.queue("orders").fire("all"), marks=pytest.mark.nightly),
        lambda store: store.queue("orders").fire("all", timeout=60.0),
        pytest.param(lambda store: store.queue("orders").peek(1), marks=pytest.mark.nightly),
        lambda store: Store(store.address).close(),
    ],
    ids=["load", "fire", "fire and wait", "peek", "open"],
)
def test_a_server_that_is_frozen_is_an_error(postgres, address, quick, call):
    with Store(address) as store:
        store.queue("orders").peek(1)
        with postgres.frozen():
            error = ends(lambda: call(store))
        assert isinstance(error, CatalogUnavailable), error
        assert works_again(store.queue("orders"), 2)


def test_a_server_that_freezes_within_a_transaction_is_an_error(postgres, address, quick):
    with Store(address) as store:
        queue = store.queue("orders")

        def work(connection):
            connection.execute(sa.text("SELECT 1"))
            freeze.__enter__()
            connection.execute(sa.text("SELECT 2"))

        freeze = postgres.frozen()
        try:
            error = ends(lambda: store.catalog.write(work))
        finally:
            freeze.__exit__(None, None, None)

        assert isinstance(error, CatalogUnavailable)
        assert "(the server has not answered for 2 seconds); nothing was changed; try again" in str(
            error
        )
        assert works_again(queue, 1)


def test_a_server_that_freezes_at_the_commit_leaves_the_outcome_open(postgres, address, quick):
    with Store(address) as store:
        freeze = postgres.frozen()

        def work(connection):
            connection.execute(sa.text("SELECT 1"))
            freeze.__enter__()

        try:
            error = ends(lambda: store.catalog.write(work))
        finally:
            freeze.__exit__(None, None, None)

    assert "the last change may have been made" in str(error)


def test_a_waiting_firing_is_no_statement_that_lasts(address, quick):
    """A listener waits for longer than any statement may."""
    with Store(address) as store:
        began = time.monotonic()
        assert len(store.queue("orders").fire("all", timeout=2.5)) == 0
        assert time.monotonic() - began >= 2.5


def test_limits_that_are_set_already_stay(address, quick):
    url = f"{address.catalog}&options=-c%20statement_timeout%3D7s%20-c%20lock_timeout%3D3s"
    with Store.open(catalog=url, storage=address.storage) as store, store.catalog.read() as found:
        assert found.scalar(sa.text("SHOW statement_timeout")) == "7s"
        assert found.scalar(sa.text("SHOW lock_timeout")) == "3s"
        assert found.connection.driver_connection.answer_seconds == 8.0


def test_a_transaction_that_writes_sees_commits_whatever_the_server_is_set_to(address, quick):
    """A trim that has waited for a new subscription must see what that wants."""
    url = f"{address.catalog}&options=-c%20default_transaction_isolation%3Dserializable"
    with Store.open(catalog=url, storage=address.storage) as store:
        level = store.catalog.write(lambda c: c.scalar(sa.text("SHOW transaction_isolation")))
    assert level == "read committed"


def test_a_lock_that_is_not_given_back_is_an_error(address, quick, monkeypatch):
    monkeypatch.setattr(Dialect, "busy_seconds", 0.5)
    with Store(address) as store, store.catalog.engine.connect() as other:
        other.execute(sa.text("LOCK TABLE shards IN ACCESS EXCLUSIVE MODE"))
        error = ends(lambda: store.queue("orders").load(orders(1)))
    assert isinstance(error, CatalogUnavailable)


def test_advisory_locks_of_another_role_keep_nobody_waiting(postgres, address, tmp_path):
    """Every role of a database can take every advisory lock."""
    with postgres.role(address.catalog) as url:
        stranger = sa.create_engine(url, poolclass=sa.NullPool)
        with stranger.connect() as other:
            for lock in ADVISORY:
                numbers = ", ".join(map(str, lock))
                other.execute(sa.text(f"SELECT pg_advisory_lock({numbers})"))
            assert ends(lambda: use_everything(address, tmp_path)) == 5


def use_everything(address, tmp_path):
    """Open, load into a bounded queue, shovel, and read the newest report."""
    with Store(address) as store:
        queue = with_sidelined(store, 5, "bounded", max_size=5)
        moved = queue.shovel()
        with store.catalog.read(locking=True) as connection:
            assert task_log.last(connection, [queue.info], ["shovel"])
        return moved
