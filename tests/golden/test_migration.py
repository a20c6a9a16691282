"""A store of format 1 becomes one of this format, on either database, even with crashes."""

import itertools
import json
import os
import signal
import threading
import time

import pyarrow as pa
import pytest
from sqlalchemy import Engine, NullPool, create_engine, event, select, text
from sqlalchemy.exc import DBAPIError

from queue_core import Retry, Store, constant, exponential
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.format import FORMAT
from queue_core.catalog.holders import waiters
from queue_core.catalog.tables import metadata, task_log
from queue_core.catalog.tables import waiters as waiters_table
from queue_core.errors import DamagedCatalog, FormatTooNew
from queue_core.segments.ipc import pack
from queue_core.support import faults
from tests.books import audit
from tests.children import Child
from tests.factories import make_queue, orders
from tests.golden.make import described, folder_of
from tests.golden.old import format_of, golden_store, schema_of, turn_back

PROCESSES = 6
#: How statements begin that change a catalog.
CHANGES = ("ALTER", "CREATE", "DROP", "INSERT", "UPDATE")
#: Tables whose ids the database gives out.
NUMBERED = [table for table in metadata.sorted_tables if table.autoincrement_column is not None]


@pytest.fixture
def old(catalog_url, tmp_path):
    """The address of a store of format 1."""
    return golden_store(catalog_url, tmp_path / "store")


@pytest.fixture
def new(request, catalog_url, tmp_path):
    """The address of a store that this ignis has made in a database of the same kind."""
    if catalog_url.startswith("postgresql"):
        with request.getfixturevalue("postgres").database() as url:
            yield make_new(url, tmp_path)
    else:
        yield make_new(f"sqlite:///{tmp_path}/new.db", tmp_path)


def make_new(url, tmp_path):
    with Store.open(catalog=url, storage=str(tmp_path / "new")) as store:
        return store.address


def open_at_once(address, begin):
    while time.monotonic() < begin:
        pass
    with Store(address) as store:
        store.queue("orders").load(orders(10))


def test_everything_is_as_it_was_written(old):
    expected = json.loads((folder_of(1) / "expected.json").read_text())

    with Store(old, create=False) as store:
        assert described(store, 1) == expected
        audit(store)

    assert format_of(old) == str(FORMAT)


def test_tables_indexes_constraints_and_sequences_are_named_as_in_a_new_catalog(old, new):
    assert schema_of(old) != schema_of(new)

    Store(old).close()

    assert schema_of(old) == schema_of(new)


def test_a_catalog_that_a_test_turns_back_is_one_of_format_1(old, new):
    with Store(new) as store:
        turn_back(store)

    assert schema_of(new) == schema_of(old)


def test_ids_go_on_where_they_were(old):
    with Store(old) as store:
        with store.catalog.read() as connection:
            before = {
                table.name: dialect.of(connection).last_id(connection, table) for table in NUMBERED
            }
        queue = store.queue("ring")
        join = lambda c: waiters.join(c, queue.info.id, waiters.FIRE)  # noqa: E731
        assert store.catalog.write(join) == before["waiters"] + 1
        store.catalog.write(lambda c: c.execute(waiters_table.delete()))
        assert store.catalog.write(join) == before["waiters"] + 2
        log = {"queue_id": 0, "task": "shovel", "done_at": 0, "arrow": b""}
        number = store.catalog.write(
            lambda c: c.scalar(task_log.insert().values(**log).returning(task_log.c.id))
        )
        assert number == before["task_log"] + 1 > 1


def test_many_processes_may_open_it_at_once(old, tmp_path):
    begin = time.monotonic() + 0.5
    children = [
        Child(open_at_once, old, begin, log=tmp_path / f"child-{number}")
        for number in range(PROCESSES)
    ]
    ended = [child.wait() for child in children]

    assert ended == [0] * PROCESSES, "".join(child.output() for child in children)
    with Store(old) as store:
        assert len(audit(store).ids()) == len(ids_before()) + 10 * PROCESSES


def ids_before():
    expected = json.loads((folder_of(1) / "expected.json").read_text())
    return [row for row in expected["views"]["slices"] for _ in range(row["messages"])]


def test_a_crash_in_the_middle_leaves_it_as_it_was(old):
    before = schema_of(old)
    faults.arm("migrate.before_commit=raise")

    with pytest.raises(faults.InjectedFault):
        Store(old)

    assert schema_of(old) == before
    assert format_of(old) == "1"
    with Store(old) as store:
        audit(store)


def open_and_die(address, number):
    """Kill this process before the statement of that number that changes something."""
    changes = itertools.count(1)

    @event.listens_for(Engine, "before_cursor_execute")
    def die(_, __, statement, *___):
        if statement.startswith(CHANGES) and next(changes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Catalog(address.catalog).close()


def test_a_kill_before_any_statement_leaves_it_as_it_was(old, tmp_path):
    before = schema_of(old)
    for number in itertools.count(1, 3):
        ended = Child(open_and_die, old, number, log=tmp_path / f"child-{number}").wait()
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        assert (schema_of(old), format_of(old)) == (before, "1")

    assert number > 9
    assert everything_of(old) == json.loads((folder_of(1) / "expected.json").read_text())


def everything_of(address):
    with Store(address, create=False) as store:
        audit(store)
        return described(store, 1)


def test_an_older_process_that_is_still_open_ends_its_transaction_and_gets_errors(old):
    """Its transaction is in the new catalog; none of its next ones that need an old name is."""
    engine = dialect.connect(old.catalog)
    join = text(
        "INSERT INTO lines (queue_id, side, joined_at, alive_until) VALUES (1, 'load', 7, 0)"
    )
    with engine.connect() as older:
        dialect.of(older).begin(older, write=True)
        older.execute(join)
        upgrade = threading.Thread(target=lambda: Store(old).close())
        upgrade.start()
        upgrade.join(0.3)
        assert upgrade.is_alive()
        older.commit()
        upgrade.join()
        dialect.of(older).begin(older, write=True)
        with pytest.raises(DBAPIError):
            older.execute(join)
        older.rollback()
    engine.dispose()

    with Store(old, create=False) as store, store.catalog.read() as connection:
        joined = select(waiters_table.c.joined_at).where(waiters_table.c.joined_at == 7)
        assert connection.scalars(joined).all() == [7]


def test_keys_are_known_as_before(old):
    """A row for each load; two of them have a key in common, and one is of other columns."""
    engine = create_engine(old.catalog, poolclass=NullPool)
    with engine.begin() as connection:
        query = text("SELECT id, settings FROM queues WHERE name = 'orders'")
        queue, stored = connection.execute(query).one()
        stored = json.dumps(json.loads(stored) | {"dedup": ["number"], "dedup_window": 1e6})
        change = text("UPDATE queues SET settings = :settings WHERE name = 'orders'")
        connection.execute(change, {"settings": stored})
        now = int(time.time() * 1e6)
        times = pa.field("_loaded_at", pa.int64(), nullable=False)
        for column, values, ages in (
            (pa.field("number", pa.int64()), [901, 902, 903], [5, 2 * 10**6, 5]),
            (pa.field("number", pa.int64()), [902, 903], [5, 2 * 10**6]),
            (pa.field("customer", pa.string()), ["901"], [5]),
        ):
            at = [now - age * 10**6 for age in ages]
            keys = pa.table([values, at], schema=pa.schema([column, times]))
            add = text(
                "INSERT INTO dedup (queue_id, loaded_at, known_until, count, arrow) "
                "VALUES (:queue, :at, :at, 1, :arrow)"
            )
            row = {"queue": queue, "at": now, "arrow": pack(keys, "zstd")}
            connection.execute(add, row)

    with Store(old) as store:
        assert store.queue("orders").load(orders(5, 900)).is_valid().to_pylist() == [
            *(True, False, False, False, True)
        ]


def test_an_old_catalog_that_lacks_a_table_stays_as_it_is(old):
    drop(old, "turns")
    before = schema_of(old)

    with pytest.raises(DamagedCatalog, match="turns"):
        Store(old)

    assert schema_of(old) == before
    assert format_of(old) == "1"


def drop(address, table):
    engine = dialect.connect(address.catalog)
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {table}"))
    engine.dispose()


def test_a_store_that_is_open_while_a_newer_ignis_migrates_it_says_so(store):
    queue = make_queue(store)
    queue.load(orders(3))
    newer = f"UPDATE facts SET value = '{FORMAT + 1}' WHERE name = 'format'"

    def migrate(connection):
        dialect.of(connection).rename_table(connection, "turns", "renamed")
        connection.execute(text(newer))

    store.catalog.write(migrate)

    for call in (queue.fire, queue.metadata):
        with pytest.raises(FormatTooNew, match="upgrade ignis"):
            call()


@pytest.mark.parametrize(
    ("limits", "policy", "wait"),
    [
        ({}, None, None),
        ({"max_attempts": 5}, Retry(5, constant(600)), 600),
        ({"shovel_backoff": 10.0}, Retry(None, exponential(10, max=655_360)), 10),
        ({"max_attempts": 1, "shovel_backoff": 10.0}, Retry(1, exponential(10, max=655_360)), None),
        ({"max_attempts": 5, "shovel_interval": None}, Retry(5, constant(3_155_760_000)), 3.2e9),
    ],
)
def test_limits_of_failures_become_a_policy_with_the_same_waits(old, limits, policy, wait):
    """A queue without them keeps IgnisMQ's way, and what had failed too often stays aside."""
    engine = create_engine(old.catalog, poolclass=NullPool)
    with engine.begin() as connection:
        query = text("SELECT settings FROM queues WHERE name = 'orders'")
        settings = json.loads(connection.scalar(query)) | limits
        change = text("UPDATE queues SET settings = :settings WHERE name = 'orders'")
        connection.execute(change, {"settings": json.dumps(settings)})

    with Store(old) as store:
        assert store.queue("orders").info.settings.retry == policy
        assert {queue: store.queue(queue).info.settings.retry for queue in ("ring", "small")} == {
            "ring": None,
            "small": None,
        }
        failed = [
            row for row in store.view("sideline", "orders").to_pylist() if row["attempts"] == 1
        ]
        assert failed
        for row in failed:
            due = row["due_at"] and (row["due_at"] - row["sidelined_at"]).total_seconds()
            assert (due, row["dead"]) == (
                pytest.approx(wait, rel=0.02),
                limits.get("max_attempts") == 1,
            )
        assert store.fsck().to_pylist() == []
