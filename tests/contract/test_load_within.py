"""Loads within the caller's transaction: both are committed, or neither."""

import gc
import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pyarrow as pa
import pytest
import sqlalchemy as sa

from queue_core import BadOption, Conflict, QueueFull, Store
from queue_core.catalog.holders import interests
from queue_core.catalog.tables import dedup
from queue_core.errors import CatalogUnavailable, QueueDeactivated, SchemaMismatch
from queue_core.support import faults
from queue_core.waiting.smart import snapshot
from tests.contract.callers import KINDS, Seller
from tests.factories import main, make_filled, make_queue, numbers_of, orders
from tests.storages import ONLY_POSTGRESQL, ONLY_SQLITE
from tests.waiting import PATIENCE, Caller, all_at_once, without_blind_looks

pytestmark = pytest.mark.each_catalog

#: So many rows that they become files.
LARGE = pa.table({"number": range(50_000), "customer": ["some customer"] * 50_000})


@pytest.fixture(params=KINDS)
def caller(request, store):
    with Seller(store, request.param) as made:
        yield made


def test_rows_and_messages_are_committed_together_or_rolled_back(store, caller):
    queue = make_queue(store, shards=4)
    with caller.connected() as connection:
        caller.sell(connection, 1)
        ids = queue.within(connection).load(orders(1, 1))
        assert main(queue) == caller.sold() == []
        connection.commit()
    assert main(queue) == caller.sold() == [1]
    assert queue.browse().column("_message_id").to_pylist() == ids.to_pylist()

    with caller.connected() as connection:
        caller.sell(connection, 2)
        queue.within(connection).load(orders(1, 2))
        connection.rollback()
        # The connection is as good as before, and a load that comes first begins the transaction.
        queue.within(connection).load(orders(1, 3))
        connection.rollback()
        queue.within(connection).load(orders(1, 4))
        caller.sell(connection, 4)
        connection.commit()
    # Nobody commits this one.
    with caller.connected() as connection:
        queue.within(connection).load(orders(1, 5))

    assert main(queue) == caller.sold() == [1, 4]


@ONLY_POSTGRESQL  # no connection to SQLite is lost
def test_a_connection_that_is_lost_within_the_call_is_told_of(store, caller, monkeypatch):
    queue = make_filled(store, 1)
    with caller.connected() as connection:
        pid = caller.run(connection, "SELECT pg_backend_pid() AS pid").fetchone()
        (pid,) = pid.values() if isinstance(pid, dict) else pid

        def cut(name):
            if name == "fire.before_commit":
                with store.catalog.engine.connect() as other:
                    other.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})

        monkeypatch.setattr(faults, "point", cut)
        with pytest.raises(CatalogUnavailable):
            queue.within(connection).fire()
        if caller.kind == "sqlalchemy":
            # Its rollback would fail.
            connection.invalidate()
    monkeypatch.undo()
    assert len(queue.fire()) == 1


@ONLY_SQLITE  # PostgreSQL locks rows, and not a file
def test_a_connection_that_its_caller_forgets_keeps_no_lock(store):
    queue = make_queue(store)
    connection = sqlite3.connect(store.catalog.file, timeout=0.0)
    queue.within(connection).load(orders(1))
    del connection
    gc.collect()
    with sqlite3.connect(store.catalog.file, timeout=0.0) as other:
        other.execute("BEGIN IMMEDIATE")
    other.close()
    assert main(queue) == []


def test_a_failed_load_changes_nothing_and_leaves_the_transaction_usable(store, caller):
    queue = make_queue(store, max_size=2, overflow="fail")
    with caller.connected() as connection:
        caller.sell(connection, 1)
        with pytest.raises(SchemaMismatch):
            queue.within(connection).load([{"amount": 1.0}])
        with pytest.raises(QueueFull, match="'orders'"):
            queue.within(connection).load(orders(3))
        queue.within(connection).load(orders(1, 1))
        caller.sell(connection, 2)
        connection.commit()

    assert caller.sold() == [1, 2]
    assert main(queue) == [1]
    assert store.storage.list() == {}


def test_a_statement_of_the_caller_that_fails_undoes_both(store, caller):
    queue = make_queue(store)
    with caller.connected() as connection:
        queue.within(connection).load(orders(1, 1))
        caller.sell(connection, 1)
        with pytest.raises((sa.exc.IntegrityError, psycopg.IntegrityError, sqlite3.IntegrityError)):
            caller.sell(connection, 1)
        if store.catalog.file is None:
            # PostgreSQL accepts nothing more.
            with pytest.raises(Conflict, match="failed before"):
                queue.within(connection).load(orders(1, 2))
        connection.rollback()

    assert main(queue) == caller.sold() == []


def test_files_of_a_rolled_back_load_are_vacuumed(store, caller):
    queue = make_queue(store, shards=2)
    with caller.connected() as connection:
        queue.within(connection).load(LARGE)
        connection.rollback()
        assert store.storage.list()
        queue.within(connection).load(LARGE)
        connection.commit()

    store.admin.vacuum(grace=0)
    assert queue.browse().num_rows == 50_000
    queue.delete(queue.fire("all"))
    store.admin.vacuum(grace=0)
    assert store.storage.list() == {}


@ONLY_POSTGRESQL  # SQLite has one writer: vacuum waits anyway
def test_vacuum_waits_for_a_load_that_is_not_committed_yet(store, caller):
    queue = make_queue(store)
    with caller.connected() as connection:
        queue.within(connection).load(LARGE)
        vacuum = Caller(lambda: store.admin.vacuum(grace=0))
        time.sleep(0.2)
        connection.commit()
        assert vacuum.done() == []

    assert queue.browse().num_rows == 50_000


def test_a_waiting_consumer_is_woken_at_the_commit(store, caller, monkeypatch):
    without_blind_looks(monkeypatch)
    queue = make_queue(store)
    consumer = Caller(lambda: (queue.fire(timeout=PATIENCE), time.monotonic()))
    with caller.connected() as connection:
        time.sleep(0.2)
        queue.within(connection).load(orders(1, 1))
        time.sleep(0.2)
        assert consumer.is_alive()
        connection.commit()
        committed = time.monotonic()
    firing, woken = consumer.done()

    assert numbers_of(firing.messages) == [1]
    assert woken - committed < PATIENCE / 2, "only the end of its time has woken it"
    queue.delete(firing)


@pytest.mark.parametrize("settings", [{}, {"dedup": ["number"]}], ids=str)
@ONLY_POSTGRESQL  # nothing begins while a transaction has the database
def test_a_consumer_begins_beside_a_transaction_that_has_loaded(store, caller, settings):
    queue = make_queue(store, **settings)
    reader = store.consumer("reader", beats=True)
    with caller.connected() as connection:
        queue.within(connection).load(orders(1))
        store.catalog.write(
            lambda c: interests.register(c, reader, [queue.info.id], claim=interests.EXCLUSIVE),
            seconds=0.5,
        )
        connection.commit()

    assert main(queue) == [0]


def test_two_threads_load_in_transactions_of_their_own(store, caller):
    queue = make_queue(store, shards=2)

    def work(first):
        for number in range(first, first + 20):
            with caller.connected() as connection:
                if store.catalog.file is not None:
                    queue.within(connection).load(orders(1, number))
                    caller.sell(connection, number)
                else:
                    caller.sell(connection, number)
                    queue.within(connection).load(orders(1, number))
                    queue.within(connection).load(orders(1, number + 1000))
                if number % 3:
                    connection.commit()

    all_at_once(*(partial(work, first) for first in (0, 100, 200)))

    assert [number for number in main(queue) if number < 1000] == caller.sold()
    assert len(caller.sold()) == 40


@pytest.mark.parametrize("policy", [pytest.param(None, marks=pytest.mark.nightly), "latest"])
@pytest.mark.parametrize("loads", [pytest.param(1, marks=pytest.mark.nightly), 3])
@pytest.mark.parametrize(
    "caller", ["sqlalchemy", pytest.param("driver", marks=pytest.mark.nightly)], indirect=True
)
@ONLY_POSTGRESQL  # on SQLite, each transaction has the whole database to itself
def test_transactions_with_keys_take_turns(store, caller, policy, loads):
    """None is in the way of another, whichever shards each of them loads into."""
    queue = make_queue(store, shards=4, key="customer", dedup=("number",), policy=policy)
    with ThreadPoolExecutor(4) as threads:

        def buy(buyer):
            with Store(store.address) as own:
                for step in range(10):
                    with caller.connected() as connection:
                        for load in range(loads):
                            number = 100 * buyer + 10 * load + step
                            own.queue("orders").within(connection).load(orders(1, number))
                        connection.commit()

        beside = threads.submit(lambda: [queue.load(orders(1, 1000 + n)) for n in range(10)])
        for buyer in [threads.submit(buy, buyer) for buyer in range(3)]:
            buyer.result(PATIENCE)
        beside.result(PATIENCE)
    with store.catalog.read() as connection:
        known = connection.scalar(sa.select(sa.func.count()).select_from(dedup))
    assert known == 3 * 10 * loads + 10


def test_another_database_is_refused_by_name(store, caller, tmp_path):
    queue = make_queue(store)
    other = sqlite3.connect(tmp_path / "other.db")
    with pytest.raises(BadOption, match="connection"):
        queue.within(other).load(orders(1))
    assert not other.in_transaction
    other.close()
    for wrong in ("connection", sa.create_engine("sqlite://"), object()):
        with pytest.raises(BadOption, match="connection"):
            queue.within(wrong).load(orders(1))
    assert main(queue) == []


def test_a_copy_of_the_database_is_refused(store, caller, request, tmp_path):
    queue = make_queue(store)
    if store.catalog.file is not None:
        copy = sqlite3.connect(tmp_path / "copy.db")
        with sqlite3.connect(store.catalog.file) as source:
            source.backup(copy)
        source.close()
        with pytest.raises(BadOption, match=r"copy\.db.*catalog\.db"):
            queue.within(copy).load(orders(1))
        copy.execute(f"ATTACH '{store.catalog.file}' AS ignis")
        with pytest.raises(BadOption, match=r"copy\.db"):
            queue.within(copy).load(orders(1))
        copy.close()
        return
    url = store.catalog.engine.url.set(drivername="postgresql")
    with request.getfixturevalue("postgres").database() as other:
        # The same tables, in another database of the server.
        with Store.open(catalog=other, storage=str(tmp_path / "other")):
            pass
        there = sa.make_url(other).set(drivername="postgresql")
        with (
            psycopg.connect(there.render_as_string(hide_password=False)) as connection,
            pytest.raises(BadOption, match="uses the database") as refused,
        ):
            queue.within(connection).load(orders(1))
    assert f"/{there.database}," in str(refused.value)
    assert f"/{url.database}?" in str(refused.value)


def test_a_connection_that_commits_each_statement_is_refused(store, caller):
    queue = make_queue(store)
    with caller.connected() as connection:
        if caller.kind == "sqlalchemy":
            connection.execution_options(isolation_level="AUTOCOMMIT")
        elif store.catalog.file is not None:
            connection.isolation_level = None
        else:
            connection.autocommit = True
        with pytest.raises(BadOption, match="would commit each statement"):
            queue.within(connection).load(orders(1))
        if caller.kind == "driver":
            # A transaction of the caller's own is welcome.
            connection.execute("BEGIN")
            queue.within(connection).load(orders(1, 7))
            connection.execute("COMMIT")

    assert main(queue) == ([7] if caller.kind == "driver" else [])


def test_a_session_gives_its_connection(store, caller):
    from sqlalchemy.orm import Session

    queue = make_queue(store)
    with Session(caller.engine) as session:
        with pytest.raises(BadOption, match=r"session\.connection\(\)"):
            queue.within(session).load(orders(1))
        session.execute(sa.text("INSERT INTO sales VALUES (1)"))
        queue.within(session.connection()).load(orders(1, 1))
        session.commit()
    assert main(queue) == caller.sold() == [1]


def test_bounds_that_others_have_set_are_kept_and_no_load_waits_for_room(store, caller):
    queue = make_queue(store)
    store.queue("orders").admin.change_settings(max_size=2)
    with caller.connected() as connection:
        queue.within(connection).load(orders(2))
        began = time.monotonic()
        with pytest.raises(QueueFull):
            queue.within(connection).load(orders(1, 5))
        assert time.monotonic() - began < 30
        connection.commit()
    assert main(queue) == [0, 1]


def test_a_ring_drops_its_oldest_with_the_commit(store, caller):
    queue = make_filled(store, 2, max_size=2, overflow="ring")
    with caller.connected() as connection:
        queue.within(connection).load(orders(1, 2))
        connection.rollback()
        assert main(queue) == [0, 1]
        queue.within(connection).load(orders(1, 3))
        connection.commit()
    assert main(queue) == [1, 3]


def test_policies_see_what_the_transaction_has_loaded(store, caller):
    queue = make_filled(store, 2, key="number", policy="latest")
    with caller.connected() as connection:
        queue.within(connection).load([{"number": 1, "customer": "mine"}])
        queue.within(connection).load([{"number": 1, "customer": "newest"}])
        connection.rollback()
        assert "mine" not in queue.browse().column("customer").to_pylist()
        queue.within(connection).load([{"number": 1, "customer": "mine"}])
        queue.within(connection).load([{"number": 1, "customer": "newest"}])
        connection.commit()
    rows = {row["number"]: row["customer"] for row in queue.browse().to_pylist()}
    assert sorted(rows) == [0, 1]
    assert rows[1] == "newest"


@ONLY_POSTGRESQL  # nobody settles while a transaction has the database
def test_a_message_that_is_settled_while_a_policy_looks_is_no_damage(store, caller, monkeypatch):
    queue = make_filled(store, 1, key="customer", policy="confirm(number = 10)")
    firings, fetch = [queue.fire("all")], snapshot.fetch

    def then_settle(*where):
        found = fetch(*where)
        if firings:
            queue.delete(firings.pop())
        return found

    monkeypatch.setattr(snapshot, "fetch", then_settle)
    with caller.connected() as connection:
        ids = queue.within(connection).load(orders(1, 10))
        connection.commit()

    assert (ids.null_count, firings) == (0, [])
    assert main(queue) == [10]


def test_keys_are_known_when_the_transaction_is_committed(store, caller):
    queue = make_queue(store, key="number", dedup=["number"], dedup_window=3600)
    with caller.connected() as connection:
        assert queue.within(connection).load(orders(1, 1)).null_count == 0
        assert queue.within(connection).load(orders(1, 1)).null_count == 1
        connection.rollback()
        assert queue.within(connection).load(orders(1, 1)).null_count == 0
        connection.commit()
    assert queue.load(orders(2, 1)).null_count == 1
    assert main(queue) == [1, 2]


def test_a_queue_that_keeps_nothing_and_a_deactivated_one_are_refused(store, caller):
    queue, gone = make_queue(store, max_size=0), make_queue(store, "gone")
    gone.admin.deactivate()
    with caller.connected() as connection:
        with pytest.raises(BadOption, match="keeps no messages"):
            queue.within(connection).load(orders(1))
        with pytest.raises(QueueDeactivated):
            gone.within(connection).load(orders(1))


def test_a_load_adds_no_columns(store, caller):
    queue = make_queue(store)
    with caller.connected() as connection:
        with pytest.raises(BadOption, match="_expires_at"):
            queue.within(connection).load(orders(1), ttl=60)
        connection.rollback()
        queue.load(orders(1), ttl=60)
        queue.within(connection).load(orders(1, 1), ttl=60)
        connection.commit()
    assert queue.browse().column("_expires_at").null_count == 0


def test_lock_waits_and_serialization_failures_are_conflicts(store, caller):
    queue = make_queue(store)
    with caller.connected(**({"timeout": 0.1} if store.catalog.file else {})) as connection:
        if store.catalog.file is not None:
            if caller.kind == "sqlalchemy":
                connection.exec_driver_sql("PRAGMA busy_timeout = 100")
                connection.rollback()
            with store.catalog.engine.connect() as other:
                other.exec_driver_sql("BEGIN IMMEDIATE")
                with pytest.raises(Conflict, match="run your transaction again"):
                    queue.within(connection).load(orders(1))
                other.exec_driver_sql("ROLLBACK")
        else:
            caller.run(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            caller.run(connection, "SELECT count(*) FROM sales")
            queue.load(orders(1, 1))
            with pytest.raises(Conflict, match="run it again"):
                queue.within(connection).load(orders(1, 2))
            connection.rollback()
            caller.run(connection, "SET lock_timeout = 100")
            with store.catalog.engine.connect() as other:
                other.exec_driver_sql("SELECT * FROM shards FOR UPDATE")
                with pytest.raises(Conflict, match="run it again"):
                    queue.within(connection).load(orders(1, 2))
        connection.rollback()
        queue.within(connection).load(orders(1, 3))
        connection.commit()
    assert 3 in main(queue)
    assert 2 not in main(queue)


@ONLY_POSTGRESQL  # on SQLite each transaction that writes does
def test_rules_need_transactions_that_see_commits(store, caller):
    bounded = make_queue(store, max_size=10)
    plain = make_queue(store, "plain")
    with caller.connected() as connection:
        caller.run(connection, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
        with pytest.raises(BadOption, match="READ COMMITTED"):
            bounded.within(connection).load(orders(1))
        plain.within(connection).load(orders(1))
        connection.commit()
    assert main(bounded) == []
    assert main(plain) == [0]


def test_a_closed_connection_is_refused(store, caller):
    queue = make_queue(store)
    with caller.connected() as connection:
        connection.close()
        with pytest.raises(BadOption, match=r"connection (is closed|cannot be used)"):
            queue.within(connection).load(orders(1))


@ONLY_POSTGRESQL  # a mode of psycopg
@pytest.mark.parametrize("caller", ["driver"], indirect=True)
def test_a_connection_in_pipeline_mode_is_refused(store, caller):
    queue = make_queue(store)
    with caller.connected() as connection:
        with connection.pipeline(), pytest.raises(BadOption, match="connection is in pipeline"):
            queue.within(connection).load(orders(1))
        queue.within(connection).load(orders(1))
        connection.commit()
    assert main(queue) == [0]


def test_a_transaction_that_may_not_write_is_refused(store, caller):
    queue = make_filled(store, 1)
    with caller.connected() as connection:
        on_file = store.catalog.file is not None
        mode = "PRAGMA query_only = ON" if on_file else "SET TRANSACTION READ ONLY"
        ours = queue.within(connection)
        for call in (ours.fire, lambda: ours.load(orders(1, 1))):
            caller.run(connection, mode)
            with pytest.raises(BadOption, match="connection is read-only"):
                call()
            connection.rollback()
    assert main(queue) == [0]
