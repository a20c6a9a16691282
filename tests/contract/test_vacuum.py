"""Vacuum: files that no message needs are removed after a grace period, and no others ever."""

import os
from pathlib import Path

import pytest
from sqlalchemy import update

from queue_core.catalog.slices import changes
from queue_core.catalog.tables import files
from queue_core.errors import BadOption, PublicationRefused, StorageUnavailable
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.upkeep.tasks import vacuum as vacuum_module
from queue_core.waiting.smart.load import of_staged
from tests.dump import dump, rows_in
from tests.factories import (
    make_batch,
    make_queue,
    make_staged,
    numbers_of,
    orders,
    publish,
    publish_once,
)
from tests.storages import EVERYWHERE, mount_again, mount_away


@pytest.fixture
def queue(store, in_files):
    return make_queue(store)


def age(store, seconds):
    """Let all files be *seconds* older, and garbage for as much longer."""
    storage, there = store.storage, store.storage.list()
    earlier = int(seconds * 1e6)
    if "://" in storage.uri:
        # Nobody can set the stamps of a bucket; they are told so.
        storage.list = lambda: {
            location: written - earlier * (location in there)
            for location, written in Storage.list(storage).items()
        }
    else:
        for location, written in there.items():
            stamp = (written - earlier) / 1e6
            os.utime(Path(storage.uri) / location, (stamp, stamp))
    store.catalog.write(
        lambda connection: connection.execute(
            update(files).values(since=files.c.since - int(seconds * 1e6))
        )
    )


def staged(queue, count=10, first=0):
    """Write a segment and do not publish it, as a writer that stalls or dies."""
    return make_staged(queue, orders(count, first))


@EVERYWHERE
def test_files_of_settled_messages_are_removed(store, queue):
    queue.load(orders(10))
    queue.load(orders(10, 10))
    settled, kept = store.view("slices").column("location").to_pylist()
    queue.delete(queue.fire(10))
    age(store, 100)

    assert store.admin.vacuum(grace=60) == [settled]
    assert list(store.storage.list()) == [kept]
    assert rows_in(store, files) == 1
    assert numbers_of(queue.fire("all").messages) == list(range(10, 20))


def test_files_that_messages_need_are_never_removed(store, queue):
    for first in (0, 10, 20):
        queue.load(orders(10, first))
    firing = queue.fire("all")
    queue.delete(firing.ids[:9])
    queue.sideline(firing.ids[10:12])
    queue.reload(firing.ids[20:21])
    age(store, 1e6)

    assert store.admin.vacuum(grace=0) == []
    assert numbers_of(queue.browse()) == [9, *range(12, 30)]
    assert numbers_of(queue.browse(magazine="sideline")) == [10, 11]


def test_files_in_a_folder_that_is_listed_in_another_case_stay(store, queue, monkeypatch):
    """As on a disk where case does not count, whose folder was made for another queue."""
    queue.load(orders(10))
    age(store, 100)
    (there,) = store.storage.list()
    listed = {there.replace("/orders/", "/Orders/"): 0}

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "list", lambda _: listed)
        assert store.admin.vacuum(grace=0, dry_run=True) == []
        assert store.admin.vacuum(grace=0) == []
    assert rows_in(store, files) == 1
    assert numbers_of(queue.fire("all").messages) == list(range(10))


@EVERYWHERE
@pytest.mark.parametrize("kind", ["settled", "never published"])
def test_within_the_grace_period_everything_stays(store, queue, kind):
    if kind == "settled":
        queue.load(orders(10))
        queue.delete(queue.fire("all"))
    else:
        staged(queue)
    age(store, 30)

    assert store.admin.vacuum(grace=60) == []
    (there,) = store.storage.list()
    assert store.admin.vacuum(grace=20) == [there]
    assert store.storage.list() == {}
    assert rows_in(store, files) == 0


@EVERYWHERE
def test_a_dry_run_says_what_would_go_and_removes_nothing(store, queue):
    queue.load(orders(10))
    queue.load(orders(10, 10))
    queue.delete(queue.fire(10))
    staged(queue)
    age(store, 100)
    before = dump(store)

    would = store.admin.vacuum(grace=60, dry_run=True)

    assert dump(store) == before
    assert len(would) == 2
    assert store.admin.vacuum(grace=60) == would


@EVERYWHERE
def test_a_dry_run_names_what_two_settlements_have_left_behind(store, queue, monkeypatch):
    queue.load(orders(10))
    with monkeypatch.context() as together:
        # Each of them sees the messages of the other.
        together.setattr(changes, "release", lambda *_: None)
        queue.delete(queue.fire("all"))

    assert store.admin.vacuum(grace=60, dry_run=True) == []
    would = store.admin.vacuum(grace=0, dry_run=True)
    assert would == list(store.storage.list())
    assert store.admin.vacuum(grace=0) == would


@EVERYWHERE
def test_a_writer_that_stalls_past_the_grace_period_is_refused(store, queue):
    segments = staged(queue)
    age(store, 100)
    store.admin.vacuum(grace=60)
    before = dump(store)

    with pytest.raises(PublicationRefused, match=segments[0].location):
        publish(store.catalog, store.storage, queue.info, segments)
    with pytest.raises(PublicationRefused):
        publish_once(store.catalog, store.storage, queue.info, segments, make_batch(segments, 7))
    assert dump(store) == before
    # The batch was not recorded as published.
    fresh = staged(queue)
    assert publish_once(store.catalog, store.storage, queue.info, fresh, make_batch(fresh, 7))


def test_a_writer_with_dedup_that_stalls_is_refused_too(store, queue):
    """It reads its rows back, and they are gone, not damaged."""
    unique = make_queue(store, "unique", dedup=("number",))
    segments = staged(unique)
    age(store, 100)
    store.admin.vacuum(grace=60)
    before = dump(store)
    where = (store.catalog, store.storage, unique.info)
    smart = of_staged(*where, segments)

    with pytest.raises(PublicationRefused, match=segments[0].location):
        publish(*where, segments, smart=smart)
    assert dump(store) == before


@EVERYWHERE
@pytest.mark.parametrize("point", ["condemned", "removing", "removed"])
def test_a_vacuum_that_died_half_way_is_finished_by_the_next(store, queue, point):
    for first in (0, 10):
        queue.load(orders(10, first))
    queue.delete(queue.fire("all"))
    staged(queue)
    age(store, 100)
    faults.arm(f"vacuum.{point}=raise")
    with pytest.raises(faults.InjectedFault):
        store.admin.vacuum(grace=60)

    store.admin.vacuum(grace=60)

    assert store.storage.list() == {}
    assert rows_in(store, files) == 0


def test_a_file_that_cannot_be_removed_keeps_no_other(store, queue, monkeypatch):
    for first in (0, 10, 20):
        queue.load(orders(10, first))
    queue.delete(queue.fire("all"))
    age(store, 100)
    stuck = sorted(store.storage.list())[0]
    remove = Storage.remove

    def refuses(storage, location):
        if location == stuck:
            raise StorageUnavailable("Operation not permitted")
        remove(storage, location)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "remove", refuses)
        with pytest.raises(StorageUnavailable, match="not permitted"):
            store.admin.vacuum(grace=60)
    assert list(store.storage.list()) == [stuck]
    assert rows_in(store, files) == 1
    assert store.admin.vacuum(grace=60) == [stuck]


def test_a_vacuum_tries_no_other_file_once_the_storage_is_away(store, queue, monkeypatch):
    for first in (0, 10):
        queue.load(orders(10, first))
    queue.delete(queue.fire("all"))
    age(store, 100)
    tried = []

    def goes_away(_, location):
        tried.append(location)
        mount_away(store)
        raise StorageUnavailable("it does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "remove", goes_away)
        with pytest.raises(StorageUnavailable, match="not mounted"):
            store.admin.vacuum(grace=60)
    mount_again(store)
    assert len(tried) == 1
    assert len(store.admin.vacuum(grace=60)) == 2


@EVERYWHERE
def test_a_file_that_is_gone_already_is_no_trouble(store, queue):
    queue.load(orders(10))
    queue.delete(queue.fire("all"))
    (location,) = store.storage.list()
    store.storage.remove(location)
    age(store, 100)

    assert store.admin.vacuum(grace=60) == []
    assert rows_in(store, files) == 0
    queue.load(orders(10))
    assert len(queue.fire("all")) == 10


def test_what_a_batch_that_came_twice_has_written_is_removed_later(store, queue):
    first, again = staged(queue), staged(queue)
    publish_once(store.catalog, store.storage, queue.info, first, make_batch(first, 0))
    assert not publish_once(store.catalog, store.storage, queue.info, again, make_batch(again, 0))
    age(store, 100)

    assert store.admin.vacuum(grace=60) == [again[0].location]
    assert len(queue.fire("all")) == 10


def test_files_that_are_not_segments_are_left_alone(store, queue):
    """What somebody else has put there was not written by a writer of ours."""
    folder = Path(store.storage.uri)
    strange = [folder / "notes.txt", folder / "segments" / "orders" / "README.md"]
    strange[1].parent.mkdir(parents=True)
    for file in strange:
        file.write_text("keep me")
        os.utime(file, (0, 0))

    assert store.admin.vacuum(grace=0) == []
    assert [file.read_text() for file in strange] == ["keep me"] * 2


def test_very_many_files_are_removed_at_once(store, queue):
    """More than a database takes as parameters of one statement."""
    count = 40_000
    store.catalog.write(
        lambda connection: connection.execute(
            files.insert(),
            [
                {"location": f"segments/orders/{n}.arrow", "state": "garbage", "since": 0}
                for n in range(count)
            ],
        )
    )
    folder = Path(store.storage.uri) / "segments" / "orders"
    folder.mkdir(parents=True)
    present = {f"segments/orders/{n}.arrow": 0 for n in range(count)}
    removed = []

    storage = store.storage
    storage.list, storage.remove = lambda: present, removed.append

    assert len(vacuum_module.vacuum(store.catalog, storage, 0)) == count
    assert len(removed) == count
    assert rows_in(store, files) == 0


@pytest.mark.parametrize("grace", [-1, "soon", None, float("nan")])
def test_an_impossible_grace_period_is_refused(store, grace):
    with pytest.raises(BadOption, match="grace="):
        store.admin.vacuum(grace=grace)


@pytest.mark.parametrize("inside", [True, False], ids=["a queue's folder", "the segments' folder"])
def test_folders_that_are_links_are_not_followed(store, queue, tmp_path, inside):
    """The target of a link may belong to another program, even if its files have our names."""
    outside = tmp_path / "outside"
    outside.mkdir()
    alien = outside / f"{'a' * 32}.arrow"
    alien.write_bytes(b"keep me")
    os.utime(alien, (0, 0))
    link = Path(store.storage.uri) / "segments"
    if inside:
        link.mkdir()
        link /= "linked"
    link.symlink_to(outside)

    assert store.admin.vacuum(grace=0) == []
    assert alien.exists()
