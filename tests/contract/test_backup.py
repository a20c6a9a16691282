"""A backup of a store in use, and its restore."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest
from sqlalchemy import select, update

from ignis_sink.options import SinkOptions
from ignis_sink.publishing import publish
from queue_core import ConsumerPool, Store
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers, leases
from queue_core.catalog.tables import facts, files
from queue_core.consumers import presence
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    Conflict,
    ConsumerFenced,
    DamagedBackup,
    FormatTooNew,
    SchemaMismatch,
    StorageUnavailable,
)
from queue_core.segments import stager
from queue_core.segments.storage import Storage
from queue_core.support.faults import InjectedFault, arm
from queue_core.upkeep.backup.backup import Hold
from queue_core.upkeep.backup.folder import BackupFolder
from queue_core.upkeep.backup.restore import Restored, verify
from queue_core.verbs.quarantine import quarantine
from tests.books import audit
from tests.contract.pools import Recorder
from tests.dump import dump, rows_in
from tests.factories import make_batch, make_queue, make_staged, numbers_of, orders, publish_once
from tests.forks import in_a_fork
from tests.storages import EVERYWHERE
from tests.waiting import PATIENCE, until


@pytest.fixture
def queue(store, monkeypatch):
    """A queue with messages in files and in the catalog; some are in flight."""
    queue = make_queue(store, shards=2, key="number")
    queue.load(orders(5))
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    queue.load(orders(10, 5))
    queue.sideline(queue.fire(max_messages=2))
    queue.fire(max_messages=3)
    return queue


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "backup"


def everything(store, name="orders"):
    queue = store.queue(name)
    tables = [queue.browse(), queue.browse(magazine="sideline")]
    return sorted(number for table in tables for number in numbers_of(table))


def books_of(store):
    """The rows that a restore keeps: those that belong neither to processes nor to the identity."""
    rows = dump(store)
    return {name: rows[name] for name in ("queues", "schemas", "segments", "slices", "counters")}


# --- into a new place -----------------------------------------------------------------------------


@pytest.mark.each_catalog
@EVERYWHERE
@pytest.mark.parametrize("target", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_a_store_moves_to_a_new_place_on_either_database(
    request, store, queue, folder, tmp_path, target
):
    make_queue(store, "unique", dedup=["number"]).load(orders(3))
    saved = store.admin.backup(folder)
    new = {"catalog": f"sqlite:///{tmp_path}/new/catalog.db", "storage": str(tmp_path / "new")}
    if target == "postgres":
        with request.getfixturevalue("postgres").database() as url:
            check_moved(store, folder, new | {"catalog": url}, saved)
    else:
        check_moved(store, folder, new, saved)


def check_moved(store, folder, new, saved):
    restored = Store.restore(folder, **new)

    assert (restored.messages, restored.found, restored.damaged) == (18, (), 0)
    assert restored.copied == saved.copied == saved.segments > 0
    with Store.open(**new, create=False) as other:
        assert books_of(other) == books_of(store)
        audit(other)
        assert other.admin.fsck().num_rows == 0
        assert other.storage.identity != store.storage.identity
        # Both go on by themselves.
        given = []
        for each in (store, other):
            given.append(each.queue("orders").load(orders(5, 100)).to_pylist())
            assert each.admin.vacuum(grace=0) == []
            assert everything(each) == [*range(15), *range(100, 105)]
            ids = each.queue("unique").load(orders(4))
            assert [id is None for id in ids.to_pylist()] == [True, True, True, False]
        # Something of the lost time that names a message must not name another one.
        assert max(given[0]) < min(given[1])
        audit(other)


def test_a_restore_takes_only_an_empty_place(store, queue, folder, tmp_path):
    store.admin.backup(folder)
    with Store.open(tmp_path / "used") as used:
        make_queue(used, "own").load(orders(3))
        before = dump(used)
        for over in (False, True):
            with pytest.raises(BadOption, match=r"another store.*nothing was changed"):
                Store.restore(folder, tmp_path / "used", over=over)
        assert dump(used) == before
    with pytest.raises(BadOption, match=r"is not empty.*nothing was changed.*--over"):
        Store.restore(folder, catalog=store.address.catalog, storage=store.address.storage)


# --- the backup -----------------------------------------------------------------------------------


@pytest.mark.each_catalog
def test_a_second_backup_copies_what_is_new_and_forgets_what_is_gone(store, queue, folder):
    queue.load(orders(5, 100))
    first = store.admin.backup(folder)
    before = len(list(folder.rglob("segments/**/*.arrow")))
    queue.delete(queue.fire("all", selector="number >= 100"))
    queue.load(orders(5, 200))
    second = store.admin.backup(folder)

    assert first.copied == first.segments
    assert 0 < second.copied < second.segments < before + second.copied
    held = {str(file.relative_to(folder)) for file in folder.rglob("segments/**/*.arrow")}
    with store.catalog.read() as connection:
        named = connection.scalars(select(files.c.location).where(files.c.state == "live"))
        assert held == set(named)
    assert len(list(folder.glob("catalog-*"))) == 1
    # A copy that was cut short is no copy, whenever it was written.
    (folder / min(held)).write_bytes(b"")
    os.utime(folder / min(held), (0, 0))
    assert store.admin.backup(folder).copied == 1
    assert store.admin.backup(folder).copied == 0


def test_copies_in_a_folder_that_is_listed_in_another_case_stay(store, queue, folder):
    """As on a disk where case does not count, whose folder was made for another queue."""
    store.admin.backup(folder)
    backup = BackupFolder(folder)
    manifest = backup.manifest()
    copies = backup.segments(manifest)
    (folder / "segments" / "orders").rename(folder / "segments" / "Orders")

    backup.finish(manifest, copies)

    assert len(list(folder.rglob("segments/**/*.arrow"))) == len(copies) > 0


def test_a_backup_is_complete_although_it_cannot_remove_a_file_of_the_earlier_one(
    store, queue, folder
):
    store.admin.backup(folder)
    # Nobody can unlink a folder, as nobody but its owner can unlink a file.
    (folder / "segments" / "dropped" / "old.arrow").mkdir(parents=True)

    assert store.admin.backup(folder).copied == 0
    assert verify(BackupFolder(folder))[1] == []


@pytest.mark.spoiled
def test_a_copy_that_was_altered_since_is_copied_again(store, queue, folder, monkeypatch):
    store.admin.backup(folder)
    spoil(min(folder.glob("segments/*/*.arrow")), "flip")

    assert store.admin.backup(folder).copied == 1
    assert verify(BackupFolder(folder))[1] == []

    # Those that are older than the backup are not read.
    for file in folder.glob("segments/*/*.arrow"):
        os.utime(file, (0, 0))
    read = []
    digest = BackupFolder.digest
    monkeypatch.setattr(BackupFolder, "digest", lambda self, f: read.append(f) or digest(self, f))
    assert store.admin.backup(folder).copied == 0
    assert not any("segments" in file.parts for file in read)


@pytest.mark.each_catalog
@pytest.mark.parametrize("method", ["finish", "copy_in"])
def test_a_backup_that_dies_leaves_the_earlier_one(
    store, queue, folder, tmp_path, monkeypatch, method
):
    store.admin.backup(folder)
    before = set(folder.rglob("*.arrow"))
    queue.load(orders(5, 100))

    with monkeypatch.context() as patch:
        if method == "finish":
            patch.setattr(BackupFolder, "finish", die)
        else:
            patch.setattr(Storage, "read", die)
        with pytest.raises(ZeroDivisionError):
            store.admin.backup(folder)
    if method == "copy_in":
        assert set(folder.rglob("segments/**/*.arrow")) <= before, "a part of a copy stays"
    Store.restore(folder, tmp_path / "new")

    with Store.open(tmp_path / "new") as other:
        assert everything(other) == list(range(15))
    store.admin.backup(folder)
    assert len(list(folder.glob("catalog-*"))) == 1


def die(*_):
    raise ZeroDivisionError


@pytest.mark.each_catalog
@EVERYWHERE
def test_what_is_settled_and_vacuumed_meanwhile_is_in_the_backup(store, queue, folder, tmp_path):
    """All messages are deleted, and a vacuum runs, when the catalog is read and no file copied."""
    done = []

    def progress(kind, number, count):
        if kind == "tables" and number == count - 1 and not done:
            done.append(True)
            drop_all(store)

    store.admin.backup(folder, progress=progress)
    assert everything(store) == []
    Store.restore(folder, tmp_path / "new")

    with Store.open(tmp_path / "new") as other:
        assert everything(other) == list(range(15))
        audit(other)
    assert len(store.admin.vacuum(grace=0)) > 0


def drop_all(store):
    with Store(store.address) as other:
        delete_all(other)
        assert other.admin.vacuum(grace=0) == []
        assert other.admin.vacuum(grace=0, dry_run=True) == []


def test_a_hold_that_ended_spoils_the_backup_and_not_the_next_one(store, queue, folder):
    def end(kind, *_):
        if kind == "segments":
            store.catalog.write(lambda c: c.execute(update(leases.leases).values(ends_at=0)))

    with pytest.raises(CatalogUnavailable, match="begin again"):
        store.admin.backup(folder, progress=end)
    assert not (folder / "manifest.json").exists()
    assert rows_in(store, leases.leases) == 0

    store.admin.backup(folder)
    assert (folder / "manifest.json").exists()


def test_the_hold_of_a_backup_that_was_killed_goes_with_that_of_the_next_one(store):
    killed = f"{leases.BACKUP}killed"
    store.catalog.write(lambda c: leases.hold(c, killed, killed, 0.0))

    with Hold(store.catalog):
        pass

    assert rows_in(store, leases.leases) == 0


def test_a_hold_is_renewed_while_it_lasts(store, monkeypatch):
    monkeypatch.setattr("queue_core.upkeep.backup.backup.RENEWED_SECONDS", 0.01)

    def latest():
        with store.catalog.read() as connection:
            return connection.scalar(select(leases.leases.c.ends_at))

    with Hold(store.catalog):
        first = latest()
        until(lambda: latest() > first)


@pytest.mark.parametrize("inner", ["backup", "segments/backup", "segments", "."])
def test_a_folder_within_the_storage_is_refused(store, queue, tmp_path, inner):
    there = sorted(tmp_path.rglob("*"))
    (tmp_path / "link").symlink_to(tmp_path / "store")
    for root in ("store", "link"):
        with pytest.raises(BadOption, match="is in the storage of the store itself"):
            store.admin.backup(tmp_path / root / inner)
    (tmp_path / "link").unlink()
    assert sorted(tmp_path.rglob("*")) == there
    store.admin.backup(tmp_path / "store-backup")


def test_a_folder_with_something_else_is_left_alone(store, queue, folder, tmp_path):
    folder.mkdir()
    (folder / "letter.txt").write_text("dear")
    with pytest.raises(BadOption, match="not empty, and holds no backup"):
        store.admin.backup(folder)
    assert [each.name for each in folder.iterdir()] == ["letter.txt"]
    with pytest.raises(BadOption, match="no complete backup"):
        Store.restore(folder, tmp_path / "new")

    with Store.open(tmp_path / "other") as other:
        other.admin.backup(tmp_path / "others")
    with pytest.raises(BadOption, match="a backup of another store"):
        store.admin.backup(tmp_path / "others")


@pytest.mark.spoiled
def test_a_segment_that_is_missing_is_named_and_its_messages_are_set_apart(
    store, queue, folder, tmp_path
):
    gone = min(store.storage.list())
    store.storage.remove(gone)

    assert store.admin.backup(folder).missing == (gone,)

    restored = Store.restore(folder, tmp_path / "new")
    assert restored.damaged > 0
    with Store.open(tmp_path / "new") as other:
        assert len(everything(other)) == 15 - restored.damaged
        (report,) = [row for row in other.view("reports").to_pylist() if row["task"] == "restore"]
        assert (report["moved"], report["to"]) == (restored.damaged, "damaged")


@pytest.mark.spoiled
@pytest.mark.parametrize("how", ["flip", "cut", "empty"])
def test_a_segment_that_is_damaged_in_the_storage_is_named_and_not_copied(
    store, queue, folder, tmp_path, how
):
    """A copy from an earlier backup stays."""
    queue.load(orders(5, 15))
    damaged, other = sorted(store.storage.list())[:2]
    spoil(Path(store.storage.folder) / damaged, how)

    assert store.admin.backup(folder).missing == (damaged,)
    count, faults = verify(BackupFolder(folder))
    assert (count, len(faults)) == (1, 1)
    assert faults[0].startswith(f"{damaged} is not in the backup")
    assert Store.restore(folder, tmp_path / "new").damaged > 0

    spoil(Path(store.storage.folder) / other, how)
    assert store.admin.backup(folder).missing == (damaged,)
    again = Store.restore(folder, tmp_path / "newer")
    assert 0 < again.damaged < 20


def test_one_backup_at_a_time_writes_into_a_folder(store, queue, folder, tmp_path):
    refused = []

    def progress(kind, number, count):
        if kind == "segments" and not refused:
            with Store(store.address) as another:
                with pytest.raises(Conflict, match=r"another backup is being written.*wait until"):
                    another.admin.backup(folder)
                refused.append(another.admin.backup(tmp_path / "elsewhere").messages)

    store.admin.backup(folder, progress=progress)

    assert refused == [15]
    assert verify(BackupFolder(folder))[1] == []
    assert Store.restore(folder, tmp_path / "new").messages == 15
    assert store.admin.backup(folder).copied == 0


@pytest.mark.spoiled
def test_a_backup_without_its_list_is_written_anew(store, queue, folder, tmp_path):
    whole = store.admin.backup(folder)
    spoil(min(folder.glob("*/segment files.arrow")), "remove")

    assert store.admin.backup(folder).copied == whole.copied
    assert verify(BackupFolder(folder))[1] == []


# --- a backup that is damaged ---------------------------------------------------------------------


@pytest.mark.spoiled
@pytest.mark.parametrize("how", ["flip", "remove"])
@pytest.mark.parametrize(
    "which", ["manifest.json", "slices.arrow", "segment files.arrow", "segments/*/*.arrow"]
)
def test_a_damaged_backup_changes_nothing(store, queue, folder, which, how):
    store.admin.backup(folder)
    with store.catalog.read() as connection:
        locations = connection.scalars(select(files.c.location)).all()
    for location in locations:
        store.storage.remove(location)
    before = dump(store)
    pattern = which if "/" in which or which == "manifest.json" else f"*/{which}"
    spoil(min(folder.glob(pattern)), how)

    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    expected = BadOption if (which, how) == ("manifest.json", "remove") else DamagedBackup
    with pytest.raises(expected, match="backup"):
        Store.restore(folder, **where, over=True)

    assert dump(store) == before


@pytest.mark.spoiled
@pytest.mark.parametrize("how", ["flip", "remove"])
def test_a_place_of_a_refused_restore_stays_empty(store, queue, folder, tmp_path, how):
    store.admin.backup(folder)
    file = max(folder.glob("segments/*/*.arrow"))
    whole = file.read_bytes()
    spoil(file, how)
    with pytest.raises(DamagedBackup, match="restore from another backup"):
        Store.restore(folder, tmp_path / "new")
    assert [each for each in (tmp_path / "new").rglob("*") if each.is_file()] == []

    file.write_bytes(whole)
    assert Store.restore(folder, tmp_path / "new").messages == 15


@pytest.mark.parametrize("point", ["restore.copied", "restore.before_commit"])
def test_a_place_is_empty_after_a_restore_that_failed_before_its_commit(
    store, queue, folder, tmp_path, point
):
    store.admin.backup(folder)
    arm(f"{point}=raise")
    with pytest.raises(InjectedFault):
        Store.restore(folder, tmp_path / "new")
    assert list((tmp_path / "new").rglob("*.arrow")) == []

    assert Store.restore(folder, tmp_path / "new").messages == 15


def test_what_was_copied_stays_once_the_catalog_may_be_that_of_the_backup(
    store, queue, folder, tmp_path, monkeypatch
):
    store.admin.backup(folder)
    write = Catalog.write

    def loses_the_answer(self, work, **options):
        done = write(self, work, **options)
        if isinstance(done, Restored):
            raise CatalogUnavailable("the connection was lost")
        return done

    with monkeypatch.context() as patch:
        patch.setattr(Catalog, "write", loses_the_answer)
        with pytest.raises(CatalogUnavailable, match="was lost"):
            Store.restore(folder, tmp_path / "new")

    again = Store.restore(folder, tmp_path / "new", over=True)
    assert (again.messages, again.copied, again.damaged) == (15, 0, 0)


def spoil(file, how):
    data = file.read_bytes()
    match how:
        case "flip":
            middle = len(data) // 2
            file.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
        case "remove":
            file.unlink()
        case "cut":
            file.write_bytes(data[:-1000])
        case "empty":
            file.write_bytes(b"")


def test_an_altered_manifest_is_refused(store, queue, folder, tmp_path):
    store.admin.backup(folder)
    content = json.loads((folder / "manifest.json").read_text())
    altered = content | {"taken_at": content["taken_at"] + 1}
    more = content | {"more": 1}
    del more["sha256"]
    digest = hashlib.sha256(json.dumps(more, sort_keys=True).encode()).hexdigest()
    for wrong in (altered, more | {"sha256": digest}):
        (folder / "manifest.json").write_text(json.dumps(wrong))
        with pytest.raises(DamagedBackup, match="is altered or torn"):
            Store.restore(folder, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_a_backup_of_a_newer_ignis_is_refused(store, queue, folder, tmp_path):
    store.admin.backup(folder)
    for name in ("version", "format"):
        content = json.loads((folder / "manifest.json").read_text())
        content.pop("sha256")
        newer = BackupFolder(folder).manifest()
        object.__setattr__(newer, name, content[name] + 1)
        (folder / "manifest.json").write_text(newer.to_json())
        with pytest.raises(FormatTooNew, match="upgrade ignis"):
            Store.restore(folder, tmp_path / "new")
        object.__setattr__(newer, name, content[name])
        (folder / "manifest.json").write_text(newer.to_json())
    assert not (tmp_path / "new").exists()


# --- over the same storage ------------------------------------------------------------------------


def over(store, folder):
    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    return Store.restore(folder, **where, over=True)


@EVERYWHERE
@pytest.mark.parametrize("segments", [True, False], ids=["with segments", "catalog alone"])
def test_segments_that_are_newer_than_the_backup_stay(store, queue, folder, segments):
    saved = store.admin.backup(folder, segments=segments)
    assert (saved.segments > 0) == segments
    before = everything(store)
    queue.load(orders(10, 100))
    newer = set(store.storage.list())

    restored = over(store, folder)

    assert restored.damaged == 0
    assert len(restored.found) > 0
    with Store(store.address, create=False) as again:
        assert everything(again) == before
        assert again.admin.vacuum(grace=0) == []
        assert again.admin.fsck().num_rows == 0
        assert set(again.storage.list()) == newer
        again.queue("orders").load(orders(1, 300))
        (report,) = [row for row in again.view("reports").to_pylist() if row["task"] == "restore"]
        assert report["moved"] == len(restored.found)
        assert (
            again.admin.leftovers() == again.admin.leftovers(give_up=True) == list(restored.found)
        )
        assert set(again.admin.vacuum(grace=0)) == {*restored.found}
        assert everything(again) == [*before, 300]


@pytest.mark.spoiled
@pytest.mark.parametrize(("segments", "lost"), [(True, 0), (False, 10)])
def test_what_was_settled_since_is_there_again(store, queue, folder, segments, lost):
    """A backup of the catalog alone sets apart what was vacuumed since."""
    store.admin.backup(folder, segments=segments)
    delete_all(store)
    store.admin.vacuum(grace=0)
    assert everything(store) == []

    restored = over(store, folder)

    assert restored.damaged == lost
    assert (restored.copied > 0) == segments
    with Store(store.address, create=False) as again:
        assert everything(again) == list(range(15 - lost))
        assert sum(again.view("shards").column("damaged").to_pylist()) == lost
        if not lost:
            audit(again)


@pytest.mark.each_catalog
@EVERYWHERE
def test_a_report_of_a_segment_that_is_back_sets_no_messages_apart(store, queue, folder):
    """An executor has left it, and nobody has read it before the restore."""
    store.admin.backup(folder)
    gone = min(store.storage.list())
    store.storage.remove(gone)
    store.storage.report_damage(gone, "it is missing")

    done = over(store, folder)
    assert (done.copied, done.damaged) == (1, 0)
    with Store(store.address, create=False) as again:
        assert quarantine(again.catalog, again.storage) == 0
        assert everything(again) == list(range(15))


@pytest.mark.each_catalog
def test_no_ticket_is_assigned_twice(store, queue, folder):
    """Else a process that was not stopped settles what the next life of its consumer holds."""
    consumer = store.consumer("till")
    store.admin.backup(folder)
    old = queue.fire(3, consumer=consumer)

    over(store, folder)
    with Store(store.address, create=False) as again:
        same = again.queue("orders")
        new = same.fire(3, consumer=again.consumer("till"))
        assert set(new.ids.to_pylist()) == set(old.ids.to_pylist())
        assert queue.delete(old) == 0
        assert same.delete(new) == 3


def delete_all(store):
    queue = store.queue("orders")
    queue.sweep(0.0, dead_after=0.0)
    queue.shovel(force=True)
    queue.delete(queue.fire("all"))


def test_a_catalog_that_is_lost_is_restored_beside_its_segments(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(stager, "INLINE_BYTES", 0)
    with Store.open(tmp_path / "store") as store:
        make_queue(store).load(orders(10))
        store.admin.backup(folder, segments=False)
        identity = store.storage.identity
        store.queue("orders").load(orders(10, 10))
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        (tmp_path / "store" / name).unlink(missing_ok=True)

    with pytest.raises(BadOption, match="not empty"):
        Store.restore(folder, tmp_path / "store")
    restored = Store.restore(folder, tmp_path / "store", over=True)

    assert len(restored.found) == 1
    with Store.open(tmp_path / "store", create=False) as again:
        assert again.storage.identity == identity
        assert everything(again) == list(range(10))
        assert again.admin.vacuum(grace=0) == []


def test_the_old_catalog_does_not_own_the_storage_any_more(store, queue, folder, tmp_path):
    store.admin.backup(folder)
    new = f"sqlite:///{tmp_path}/restored.db"

    Store.restore(folder, catalog=new, storage=store.address.storage, over=True)

    with pytest.raises(StorageUnavailable, match="ignis adopt"):
        store.admin.vacuum(grace=0)
    with pytest.raises(StorageUnavailable, match="ignis adopt"):
        store.queue("orders").load(orders(1))
    with Store.open(catalog=new, storage=store.address.storage) as restored:
        restored.queue("orders").load(orders(5, 100))
        assert restored.admin.vacuum(grace=0) == []


@pytest.mark.each_catalog
@pytest.mark.parametrize("days", [0, 2])
def test_a_process_from_before_the_restore_is_fenced_off(store, queue, folder, monkeypatch, days):
    """Its consumer has the name and the number of one that is restored, and could settle for it."""
    consumer = store.consumer("worker")
    store.admin.backup(folder)
    consumer = store.consumer("worker")
    firing = queue.fire(max_messages=2)

    over(store, folder)
    with Store(store.address) as again:
        again.consumer("worker")

    with pytest.raises(ConsumerFenced):
        store.catalog.write(lambda connection: consumers.check(connection, consumer))
    if days:
        # It would take another name by now.
        monkeypatch.setattr(presence, "RENEW_AFTER", -1)
    with pytest.raises(ConsumerFenced):
        queue.fire(max_messages=1)
    queue.delete(firing)
    assert everything(store) == list(range(15))


def test_a_process_that_was_not_stopped_takes_and_settles_as_the_page_says(store, queue, folder):
    """No life of its consumers has begun since."""
    till = store.consumer("till", beats=True)
    held, kept = queue.fire(4, consumer=till), queue.get_and_keep(1)
    store.admin.backup(folder)
    since = queue.fire(3, consumer=till)
    sleeps = Recorder()
    sleeps.open.clear()
    with ConsumerPool(store, "orders", sleeps, concurrency=1, batch=2) as pool:
        sleeps.wait()
        over(store, folder)
        waiting = queue.peek(100).num_rows

        for takes in (
            lambda: queue.fire(1),
            lambda: queue.fire(1, consumer=till),
            lambda: queue.get_and_keep(1),
            lambda: store.catalog.write(lambda connection: consumers.heartbeat(connection, till)),
        ):
            with pytest.raises(ConsumerFenced):
                takes()
        assert queue.delete(since) == queue.delete(since.ids) == queue.sideline(since) == 0
        with pytest.raises(Conflict):
            store.catalog.write(lambda connection: queue.within(connection).delete(since))
        assert queue.delete(held.ids) == queue.delete(held.ids, consumer=till) == 0
        assert (queue.delete(held), queue.delete(kept)) == (4, 1)
        queue.load(orders(1, 100))
        assert queue.peek(100).num_rows == waiting + 1
        sleeps.open.set()
        with pytest.raises(ConsumerFenced):
            pool.drain(PATIENCE)
        with pytest.raises(ConsumerFenced):
            pool.stop()
        assert set(pool.counts) <= {"lost"}


@pytest.mark.each_catalog
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_ids_settle_nothing_of_a_consumer_that_began_in_the_lost_time(store, queue, folder):
    """Its new life elsewhere has the name and the epoch of that of this process: it is a first."""
    store.admin.backup(folder)
    since = queue.fire(3, consumer=store.consumer("night"))

    over(store, folder)
    assert in_a_fork(lambda: len(queue.fire("all", consumer=store.consumer("night")))) == 10
    assert queue.delete(since.ids) == 0
    assert everything(store) == list(range(15))


@pytest.mark.each_catalog
@pytest.mark.parametrize("shards", [1, 2])
def test_a_process_that_knows_columns_of_the_lost_time_loads_without_them(store, folder, shards):
    """Else nobody could read its messages, since their segment would name a lost schema."""
    queue = make_queue(store, shards=shards, key="number")
    store.admin.backup(folder)
    queue.admin.add_columns(pa.schema([("note", pa.string())]))

    over(store, folder)
    assert queue.load(orders(8, 100)).null_count == 0
    assert "note" not in queue.schema.names

    queue.admin.add_columns(pa.schema([("remark", pa.string())]))
    over(store, folder)
    with pytest.raises(SchemaMismatch, match="remark"):
        queue.load([{"number": 1, "remark": "gone"}])
    queue.load(orders(8, 200))
    with Store(store.address, create=False) as again:
        assert everything(again) == [*range(200, 208)]
        assert again.admin.fsck().num_rows == 0


@pytest.mark.each_catalog
def test_a_sink_that_knows_columns_of_the_lost_time_writes_its_rows_again(store, folder):
    """The catalog goes back while they wait to be loaded, after their queue was checked."""
    queue = make_queue(store)
    store.admin.backup(folder)
    queue.admin.add_columns(pa.schema([("note", pa.string())]))
    known = queue.info
    staged = make_staged(queue, orders(3).append_column("note", pa.nulls(3, pa.string())))
    where = {"catalog": store.address.catalog, "storage": store.address.storage}
    options = SinkOptions.of({**where, "queue": "orders"})

    over(store, folder)
    with pytest.raises(Conflict, match="write them again"):
        publish(store, [known], {"orders": staged}, options, None)
    with Store(store.address, create=False) as again:
        assert everything(again) == []
        assert again.admin.fsck().num_rows == 0


@pytest.mark.each_catalog
def test_a_restore_that_dies_in_the_transaction_changes_nothing(store, queue, folder, monkeypatch):
    store.admin.backup(folder)
    queue.load(orders(5, 100))
    before = books_of(store)

    monkeypatch.setattr("queue_core.upkeep.backup.restore.set_apart", die)
    monkeypatch.setattr("queue_core.upkeep.backup.restore._report", die)
    with pytest.raises(ZeroDivisionError):
        over(store, folder)
    assert books_of(store) == before
    assert everything(store) == [*range(15), *range(100, 105)]


@pytest.mark.spoiled
@pytest.mark.parametrize("how", ["cut", "empty"])
def test_a_restore_over_one_that_was_killed_copies_torn_files_again(
    store, queue, folder, tmp_path, how
):
    """Its files have their names before they have all their bytes."""
    store.admin.backup(folder)
    new = tmp_path / "new"
    torn = [at.relative_to(folder) for at in sorted(folder.glob("segments/*/*.arrow"))][:2]
    for each in torn:
        (new / each).parent.mkdir(parents=True, exist_ok=True)
        (new / each).write_bytes((folder / each).read_bytes())
        spoil(new / each, how)
    with pytest.raises(BadOption, match="is not empty"):
        Store.restore(folder, new)

    restored = Store.restore(folder, new, over=True)

    assert (restored.messages, restored.damaged) == (15, 0)
    with Store.open(new) as other:
        assert everything(other) == list(range(15))
        audit(other)

    # Over the same store, too.
    spoil(new / torn[0], how)
    assert Store.restore(folder, new, over=True).copied == 1
    with Store.open(new) as other:
        assert everything(other) == list(range(15))


def test_a_restored_place_can_be_restored_again(store, queue, folder, tmp_path):
    store.admin.backup(folder)
    Store.restore(folder, tmp_path / "staging")
    with Store.open(tmp_path / "staging") as staging:
        identity = staging.storage.identity
        staging.queue("orders").load(orders(5, 500))
    queue.load(orders(5, 100))
    store.admin.backup(folder)

    Store.restore(folder, tmp_path / "staging", over=True)

    with Store.open(tmp_path / "staging") as staging:
        assert everything(staging) == [*range(15), *range(100, 105)]
        assert staging.storage.identity == identity
    with store.catalog.read() as connection:
        assert connection.scalar(select(facts.c.value).where(facts.c.name == "store")) != identity


# --- batches of queries ---------------------------------------------------------------------------


def publish_batch(queue, number, query="query"):
    segments = make_staged(queue, orders(1))
    batch = make_batch(segments, number, query)
    assert publish_once(queue.store.catalog, queue.store.storage, queue.info, segments, batch)


def reported(store):
    return [row["from"] for row in store.view("reports").to_pylist() if row["task"] == "restore"]


def test_batches_that_were_published_after_the_backup_are_named(store, folder, caplog):
    queue = make_queue(store)
    for number in (2, 4):
        publish_batch(queue, number, "known")
    assert reported(store) == [], "nothing was restored"
    store.admin.backup(folder)
    for number in (5, 6, 7):
        publish_batch(queue, number, "known")

    over(store, folder)
    with Store(store.address) as again:
        queue = again.queue("orders")
        for number in (8, 9, 12):
            publish_batch(queue, number, "known")
        publish_batch(queue, 3, "new")
        publish_batch(queue, 0, "fresh")
        # These cannot have lost a batch, or nobody knows.
        publish_batch(make_queue(again, "younger"), 3, "other")
        publish_batch(queue, 3, "txn:etl")
        assert reported(again) == ["batches 5 to 7 of query known", "batches 0 to 2 of query new"]
    assert "batches 5 to 7 of query known" in caplog.text
