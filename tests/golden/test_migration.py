"""A store of this format becomes one of the next, on either database, even with crashes."""

import itertools
import os
import shutil
import signal
import time

import pytest
from sqlalchemy import Engine, event, text

from queue_core import ConsumerPool, Store
from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.format import FORMAT
from queue_core.catalog.identity import clock
from queue_core.errors import DamagedCatalog, FormatTooNew
from queue_core.support import faults
from queue_core.upkeep.leader.lease import LeaseLeader
from queue_core.values.address import Address
from tests.books import audit
from tests.children import Child
from tests.factories import make_queue, orders
from tests.golden.make import described, fill, folder_of, go_on
from tests.golden.next_format import NEXT, format_of, install, next_version, notes, schema_of
from tests.waiting import PATIENCE

PROCESSES = 6
#: How statements begin that change a catalog.
CHANGES = ("ALTER", "CREATE", "DROP", "INSERT", "UPDATE")


@pytest.fixture
def old(catalog_url, tmp_path):
    """The address of the golden store; on PostgreSQL, of one that is filled in the same way."""
    folder = tmp_path / "store"
    address = Address(catalog_url, str(folder))
    if catalog_url.startswith("sqlite"):
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(folder_of(FORMAT), folder)
    else:
        with Store(address) as store:
            # The database is a copy, and has the time at which the first one was made.
            store.catalog.write(clock.accept)
            fill(store)
    return address


def everything_of(address):
    with Store(address, create=False) as store:
        audit(store)
        return described(store)


def test_the_first_process_of_the_next_version_takes_its_step_once(old):
    before, names = everything_of(old), schema_of(old)

    with next_version():
        after = everything_of(old)
        with Store(old) as store:
            written = notes(store)
            queue = store.queue("orders")
            queue.load(orders(10, 5000))
            go_on(queue)
            audit(store)

    assert after == before
    assert schema_of(old) != names
    assert format_of(old) == str(NEXT)
    assert sorted(written) == sorted(f"of {name}" for name in before["schemas"])


def open_at_once(address, begin):
    install()
    time.sleep(max(0.0, begin - time.monotonic()))
    with Store(address) as store:
        store.queue("orders").load(orders(10))


def test_many_processes_may_open_it_at_once(old, tmp_path):
    with Store(old) as store:
        before = len(audit(store).ids())
    begin = time.monotonic() + 0.5
    children = [
        Child(open_at_once, old, begin, log=tmp_path / f"child-{number}")
        for number in range(PROCESSES)
    ]
    ended = [child.wait() for child in children]

    assert ended == [0] * PROCESSES, "".join(child.output() for child in children)
    assert format_of(old) == str(NEXT)
    with next_version(), Store(old) as store:
        assert len(audit(store).ids()) == before + 10 * PROCESSES


def test_a_failure_in_the_middle_leaves_it_as_it_was(old):
    before = schema_of(old)
    faults.arm("migrate.before_commit=raise")

    with next_version(), pytest.raises(faults.InjectedFault):
        Store(old)

    assert (schema_of(old), format_of(old)) == (before, str(FORMAT))
    with Store(old) as store:
        audit(store)


def open_as_next(address):
    install()
    Store(address).close()


@pytest.mark.parametrize(
    ("fault", "version"), [("migrate.before_commit", FORMAT), ("migrate.committed", NEXT)]
)
def test_a_kill_at_the_end_leaves_it_in_one_format(fault, version, old, tmp_path):
    before = everything_of(old)

    child = Child(open_as_next, old, log=tmp_path / "child", fault=fault)

    assert child.wait() == -signal.SIGKILL, child.output()
    assert format_of(old) == str(version)
    with next_version():
        assert everything_of(old) == before


def open_and_die(address, number):
    """Kill this process before the statement of that number that changes something."""
    install()
    changes = itertools.count(1)

    @event.listens_for(Engine, "before_cursor_execute")
    def die(_, __, statement, *___):
        if statement.startswith(CHANGES) and next(changes) == number:
            os.kill(os.getpid(), signal.SIGKILL)

    Catalog(address.catalog).close()


def test_a_kill_before_any_statement_leaves_it_as_it_was(old, tmp_path):
    before, everything = schema_of(old), everything_of(old)
    for number in itertools.count(1):
        ended = Child(open_and_die, old, number, log=tmp_path / f"child-{number}").wait()
        if ended == 0:
            break
        assert ended == -signal.SIGKILL
        assert (schema_of(old), format_of(old)) == (before, str(FORMAT))

    # Those of the step, of the views, and of the format itself.
    assert number > 8
    with next_version():
        assert everything_of(old) == everything


def test_a_store_that_is_open_meanwhile_says_so(old):
    with Store(old) as older:
        queue = older.queue("orders")
        with next_version():
            Store(old).close()
        rename = "ALTER TABLE shard_locks RENAME TO renamed"
        older.catalog.write(lambda connection: connection.execute(text(rename)))

        for call in (queue.fire, queue.metadata):
            with pytest.raises(FormatTooNew, match="upgrade ignis"):
                call()


def test_a_pool_that_runs_meanwhile_ends(old):
    with Store(old) as older:
        pool = ConsumerPool(older, "orders", lambda message: True, tasks=[]).start()
        assert pool.drain(PATIENCE)
        pool.pause()
        older.queue("orders").load(orders(1, 5000))
        with next_version():
            Store(old).close()
        rename = "ALTER TABLE shard_locks RENAME TO renamed"
        older.catalog.write(lambda connection: connection.execute(text(rename)))
        pool.resume()

        for call in (pool.drain, pool.stop):
            with pytest.raises(FormatTooNew, match="upgrade ignis"):
                call(PATIENCE)


def test_a_leader_of_the_former_version_leads_no_more(old):
    with Store(old) as older:
        with next_version():
            Store(old).close()

        # As when it renews its lease.
        leader = LeaseLeader(older.catalog)
        leader.start()
        assert not leader.leads()
        leader.stop()


def test_a_process_that_has_it_open_meanwhile_writes_no_backup_of_the_former_format(old, tmp_path):
    with Store(old) as older:
        with next_version():
            Store(old).close()

        with pytest.raises(FormatTooNew, match=f"has format {NEXT}"):
            older.admin.backup(tmp_path / "backup")

    assert not (tmp_path / "backup" / "manifest.json").exists()


def test_an_older_version_is_refused(old):
    with next_version():
        Store(old).close()

    with pytest.raises(FormatTooNew, match=f"has format {NEXT}"):
        Store(old)


def test_an_old_catalog_that_lacks_a_table_stays_as_it_is(old):
    engine = dialect.connect(old.catalog)
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE waiters"))
    engine.dispose()
    before = schema_of(old)

    with next_version(), pytest.raises(DamagedCatalog, match="waiters"):
        Store(old)

    assert (schema_of(old), format_of(old)) == (before, str(FORMAT))


def test_a_new_store_has_the_newest_format_at_once(catalog_url, tmp_path):
    with next_version(), Store(Address(catalog_url, str(tmp_path / "store"))) as store:
        make_queue(store)

    assert format_of(store.address) == str(NEXT)
