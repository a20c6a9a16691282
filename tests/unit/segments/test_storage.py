"""`queue_core.segments.storage`: files and folders reach the disk, each byte once."""

import os

import pytest
from pyarrow import fs

from queue_core.segments.storage import PART_BYTES, WriteBehind, sync


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


@pytest.mark.parametrize("advised", [True, False], ids=["advised", "without advice"])
def test_all_bytes_arrive_in_order(tmp_path, monkeypatch, advised):
    if not advised:
        monkeypatch.delattr(os, "posix_fadvise", raising=False)
    path = str(tmp_path / "file")
    pieces = [os.urandom(size) for size in (1, PART_BYTES - 1, 3, 2 * PART_BYTES, 5)]

    with fs.LocalFileSystem().open_output_stream(path) as sink:
        behind = WriteBehind(sink, path)
        for piece in pieces:
            behind.write(piece)
        behind.flush()

    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="this system takes no advice")
def test_each_byte_is_handed_over_once_and_a_small_rest_never(tmp_path, monkeypatch):
    advised = []
    monkeypatch.setattr(os, "posix_fadvise", lambda file, *advice: advised.append(advice))
    path = str(tmp_path / "file")

    with fs.LocalFileSystem().open_output_stream(path) as sink:
        behind = WriteBehind(sink, path)
        for size in (PART_BYTES - 1, 2, PART_BYTES, PART_BYTES - 1):
            behind.write(bytes(size))

    assert advised == [
        (0, PART_BYTES + 1, os.POSIX_FADV_DONTNEED),
        (PART_BYTES + 1, PART_BYTES, os.POSIX_FADV_DONTNEED),
    ]
