"""`queue_core.segments.storage`: files and folders reach the disk, and no descriptor stays open."""

import os

import pytest

from queue_core.segments.storage import sync


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_file_or_a_folder_is_synced_and_closed(tmp_path, monkeypatch, kind):
    path = tmp_path / kind
    path.write_bytes(b"1") if kind == "file" else path.mkdir()
    synced = []
    fsync = os.fsync
    monkeypatch.setattr(os, "fsync", lambda handle: (synced.append(handle), fsync(handle)))

    sync(path)

    (handle,) = synced
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_a_sync_that_fails_is_an_error_and_closes_its_file(tmp_path, monkeypatch):
    synced = []

    def fail(handle):
        synced.append((handle, os.fstat(handle).st_ino))
        raise OSError("the disk is gone")

    monkeypatch.setattr(os, "fsync", fail)

    with pytest.raises(OSError, match="the disk is gone"):
        sync(tmp_path)

    ((handle, file),) = synced
    assert file == tmp_path.stat().st_ino
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(handle)


def test_what_is_not_there_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        sync(tmp_path / "missing")
