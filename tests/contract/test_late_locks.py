"""Transactions that begin late: on SQLite, others may write while they read and compute."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from unittest import mock

import pytest
from sqlalchemy import func, select, update
from sqlalchemy.exc import OperationalError

from queue_core.catalog import database, dialect
from queue_core.catalog.tables import slices
from queue_core.selection import rounds
from tests.contract.test_slice_batches import stuck
from tests.factories import main, make_filled, make_queue, numbers_of, orders
from tests.statements import heard
from tests.storages import ONLY_SQLITE

pytestmark = pytest.mark.each_catalog

#: The most statements for which an act keeps others from SQLite.
MOST = 16


def count_of(connection):
    return connection.scalar(select(func.count()).select_from(slices))


@pytest.mark.parametrize("times", [1, database.LATE_ATTEMPTS])
def test_others_write_while_it_reads_and_it_reads_again(store, times):
    queue = make_queue(store)
    parallel = dialect.of(store.catalog.engine).writes_in_parallel
    seen = []

    def work(connection):
        seen.append(count_of(connection))
        if len(seen) <= times:
            queue.load(orders(1, len(seen)))
        dialect.of(connection).take(connection)
        connection.execute(update(slices).values(bytes=slices.c.bytes))
        return seen[-1]

    assert store.catalog.write(work, late=True) == (0 if parallel else times)
    assert seen == ([0] if parallel else [*range(times + 1)])
    assert main(queue) == [*range(1, 1 + (1 if parallel else times))]


@ONLY_SQLITE  # nobody waits for the whole catalog of a server
def test_after_some_failures_it_keeps_others_waiting(store):
    queue = make_queue(store)
    taken = []

    def work(connection):
        if len(taken) < database.LATE_ATTEMPTS:
            taken.append(False)
            count_of(connection)
            queue.load(orders(1))
        else:
            with store.catalog.engine.connect() as other:
                other.exec_driver_sql("PRAGMA busy_timeout = 0")
                with pytest.raises(OperationalError, match="locked"):
                    other.exec_driver_sql("BEGIN IMMEDIATE")
                other.invalidate()
            taken.append(True)
        dialect.of(connection).take(connection)

    store.catalog.write(work, late=True)
    assert taken == [False] * database.LATE_ATTEMPTS + [True]


@ONLY_SQLITE
def test_it_begins_to_read_when_nobody_writes(store):
    queue, seen = make_queue(store), []

    def work(connection):
        seen.append(count_of(connection))
        dialect.of(connection).take(connection)

    with store.catalog.engine.connect() as other, ThreadPoolExecutor(1) as pool:
        other.exec_driver_sql("BEGIN IMMEDIATE")
        written = pool.submit(store.catalog.write, work, late=True)
        time.sleep(0.1)
        assert not seen
        other.rollback()
        written.result()
    assert seen == [0]
    # The same connection can be used again.
    queue.load(orders(1))
    assert numbers_of(queue.browse()) == [0]


def test_a_failure_of_the_work_changes_nothing(store):
    queue = make_filled(store, 3)

    def work(connection):
        dialect.of(connection).take(connection)
        connection.execute(update(slices).values(bytes=0))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        store.catalog.write(work, late=True)
    with store.catalog.read() as connection:
        assert connection.scalar(select(func.min(slices.c.bytes))) > 0
    # The next transaction of the same connection begins as it is asked to.
    queue.load(orders(1, 3))
    assert numbers_of(queue.browse()) == [0, 1, 2, 3]


@contextmanager
def held(store):
    """Note the statements of each transaction after it has locked others out."""
    engine, found = store.catalog.engine, []
    kind = type(dialect.of(engine))
    take, begin = kind.take, kind.begin

    def begin_noted(self, connection, *, write, late=False, **how):
        begin(self, connection, write=write, late=late, **how)
        connection.info["held"] = [] if write and not late else None

    def take_noted(self, connection):
        take(self, connection)
        if connection.info.get("held") is None:
            connection.info["held"] = []

    def note(connection, _, statement, *__):
        if connection.info.get("held") is not None:
            connection.info["held"].append(statement)

    def ended(_, record):
        if record.info.get("held"):
            found.append(record.info["held"])
        record.info["held"] = None

    with (
        heard(engine, before_cursor_execute=note, checkin=ended),
        mock.patch.object(kind, "begin", begin_noted),
        mock.patch.object(kind, "take", take_noted),
    ):
        yield found


def waiting(store):
    return make_filled(store, 30, each=1, shards=2)


def aside(store):
    queue = waiting(store)
    queue.sideline(queue.fire("all").ids, "no such customer")
    return queue


ACTS = {
    "delete": (waiting, lambda queue: queue.choose("all").delete()),
    "sideline": (waiting, lambda queue: queue.choose("all").sideline("by me")),
    "requeue": (aside, lambda queue: queue.choose("all").requeue()),
    "reload": (
        lambda store: stuck(store, 30, shards=2),
        lambda queue: queue.choose("all").reload(dead_after=0),
    ),
    "shovel": (aside, lambda queue: queue.shovel(force=True)),
    "shovel some": (aside, lambda queue: queue.shovel(29, force=True)),
    "shovel by selector": (aside, lambda queue: queue.shovel(selector="number >= 0", force=True)),
    "sweep": (
        lambda store: stuck(store, 30, shards=2),
        lambda queue: queue.sweep(10, dead_after=0),
    ),
}


@pytest.mark.parametrize("name", ACTS)
@ONLY_SQLITE
def test_brief_acts_read_their_slices_before_they_lock_others_out(store, name):
    make, act = ACTS[name]
    queue = make(store)

    with held(store) as found, rounds.brief():
        assert act(queue) == (29 if name == "shovel some" else 30)
    assert found
    for statements in found:
        assert len(statements) <= MOST, statements
        assert not [each for each in statements if each.startswith("SELECT slices")], statements
