"""An embedded store on a full disk: calls that free room work, and others are refused."""

import os
from functools import partial

import pyarrow as pa
import pytest

from queue_core import Store
from queue_core.catalog.reserve import LEAST_BYTES
from queue_core.errors import CatalogUnavailable, IgnisError, StorageUnavailable
from queue_core.verbs.acknowledge import acknowledge
from tests.books import leftover_files
from tests.factories import ORDERS, load_until_full, make_filled, make_queue, numbers_of, orders
from tests.forks import NoDisk, in_a_fork, on_a_disk_of

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")

SIZE = 4_000_000


@pytest.fixture
def on_a_small_disk(tmp_path):
    """Run work, given a folder, where that folder is a disk of four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()

    def run(work, *arguments):
        try:
            return in_a_fork(on_a_disk_of(SIZE, disk, partial(work, disk, *arguments)))
        except NoDisk as error:
            pytest.skip(f"this user may neither mount a disk nor make a namespace: {error}")

    return run


def fill(disk):
    """Take the last byte of a disk."""
    ballast = os.open(disk / "ballast", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for size in (65_536, 1):
        try:
            while os.write(ballast, bytes(size)):
                pass
        except OSError:
            pass
    os.close(ballast)


def reserve_of(disk):
    return (disk / "store" / "catalog.db-reserve").stat().st_size


# --- errors ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [300, 20_000])
def test_a_full_disk_is_an_error_and_loses_nothing(on_a_small_disk, size):
    """It can be used again once there is room."""
    on_a_small_disk(_is_full_and_loses_nothing, size)


def _is_full_and_loses_nothing(disk, size):
    ballast = disk / "ballast"
    with Store.open(disk / "store") as store:
        queue = make_queue(store)
        ballast.write_bytes(bytes(1_000_000))

        loaded, message = load_until_full(queue, size)

        assert "nothing was changed" in message
        assert "full disk" in message or "No space left" in message
        assert numbers_of(queue.browse()) == list(range(loaded))
        assert leftover_files(store) == set()

        ballast.unlink()
        queue.load(orders(5, loaded))
        assert numbers_of(queue.fire("all").messages) == list(range(loaded + 5))


def test_every_write_on_a_full_disk_works_or_raises_an_error_of_ignis(on_a_small_disk):
    on_a_small_disk(_works_or_raises)


def _works_or_raises(disk):
    with Store.open(disk / "store") as store:
        queue = make_queue(store, dedup=("number",))
        waiting = make_filled(store, 1000, "waiting", each=50)
        queue.load(orders(1_000))
        firing = queue.fire(500)
        # Its messages go to files. The keys of the other queue's would fill the catalog's log.
        load_until_full(make_queue(store, "filler"), 3_000)
        writes = {
            "load": lambda: queue.load(orders(100, 10_000)),
            "a large load": lambda: queue.load(orders(50_000, 20_000)),
            "create": lambda: store.create_queue("new", ORDERS),
            "columns": lambda: queue.admin.add_columns(pa.schema([pa.field("more", pa.int64())])),
            "settings": lambda: queue.admin.change_settings(sweep_after=5.0),
            "compact": waiting.admin.compact,
            "sideline": lambda: queue.sideline(firing, "x" * 2_000),
            "fire": lambda: queue.fire(10),
            "sweep": lambda: queue.sweep(0),
            "shovel": queue.shovel,
            "expire": queue.admin.expire,
            "repair": queue.admin.repair,
            "recover": store.admin.recover,
            "vacuum": store.admin.vacuum,
            "another store": lambda: Store.open(disk / "another"),
            "the same store": lambda: Store.open(disk / "store").close(),
        }
        refused = set()
        for name, write in writes.items():
            fill(disk)
            try:
                write()
            except IgnisError:
                refused.add(name)
        assert refused >= {"a large load", "another store"}
        # What is small may fit into the room that the catalog's log has left from before.
        assert refused <= {"load", "a large load", "another store", "create", "columns", "compact"}


# --- the reserve ----------------------------------------------------------------------------------


@pytest.mark.parametrize("reopened", [False, True])
def test_a_full_store_settles_acknowledges_and_vacuums(on_a_small_disk, in_files, reopened):
    on_a_small_disk(_settles_and_vacuums, reopened)


def _settles_and_vacuums(disk, reopened):
    store = Store.open(disk / "store")
    queue = make_filled(store, 1_000)
    firing, other = queue.fire(300), queue.fire(300)
    (disk / "ballast").write_bytes(bytes(500_000))
    loaded, _ = load_until_full(queue, 3_000, 1_000)
    if reopened:
        # Its log goes with the last connection, and a new one needs room.
        store.close()
    else:
        # Its log has no room left from before.
        (disk / "ballast").unlink()
        with store.catalog.engine.connect() as connection:
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    fill(disk)
    if reopened:
        store = Store.open(disk / "store")
        queue = store.queue("orders")

    assert queue.delete(firing) == 300
    assert queue.sideline(other, "declined") == 300
    left = numbers_of(queue.fire(500).messages)
    assert left == list(range(600, 1_100))
    assert acknowledge(store.catalog, queue.fire(200).ticket.consumer, 10, delete=True) == 700
    fill(disk)
    with pytest.raises((CatalogUnavailable, StorageUnavailable), match="nothing was changed"):
        queue.load(orders(10))
    drained = queue.fire("all")
    assert len(drained) == loaded - 1_300
    assert queue.delete(drained) == len(drained)
    assert len(store.admin.vacuum(grace=0)) > 0
    assert len(queue.load(orders(1_000))) == 1_000
    assert reserve_of(disk) >= LEAST_BYTES
    store.close()


def test_loads_leave_the_reserve_alone_until_there_is_room(on_a_small_disk):
    on_a_small_disk(_loads_leave_the_reserve)


def _loads_leave_the_reserve(disk):
    with Store.open(disk / "store") as store:
        queue = make_queue(store)
        before = reserve_of(disk)
        assert before >= LEAST_BYTES
        # Room for the log of one load, beside the reserve.
        (disk / "other").write_bytes(bytes(128 * 1024))
        load_until_full(queue, 300)
        assert reserve_of(disk) >= before
        # As if a process had died between giving the reserve up and making it again.
        os.truncate(disk / "store" / "catalog.db-reserve", 0)
        fill(disk)

        with pytest.raises(CatalogUnavailable, match="full disk"):
            queue.load(orders(1))

        (disk / "ballast").unlink()
        (disk / "other").unlink()
        assert len(queue.load(orders(1))) == 1
        assert reserve_of(disk) >= before
