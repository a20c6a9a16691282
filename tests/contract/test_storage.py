"""The promises of a storage, in a folder and in a bucket."""

import time

import pytest

from queue_core.errors import DamagedSegment
from queue_core.segments.storage import Storage
from tests.forks import in_a_fork
from tests.storages import EVERYWHERE, Files

pytestmark = EVERYWHERE


@pytest.fixture
def storage(storage_uri):
    return Storage.open(storage_uri)


@pytest.fixture
def files(storage_uri):
    """The real files."""
    return Files(storage_uri)


def written(storage, data=b"some bytes", queue="orders"):
    location = storage.new_location(queue)
    with storage.create(location) as sink:
        sink.write(data)
    return location


def read(storage, location, offset=0, length=1 << 30):
    with storage.opened(location) as handle:
        return storage.read(handle, offset, length, location).to_pybytes()


def test_what_is_written_is_there_at_once_and_can_be_read_in_parts(storage, files):
    location = written(storage, b"0123456789")

    assert storage.exists(location)
    assert files.names() == {location}
    assert read(storage, location) == b"0123456789"
    assert read(storage, location, 3, 4) == b"3456"
    assert read(storage, location, 8, 100) == b"89"


def test_queues_whose_names_differ_in_case_alone_share_a_folder(storage):
    """Where case does not count, a file in another folder would be listed as an unknown one."""
    one, other = (storage.new_location(name).rpartition("/")[0] for name in ("Orders", "orders"))
    assert one == other


def test_a_file_larger_than_one_part_of_an_upload_is_whole(storage):
    data = bytes(range(256)) * (90 << 10)

    assert read(storage, written(storage, data)) == data


def test_a_write_that_fails_leaves_nothing(storage, files):
    location = storage.new_location("orders")

    def write_and_fail():
        with storage.create(location) as sink:
            sink.write(b"x" * 1000)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()

    assert not storage.exists(location)
    assert files.names() == set()


def test_what_is_missing_is_damaged_and_named(storage):
    location = storage.new_location("orders")
    storage.mark("a" * 32, "a token")

    assert not storage.exists(location)
    with pytest.raises(DamagedSegment, match=rf"{location} is missing from .*restore the file"):
        storage.opened(location)


def test_segments_are_listed_with_when_they_were_written_and_nothing_else_is(storage, files):
    assert storage.list() == {}
    before = time.time()
    locations = {written(storage), written(storage, queue="returns")}
    after = time.time()
    files.file("segments/orders/README.md").write_bytes(b"keep me")
    files.file("notes.txt").write_bytes(b"keep me")

    listed = storage.list()

    assert listed.keys() == locations
    # A bucket counts in whole seconds: a file may be taken for older by as much, never for younger.
    assert all(before - 1 <= written / 1e6 <= after for written in listed.values())


def test_what_is_removed_is_gone_and_can_be_removed_again(storage, files):
    removed, other = written(storage), written(storage)

    storage.remove(removed)
    storage.remove(removed)

    assert not storage.exists(removed)
    assert storage.list().keys() == files.names() == {other}
    storage.remove(other)
    assert storage.list() == {}
    assert files.names() == set()
    assert storage.exists(written(storage))


@pytest.mark.parametrize("count", [0, 1, 2, 40])
def test_of_many_files_the_missing_ones_are_told(storage, count):
    there = [written(storage) for _ in range(count)]
    gone = [storage.new_location("orders") for _ in range(count)]

    assert storage.missing(there) == set()
    assert storage.missing(there[:1] + gone) == storage.missing(gone) == set(gone)


def test_word_of_damage_is_left_read_and_taken_back(storage):
    assert storage.damage_reports() == {}
    torn, gone = storage.new_location("orders"), storage.new_location("returns")
    storage.report_damage(torn, "it is torn")
    storage.report_damage(gone, "it is missing: größer")
    storage.report_damage(torn, "it is torn at byte 7")

    assert storage.damage_reports() == {torn: "it is torn at byte 7", gone: "it is missing: größer"}
    assert storage.list() == {}

    storage.forget_damage(torn)
    storage.forget_damage(torn)
    assert storage.damage_reports().keys() == {gone}


def test_a_report_that_another_process_removes_meanwhile_is_left_out(storage, monkeypatch):
    """Several processes quarantine at once; one removes a report that another has just listed."""
    for location in ("segments/orders/one", "segments/orders/two"):
        storage.report_damage(location, "it is missing")
    # There is no public seam between the listing of the reports and their reading.
    listed = Storage._found

    def overtaken(self, *where, **how):
        found = listed(self, *where, **how)
        self.forget_damage("segments/orders/one")
        return found

    monkeypatch.setattr(Storage, "_found", overtaken)
    assert storage.damage_reports() == {"segments/orders/two": "it is missing"}


def test_a_forked_child_can_use_what_its_parent_has_opened(storage):
    location = written(storage, b"of the parent")

    from_the_child = in_a_fork(lambda: (read(storage, location), written(storage, b"of the child")))

    assert from_the_child[0] == b"of the parent"
    assert read(storage, from_the_child[1]) == b"of the child"


def test_trials_are_noted_until_they_are_forgotten(storage):
    assert not storage.has_trial("1-2-3-4")
    storage.note_trial("1-2-3-4")
    storage.note_trial("1-2-3-4")
    assert storage.has_trial("1-2-3-4")
    assert not storage.has_trial("1-2-3-5")
    assert storage.list() == {}

    storage.forget_trials(before=0)
    assert storage.has_trial("1-2-3-4")
    storage.forget_trials(before=int((time.time() + 60) * 1e6))
    assert not storage.has_trial("1-2-3-4")
