"""Pools whose calls have transactions: their rows and the end of the messages are one commit."""

import threading
import time
from contextlib import suppress

import pyarrow as pa
import pytest
import sqlalchemy as sa

from queue_core import BadOption, ConsumerPool, Retry, batch_handler, constant
from queue_core.catalog import dialect
from queue_core.pool import transactions
from queue_core.pool.source import AcquiringSource, MessageSource
from tests.contract.callers import INSERT, sell
from tests.factories import aside, make_filled, make_queue, numbers_of, orders
from tests.storages import ONLY_POSTGRESQL
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.each_catalog


@pytest.fixture
def queue(store):
    return make_queue(store, shards=2)


def reasons(queue):
    return [row["reason"] for row in queue.failures().to_pylist()]


def test_rows_and_deletions_are_committed_together(store, queue, caller):
    queue.load(orders(30))
    with ConsumerPool(store, "orders", sell, transactional=True, concurrency=3) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 30}

    assert caller.sold() == list(range(30))
    assert queue.browse().num_rows == 0


def test_a_handler_that_fails_rolls_its_rows_back(store, queue, caller):
    queue.load(orders(4))

    def handler(message, connection):
        sell(message, connection)
        match message["number"]:
            case 1:
                raise ValueError("no funds")
            case 2:
                return False
            case 3:
                raise KeyError("ignored")
        return True

    with ConsumerPool(store, "orders", handler, transactional=True, ignorable=KeyError) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 1, "ignored": 1, "sidelined": 2}

    assert caller.sold() == [0]
    assert aside(queue) == [1, 2]
    assert "ValueError: no funds" in reasons(queue)


def test_a_statement_that_fails_sidelines_its_message_alone(store, queue, caller):
    queue.load(orders(3))

    def handler(message, connection):
        connection.execute(INSERT, {"number": min(message["number"], 1)})
        return True

    def careless(message, connection):
        try:
            return handler(message, connection)
        except sa.exc.IntegrityError:
            calls.append(message["number"])
            return True

    calls = []
    with ConsumerPool(store, "orders", handler, transactional=True, concurrency=1) as pool:
        assert pool.drain(PATIENCE)
    assert caller.sold() == [0, 1]
    (reason,) = reasons(queue)
    assert "IntegrityError" in reason

    # On PostgreSQL, the transaction of a statement that failed cannot be committed.
    queue.shovel(force=True)
    with ConsumerPool(store, "orders", careless, transactional=True) as pool:
        assert pool.drain(PATIENCE)
        kept = 0 if store.catalog.file is not None else 1
        assert pool.counts.get("sidelined", 0) == kept
    # The true error is its reason, and the call is not repeated.
    assert calls == [2]
    assert all("IntegrityError" in reason for reason in reasons(queue))


def test_batches_and_coroutines_have_transactions(store, queue, caller):
    queue.load(orders(6))

    @batch_handler
    def handler(batch, connection):
        numbers = batch.column("number").to_pylist()
        connection.execute(INSERT, [{"number": number} for number in numbers])
        return pa.array([number != 5 for number in numbers])

    with ConsumerPool(store, "orders", handler, transactional=True) as pool:
        assert pool.drain(PATIENCE)
    # The handler has decided about all of them in one call, so its rows stay.
    assert caller.sold() == list(range(6))
    assert numbers_of(queue.browse(magazine="sideline")) == [5]

    async def later(message, connection):
        return sell(message, connection)

    queue.load(orders(1, 7))
    with ConsumerPool(store, "orders", later, transactional=True) as pool:
        assert pool.drain(PATIENCE)
    assert caller.sold()[-1] == 7


def test_all_messages_of_a_call_are_settled_with_its_rows(store, caller, monkeypatch):
    """A kill after the commit, and before the next settlement, repeats no call."""
    queue = make_filled(store, 6)

    @batch_handler
    def handler(batch, connection):
        numbers = batch.column("number").to_pylist()
        connection.execute(INSERT, [{"number": number} for number in numbers])
        outcomes = ["delete", "sideline", "reload", "delete", "sideline", "delete"]
        columns = {"outcome": outcomes, "reason": ["no stock" if n == 4 else None for n in numbers]}
        waits = pa.array([60.0 if n == 2 else None for n in numbers], pa.float64())
        return pa.table({**columns, "delay": waits})

    # The settlement that follows the call is that of a process that dies.
    monkeypatch.setattr(AcquiringSource, "settle", MessageSource.settle)
    with ConsumerPool(store, "orders", handler, transactional=True, concurrency=1, batch=6) as pool:
        until(lambda: caller.sold() == list(range(6)))
        until(lambda: store.view("queues").column("in_flight").to_pylist() == [0])
    assert caller.sold() == list(range(6))
    assert numbers_of(queue.browse(magazine="sideline")) == [1, 2, 4]
    assert reasons(queue) == [None, "no stock"]
    assert pool.counts == {"deleted": 3, "sidelined": 2, "reloaded": 1}


@pytest.mark.each_catalog(False)
def test_a_message_that_comes_back_at_once_is_settled_once_for_each_call(store, caller):
    """Its outcome in the handler's transaction is not applied to its next call, too."""
    queue = make_filled(store, 4, retry=Retry(attempts=3, backoff=constant(0.001)))
    calls = []

    @batch_handler
    def handler(batch, connection):
        numbers = batch.column("number").to_pylist()
        calls.extend(numbers)
        if numbers != [1]:
            connection.execute(INSERT, [{"number": number} for number in numbers])
        return pa.array([number != 1 or calls.count(1) == 3 for number in numbers])

    with ConsumerPool(store, "orders", handler, transactional=True, concurrency=2, batch=4) as pool:
        until(lambda: queue.browse().num_rows == 0 and calls.count(1) == 3)
        until(lambda: queue.browse(magazine="sideline").num_rows == 0)
    assert pool.counts == {"deleted": 4, "sidelined": 2}
    assert caller.sold() == [0, 1, 2, 3]


def test_payloads_come_before_the_connection(store, caller):
    queue = store.create_queue("texts", pa.schema([("text", pa.string())]))
    queue.load([{"text": f'{{"number": {number}}}'} for number in range(3)])

    def handler(payload, metadata, connection):
        assert "_message_id" in metadata
        return sell(payload, connection) and payload["number"] != 1

    with ConsumerPool(
        store, "texts", handler, transactional=True, payload="text", with_metadata=True
    ) as pool:
        assert pool.drain(PATIENCE)
    assert caller.sold() == [0, 2]
    assert queue.browse(magazine="sideline").column("text").to_pylist() == ['{"number": 1}']


def test_a_result_of_nothing_counts_as_the_pool_says(store, queue, caller):
    queue.load(orders(2))

    def handler(message, connection):
        sell(message, connection)

    with ConsumerPool(store, "orders", handler, transactional=True, on_none="delete") as pool:
        assert pool.drain(PATIENCE)
    assert caller.sold() == [0, 1]
    assert queue.browse().num_rows == 0


ENDS = {
    "commit": lambda connection: connection.commit(),
    "rollback": lambda connection: connection.rollback(),
    "COMMIT": lambda connection: connection.execute(sa.text(" -- done\n COMMIT")),
    "ROLLBACK": lambda connection: connection.exec_driver_sql("rollback;"),
    "driver": lambda connection: connection.connection.driver_connection.rollback(),
}


@pytest.mark.parametrize("end", ENDS)
def test_a_handler_cannot_end_its_transaction(store, queue, caller, end):
    queue.load(orders(2))

    def handler(message, connection):
        with connection.begin_nested() as savepoint:
            sell(message, connection)
            savepoint.rollback()
        sell(message, connection)
        if message["number"]:
            ENDS[end](connection)
        return True

    with ConsumerPool(store, "orders", handler, transactional=True) as pool:
        assert pool.drain(PATIENCE)
    assert caller.sold() == [0]
    (reason,) = reasons(queue)
    assert "ends the transaction itself" in reason


def test_a_message_that_was_taken_away_commits_nothing(store, queue, caller):
    queue.load(orders(1))

    def handler(message, connection):
        # A person does this from another process; on SQLite it would have to wait.
        queue.within(connection).delete([message["_message_id"]], consumer="shop")
        return sell(message, connection)

    with ConsumerPool(store, "orders", handler, transactional=True, name="shop") as pool:
        assert pool.drain(PATIENCE)
    assert caller.sold() == []
    # The handler's own deletion was rolled back too, so the message must come back.
    assert numbers_of(queue.browse(magazine="sideline")) == [0]
    (reason,) = reasons(queue)
    assert "settled them itself" in reason


def test_a_call_that_could_not_commit_is_never_ignored(store, queue, caller):
    queue.load(orders(4))

    @batch_handler
    def handler(batch, connection):
        numbers = batch.column("number").to_pylist()
        connection.execute(INSERT, [{"number": number} for number in numbers])
        queue.within(connection).delete(batch.column("_message_id")[:1], consumer="shop")
        return [True] * len(numbers)

    with ConsumerPool(
        store, "orders", handler, transactional=True, name="shop", ignorable=Exception
    ) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"sidelined": 4}
    assert caller.sold() == []
    assert numbers_of(queue.browse(magazine="sideline")) == [0, 1, 2, 3]


def test_a_late_call_commits_nothing_and_keeps_nobody_waiting(store, queue, caller):
    queue.load(orders(1))
    opened = threading.Event()
    late = []

    def handler(message, connection):
        try:
            sell(message, connection)
            # Blocks, so that no other thread can interrupt it.
            opened.wait(PATIENCE)
            connection.execute(INSERT, {"number": 99})
        except BaseException as error:
            late.append(error)
            raise
        return True

    with ConsumerPool(
        store, "orders", handler, transactional=True, handler_timeout=0.3, concurrency=1
    ) as pool:
        until(lambda: pool.counts.get("sidelined"))
        # The database is free while the late call still runs.
        with caller.connected() as connection:
            caller.sell(connection, 0)
            connection.commit()
        opened.set()
        until(lambda: late)
    assert caller.sold() == [0]
    assert numbers_of(queue.browse(magazine="sideline")) == [0]


def test_a_stopped_pool_rolls_back_what_is_not_done(store, queue, caller):
    queue.load(orders(1))
    entered, opened = threading.Event(), threading.Event()

    def handler(message, connection):
        sell(message, connection)
        entered.set()
        return opened.wait(PATIENCE)

    pool = ConsumerPool(store, "orders", handler, transactional=True, concurrency=1).start()
    assert entered.wait(PATIENCE)
    pool.stop(timeout=0.1)
    opened.set()
    assert numbers_of(queue.fire(timeout=PATIENCE).messages) == [0]
    time.sleep(0.1)
    assert caller.sold() == []
    assert queue.browse().num_rows == 1


@ONLY_POSTGRESQL  # on SQLite the transaction begins when nobody else writes
def test_calls_are_repeated_while_other_transactions_are_in_the_way(
    store, queue, caller, monkeypatch
):
    queue.load(orders(4))
    monkeypatch.setattr(transactions, "PAUSE_SECONDS", 0.001)
    calls = []

    def clashing(message, connection):
        connection.execute(sa.text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
        connection.execute(sa.text("SELECT count(*) FROM best"))
        if message["number"] not in calls:
            calls.append(message["number"])
            with caller.connected() as other:
                caller.run(other, "UPDATE best SET number = number + 1")
                other.commit()
        connection.execute(sa.text("UPDATE best SET number = number + 100"))
        return sell(message, connection)

    with caller.connected() as other:
        caller.run(other, "CREATE TABLE best (number INTEGER)")
        caller.run(other, "INSERT INTO best VALUES (0)")
        other.commit()
    with ConsumerPool(store, "orders", clashing, transactional=True, concurrency=2) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 4}
    assert caller.sold() == [0, 1, 2, 3]
    with caller.connected() as connection:
        assert connection.scalar(sa.text("SELECT number FROM best")) == 404


@ONLY_POSTGRESQL  # no connection to SQLite is lost
def test_a_lost_connection_is_tried_again(store, queue, caller, monkeypatch):
    queue.load(orders(2))
    monkeypatch.setattr(transactions, "RETRY_SECONDS", 0.01)
    lost = []

    def handler(message, connection):
        sell(message, connection)
        if not lost:
            lost.append(message["number"])
            with store.catalog.engine.connect() as other:
                pid = connection.connection.driver_connection.info.backend_pid
                other.execute(sa.text("SELECT pg_terminate_backend(:pid)"), {"pid": pid})
        return True

    with ConsumerPool(store, "orders", handler, transactional=True, concurrency=1) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 2}
    assert caller.sold() == [0, 1]


def test_groups_go_on_after_each_commit(store, caller):
    queue = make_queue(store, group="customer")
    queue.load(orders(5, customers=1))
    with ConsumerPool(store, "orders", sell, transactional=True, concurrency=2) as pool:
        assert pool.drain(PATIENCE)
    assert caller.sold() == list(range(5))
    assert queue.browse().num_rows == 0


def test_what_cannot_be_combined_is_refused(store, queue):
    with pytest.raises(BadOption, match="browse"):
        ConsumerPool(store, "orders", sell, transactional=True, browse=True)
    with pytest.raises(BadOption, match="the connection"):
        ConsumerPool(store, "orders", lambda message: True, transactional=True)
    with pytest.raises(BadOption, match="batch handler"):
        ConsumerPool(
            store,
            "orders",
            batch_handler(lambda objects, connection: [True]),
            transactional=True,
            payload="customer",
        )


def timed(store, handler, timeout, concurrency):
    """A pool whose calls have a transaction, little time, and one attempt."""
    return ConsumerPool(
        store,
        "orders",
        handler,
        transactional=True,
        concurrency=concurrency,
        batch=2,
        handler_timeout=timeout,
        retry=Retry(attempts=1),
    )


@pytest.mark.each_catalog(False)
def test_the_wait_for_a_transaction_does_not_count_as_time_of_the_call(store, queue, monkeypatch):
    monkeypatch.setattr(transactions, "AT_ONCE", 1)
    queue.load(orders(12))
    calls = []

    def handler(message, connection):
        calls.append(message["number"])
        time.sleep(0.25)
        return True

    # The last of six workers waits for the calls of the others.
    with timed(store, handler, 1.2, concurrency=6) as pool:
        assert pool.drain(PATIENCE)
        assert pool.counts == {"deleted": 12}

    assert sorted(calls) == list(range(12))


@pytest.mark.each_catalog(False)
def test_a_call_that_never_ends_keeps_no_other_call_from_its_transaction(store, queue, monkeypatch):
    monkeypatch.setattr(transactions, "AT_ONCE", 1)
    queue.load(orders(8))
    go_on = threading.Event()

    def handler(message, connection):
        if message["number"] == 0:
            # It blocks, so it cannot be interrupted.
            go_on.wait(PATIENCE)
        return True

    with timed(store, handler, 1, concurrency=2) as pool:
        until(lambda: pool.counts.get("deleted") == 7)
        go_on.set()
        assert pool.drain(PATIENCE)

    (row,) = queue.browse(magazine="sideline").to_pylist()
    assert row["number"] == 0


def endless(connection):
    """Execute a statement that never ends by itself."""
    on_sqlite = connection.dialect.name == "sqlite"
    connection.execute(sa.text(FOR_EVER if on_sqlite else "SELECT pg_sleep(3600)"))


FOR_EVER = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
NUMBERS = sa.text(
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 9999) SELECT i FROM n"
)


def half_read(connection, blocked):
    """Read some rows, and block."""
    for _ in connection.execution_options(yield_per=1).execute(NUMBERS):
        blocked()


def swallow(work, connection, blocked):
    """Go on after every error of the work, as a careless handler does, and then block."""
    try:
        work(connection, blocked)
    except Exception:  # noqa: BLE001 - that is the point
        blocked()


def fetch(connection, blocked):
    """Read results, one after another, until this is refused; and block."""
    counting = sa.text(FOR_EVER.replace("FROM n)", "FROM n LIMIT 19999)"))
    with suppress(sa.exc.SQLAlchemyError):
        while True:
            connection.execute(counting).fetchall()
    blocked()


#: What a handler does when its time is up.
LATE = {
    "blocks": lambda connection, blocked: blocked(),
    "executes": lambda connection, blocked: endless(connection),
    "reads": half_read,
    "fetches": fetch,
    "executes and swallows": lambda connection, blocked: swallow(
        lambda connection, _: endless(connection), connection, blocked
    ),
}


@pytest.mark.parametrize(
    ("end", "late"),
    [
        *(("timeout", late) for late in LATE),
        *(("stop", late) for late in ("blocks", "executes")),
        *(
            pytest.param("stop", late, marks=pytest.mark.nightly)
            for late in ("reads", "fetches", "executes and swallows")
        ),
    ],
)
def test_the_transaction_of_a_late_call_ends_wherever_its_thread_is(
    store, queue, caller, late, end
):
    queue.load(orders(1))
    opened, entered, ended = threading.Event(), threading.Event(), threading.Event()

    def handler(message, connection):
        sell(message, connection)
        driver = connection.connection.driver_connection
        entered.set()
        try:
            LATE[late](connection, lambda: opened.wait(PATIENCE))
        finally:
            # The interrupt comes at any moment, and once.
            while not ended.is_set():
                with suppress(BaseException):
                    # Past SQLAlchemy, where a statement could be a transaction of its own.
                    for number in (98, 99):
                        with suppress(Exception):
                            driver.execute(f"INSERT INTO sales VALUES ({number})")
                    ended.set()
        return True

    seconds = 0.3 if end == "timeout" else 60
    with ConsumerPool(
        store, "orders", handler, transactional=True, handler_timeout=seconds, concurrency=1
    ) as pool:
        assert entered.wait(PATIENCE)
        if end == "timeout":
            until(lambda: pool.counts.get("sidelined"))
        else:
            pool.stop(timeout=0.1)
        # The database is free, though the call may never end.
        with caller.connected() as connection:
            caller.sell(connection, 0)
            connection.commit()
        opened.set()
        assert ended.wait(PATIENCE)
    assert caller.sold() == [0]
    assert queue.browse().num_rows + queue.browse(magazine="sideline").num_rows == 1
    assert store.admin.fsck(deep=True).num_rows == 0


def test_a_call_that_waits_for_its_transaction_when_the_pool_stops_is_never_made(
    store, caller, monkeypatch
):
    monkeypatch.setattr(transactions, "AT_ONCE", 1)
    for name in ("orders", "refunds"):
        make_filled(store, 1, name)
    database = dialect.of(store.catalog.engine)
    real, calls, opened, fired = database.begin, [], threading.Event(), threading.Event()

    def begin(connection, **options):
        if connection.engine is not store.catalog.engine and not fired.is_set():
            # On SQLite, nobody fires after its beginning. Once: later, messages are given back.
            until(lambda: sum(store.view("queues")["in_flight"].to_pylist()) == 2)
            fired.set()
        real(connection, **options)

    def handler(message, connection):
        calls.append(message["number"])
        opened.wait(PATIENCE)
        return sell(message, connection)

    monkeypatch.setattr(database, "begin", begin)
    with ConsumerPool(
        store, ["orders", "refunds"], handler, transactional=True, concurrency=2
    ) as pool:
        until(lambda: calls)
        threads = [t for t in threading.enumerate() if t.name.startswith("worker ")]
        pool.stop(timeout=0.1)
        opened.set()
        for thread in threads:
            thread.join(PATIENCE)
    assert len(calls) == 1
    assert caller.sold() == []
    assert store.view("queues")["waiting"].to_pylist() == [1, 1]


def test_a_commit_that_is_under_way_when_the_time_is_up_counts(store, queue, caller):
    """The row is committed and its message is deleted, or neither."""
    queue.load(orders(2))
    come, go_on = threading.Event(), threading.Event()
    real = sa.engine.Connection.commit

    def slow(connection):
        if connection.engine is not store.catalog.engine and not come.is_set():
            come.set()
            assert go_on.wait(PATIENCE)
        real(connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sa.engine.Connection, "commit", slow)
        with timed(store, sell, 0.3, concurrency=1) as pool:
            assert come.wait(PATIENCE)
            worker = lambda: [t for t in threading.enumerate() if t.name == "worker 1"]  # noqa: E731
            until(lambda: len(worker()) == 2)
            go_on.set()
            assert pool.drain(PATIENCE)
            assert pool.counts == {"deleted": 2}
    assert caller.sold() == [0, 1]
    assert queue.browse().num_rows + queue.browse(magazine="sideline").num_rows == 0
