"""The identity of a store: a catalog has one storage, and a storage obeys one catalog."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from sqlalchemy import delete, select, update

from ignis_sink.load import Intake
from ignis_sink.message import Target
from queue_core import Store
from queue_core.catalog.tables import facts
from queue_core.errors import DamagedCatalog, DamagedSegment, StorageUnavailable
from queue_core.segments import stager
from queue_core.segments.storage import Storage
from queue_core.values.address import Address
from tests.dump import dump
from tests.factories import make_filled, make_queue, numbers_of, orders
from tests.storages import EVERYWHERE, ONLY_SQLITE, Files, mount_again, mount_away

pytestmark = pytest.mark.each_catalog

#: What all stores have that were written before stores had an identity.
NAMES = ("store", "tokens", "place", "storage")


@pytest.fixture
def queue(store, in_files):
    """A queue with ten messages in a file."""
    return make_filled(store, 10)


@pytest.fixture
def elsewhere(tmp_path):
    """The URL of another catalog."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return f"sqlite:///{folder}/catalog.db"


def files_of(store):
    return Files(store.storage.uri).names()


def copied(store, url):
    """Copy a catalog on SQLite, as a backup does."""
    store.catalog.write(lambda c: None)
    with store.catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(store.catalog.file, url.removeprefix("sqlite:///"))


# --- a catalog that is missing --------------------------------------------------------------------


@EVERYWHERE
def test_no_store_is_made_where_the_messages_of_another_are(store, queue, elsewhere):
    before = files_of(store)

    with pytest.raises(DamagedCatalog, match=r"its catalog is missing.*restore.*ignis adopt"):
        Store.open(catalog=elsewhere, storage=store.storage.uri)

    assert not Path(elsewhere.removeprefix("sqlite:///")).exists()
    assert files_of(store) == before
    assert numbers_of(queue.fire("all").messages) == list(range(10))


def test_a_catalog_that_is_away_for_a_moment_is_not_replaced(tmp_path, in_files):
    """Neither by a process that is running nor by one that comes then."""
    catalog, away = tmp_path / "store" / "catalog.db", tmp_path / "catalog.db"
    with Store.open(tmp_path / "store") as store:
        queue = make_filled(store, 10)
        catalog.rename(away)
        with pytest.raises(DamagedCatalog, match="its catalog is missing"):
            queue.load(orders(10))
    with pytest.raises(DamagedCatalog, match="its catalog is missing"):
        Store.open(tmp_path / "store")

    assert not catalog.exists()
    away.rename(catalog)
    with Store.open(tmp_path / "store") as store:
        assert store.admin.vacuum(grace=0) == []
        assert numbers_of(store.queue("orders").fire("all").messages) == list(range(10))


def test_segments_that_no_store_has_marked_are_not_taken_either(tmp_path):
    storage = Storage.open(str(tmp_path))
    with storage.create(storage.new_location("orders")) as sink:
        sink.write(b"x")

    with pytest.raises(DamagedCatalog, match="its catalog is missing"):
        Store.open(tmp_path)

    assert not (tmp_path / "catalog.db").exists()
    assert len(storage.list()) == 1


@EVERYWHERE
@pytest.mark.spoiled
def test_a_new_catalog_takes_a_storage_over_when_a_person_says_so(store, queue, elsewhere):
    with Store.open(catalog=elsewhere, storage=store.storage.uri, adopt=True) as other:
        make_queue(other).load(orders(5))
        assert len(other.admin.vacuum(grace=0)) == 1
        assert numbers_of(other.queue("orders").fire("all").messages) == list(range(5))
    with pytest.raises(StorageUnavailable, match="belongs to another store"):
        store.admin.vacuum(grace=0)
    with pytest.raises(StorageUnavailable, match="belongs to another store"):
        Store(store.address)


@pytest.mark.spoiled
def test_a_catalog_that_adopts_a_storage_leaves_an_hour_to_copy_its_files(store, queue, elsewhere):
    """Also those that have been there for long."""
    (location,) = store.storage.list()
    os.utime(Path(store.storage.uri) / location, (1, 1))
    with Store.open(catalog=elsewhere, storage=store.storage.uri, adopt=True) as other:
        assert other.admin.vacuum(dry_run=True) == []
        assert other.admin.vacuum() == []
        assert list(other.storage.list()) == [location]

        long_ago = update(facts).where(facts.c.name == "restored_at").values(value="1")
        other.catalog.write(lambda connection: connection.execute(long_ago))
        assert other.admin.vacuum() == [location]


# --- a storage that is another, or not mounted ----------------------------------------------------


def test_a_storage_of_another_store_or_an_unmounted_one_is_refused_at_opening(
    store, queue, tmp_path
):
    with Store.open(tmp_path / "other") as other:
        make_queue(other).load(orders(3))
    empty = tmp_path / "mount point"
    empty.mkdir()

    with pytest.raises(StorageUnavailable, match="belongs to another store"):
        Store.open(catalog=store.address.catalog, storage=str(tmp_path / "other"))
    with pytest.raises(StorageUnavailable, match=r"not mounted.*nothing was changed"):
        Store.open(catalog=store.address.catalog, storage=str(empty))
    forget_identity(store)
    with pytest.raises(StorageUnavailable, match="none of the 1 segments"):
        Store.open(catalog=store.address.catalog, storage=str(empty))
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("verb", ["peek", "fire", "load", "vacuum", "browse"])
def test_a_storage_that_is_unmounted_meanwhile_is_lost_and_not_damaged(store, queue, verb):
    calls = {
        "peek": lambda: queue.peek(),
        "fire": lambda: queue.fire("all"),
        "browse": lambda: queue.browse(),
        "load": lambda: queue.load(orders(10, 10)),
        "vacuum": lambda: store.admin.vacuum(grace=0),
    }
    mount_away(store)

    with pytest.raises(StorageUnavailable, match="not mounted"):
        calls[verb]()

    left = {path.name for path in Path(store.storage.uri).iterdir()}
    assert left <= {"catalog.db", "catalog.db-wal", "catalog.db-shm"}
    mount_again(store)
    assert {row["state"] for row in store.view("slices").to_pylist()} <= {"loaded", "fired"}
    assert numbers_of(queue.browse()) == list(range(10))


def test_a_load_into_a_mount_point_whose_storage_went_away_is_not_acknowledged(
    store, queue, monkeypatch
):
    """The storage goes away after it was checked, and before the messages are published."""
    checked = Storage.check

    def check_then_unmount(storage, **how):
        checked(storage, **how)
        monkeypatch.undo()
        monkeypatch.setattr(stager, "INLINE_BYTES", 0)
        mount_away(store)

    monkeypatch.setattr(Storage, "check", check_then_unmount)
    with pytest.raises(StorageUnavailable, match="not mounted"):
        queue.load(orders(10, 10))

    mount_again(store)
    assert numbers_of(queue.browse()) == list(range(10))


@pytest.mark.spoiled
def test_a_segment_that_is_missing_from_its_storage_is_damaged_as_ever(store, queue):
    (location,) = store.storage.list()
    store.storage.remove(location)

    with pytest.raises(DamagedSegment):
        queue.peek()
    assert {row["state"] for row in store.view("slices").to_pylist()} == {"damaged"}


def test_a_task_of_spark_writes_into_no_mount_point(store, queue, tmp_path):
    target = Target(
        storage=store.storage.uri,
        specs={queue.name: queue.info},
        store=store.storage.identity,
    )
    mount_away(store)
    writer = Intake(target)
    writer.add(orders(10).to_batches()[0])

    with pytest.raises(StorageUnavailable, match="not mounted"):
        writer.finish()
    mount_again(store)


# --- two copies of one catalog --------------------------------------------------------------------


@EVERYWHERE
@ONLY_SQLITE
def test_a_copy_of_the_catalog_reads_and_neither_writes_nor_cleans(store, queue, elsewhere):
    copied(store, elsewhere)
    queue.load(orders(10, 10))
    with Store.open(catalog=elsewhere, storage=store.storage.uri) as staging:
        copy = staging.queue("orders")

        assert numbers_of(copy.browse()) == list(range(10))
        assert copy.delete(copy.fire("all")) == 10
        with pytest.raises(StorageUnavailable, match=r"copied, moved or restored.*ignis adopt"):
            staging.admin.vacuum(grace=0)
        with pytest.raises(StorageUnavailable, match="copied, moved or restored"):
            copy.load(orders(1))

    assert store.admin.vacuum(grace=0) == []
    assert numbers_of(queue.fire("all").messages) == list(range(20))


@ONLY_SQLITE
def test_a_catalog_that_was_put_back_in_its_place_cleans_only_when_a_person_says_so(
    store, queue, elsewhere
):
    """A backup that lacks later loads, under the name of the catalog."""
    copied(store, elsewhere)
    queue.load(orders(10, 10))
    store.admin.vacuum(grace=0)
    with store.catalog.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    store.catalog.close()
    backup = Path(elsewhere.removeprefix("sqlite:///"))
    store.catalog.file.write_bytes(backup.read_bytes())

    with Store(store.address) as restored:
        assert numbers_of(restored.queue("orders").browse()) == list(range(10))
        with pytest.raises(StorageUnavailable, match="restored from a backup"):
            restored.admin.vacuum(grace=0)
        assert len(restored.storage.list()) == 2
    with Store(store.address, adopt=True) as restored:
        assert len(restored.admin.vacuum(grace=0)) == 1
        assert numbers_of(restored.queue("orders").browse()) == list(range(10))


@pytest.mark.postgres
def test_a_dump_that_was_restored_into_another_database_does_not_clean(
    postgres, tmp_path, in_files
):
    storage = str(tmp_path / "segments")
    with (
        postgres.database() as live,
        postgres.database() as copy,
        Store.open(catalog=live, storage=storage) as store,
    ):
        queue = make_filled(store, 10)
        with Store.open(catalog=copy, storage=str(tmp_path / "unused")) as other:
            rows = copy_facts(store)
            other.catalog.write(lambda c: c.execute(delete(facts)))
            other.catalog.write(lambda c: c.execute(facts.insert(), rows))
        with (
            Store.open(catalog=copy, storage=storage) as other,
            pytest.raises(StorageUnavailable, match="copied, moved or restored"),
        ):
            other.admin.vacuum(grace=0)
        assert store.admin.vacuum(grace=0) == []
        assert numbers_of(queue.fire("all").messages) == list(range(10))


def copy_facts(store):
    with store.catalog.read() as connection:
        return [dict(row) for row in connection.execute(select(facts)).mappings()]


@EVERYWHERE
def test_every_vacuum_takes_the_storage_anew(store, queue):
    """So a copy that is not told by its place is found out as soon as either has cleaned."""
    rows = {row["name"]: row["value"] for row in copy_facts(store)}
    store.admin.vacuum(grace=0)
    for name in NAMES:
        set_fact(store, name, rows[name])

    with pytest.raises(StorageUnavailable, match="another copy of this catalog owns the storage"):
        store.admin.vacuum(grace=0)


def set_fact(store, name, value):
    store.catalog.write(
        lambda c: c.execute(facts.update().where(facts.c.name == name).values(value=value))
    )


# --- stores without an identity -------------------------------------------------------------------


def forget_identity(store):
    """Turn a store into one of an ignis that knew of no identity."""
    store.catalog.write(lambda c: c.execute(delete(facts).where(facts.c.name.in_(NAMES))))
    for owner in store.storage.owners():
        store.storage.unmark(owner)


@EVERYWHERE
def test_a_store_without_an_identity_gets_one_when_it_is_opened(store, queue):
    forget_identity(store)

    with Store(store.address) as opened:
        assert opened.storage.owners() == {opened.storage.identity}
        assert opened.admin.vacuum(grace=0) == []
        assert numbers_of(opened.queue("orders").browse()) == list(range(10))


@ONLY_SQLITE
def test_a_copy_in_the_folder_of_an_embedded_store_is_recognised(store, queue):
    """Its vacuum would remove what only the store itself knows."""
    copy = f"sqlite:///{store.storage.uri}/copy.db"
    copied(store, copy)
    queue.load(orders(10, 10))

    with (
        Store.open(catalog=copy, storage=store.storage.uri) as other,
        pytest.raises(StorageUnavailable, match="was copied, moved or restored"),
    ):
        other.admin.vacuum(grace=0)

    assert numbers_of(queue.browse()) == list(range(20))


@ONLY_SQLITE
def test_of_two_copies_without_an_identity_one_gets_the_storage(store, queue, elsewhere):
    forget_identity(store)
    copied(store, elsewhere)
    with Store(store.address):
        pass

    with pytest.raises(StorageUnavailable, match="belongs to another store"):
        Store.open(catalog=elsewhere, storage=store.storage.uri)


@EVERYWHERE
def test_of_two_stores_that_take_a_storage_at_once_none_is_deceived(
    storage_uri, tmp_path, monkeypatch
):
    """The second writes its mark after the first has looked whether there is one."""
    marked = Storage.mark

    def mark_late(storage, identity, token):
        monkeypatch.setattr(Storage, "mark", marked)
        with Store.open(catalog=f"sqlite:///{tmp_path}/second.db", storage=storage_uri):
            pass
        marked(storage, identity, token)

    monkeypatch.setattr(Storage, "mark", mark_late)
    with pytest.raises(StorageUnavailable, match="belongs to another store"):
        Store.open(catalog=f"sqlite:///{tmp_path}/first.db", storage=storage_uri)
    with Store.open(catalog=f"sqlite:///{tmp_path}/second.db", storage=storage_uri) as second:
        assert second.storage.owners() == {second.storage.identity}


def test_what_a_crash_left_before_the_mark_is_finished_at_the_next_opening(tmp_path, monkeypatch):
    def die(*_):
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "mark", die)
        with pytest.raises(ZeroDivisionError):
            Store.open(tmp_path / "store")

    with Store.open(tmp_path / "store") as store:
        assert store.storage.owners() == {store.storage.identity}


def test_a_storage_without_room_for_a_new_token_is_cleaned(store, queue, monkeypatch):
    queue.delete(queue.fire("all"))

    def mark(storage, identity, token):
        raise StorageUnavailable("No space left on device")

    monkeypatch.setattr(Storage, "mark", mark)

    assert len(store.admin.vacuum(grace=0)) == 1


def test_addresses_of_the_same_store_may_differ(store, queue, tmp_path):
    """A storage may be mounted elsewhere; it is known by its mark, which no vacuum removes."""
    link = tmp_path / "link"
    link.symlink_to(store.storage.uri)

    with Store(Address(store.address.catalog, str(link))) as other:
        other.queue("orders").load(orders(1))
        before = dump(store)["storage"]
        assert other.admin.vacuum(grace=0) == []
    assert dump(store)["storage"] == before
    assert store.storage.owners() == {store.storage.identity}


def test_a_vacuum_during_a_check_is_not_taken_for_another_copy(store, queue, monkeypatch):
    """It writes its token after the check has read the catalog, and before it reads the mark."""
    token, vacuums = store.storage.token, [0]

    def after_a_vacuum(identity: str) -> str | None:
        if not vacuums[0]:
            vacuums[0] = 1
            store.admin.vacuum()
        return token(identity)

    monkeypatch.setattr(store.storage, "token", after_a_vacuum)

    store.storage.verify()

    assert vacuums == [1]
