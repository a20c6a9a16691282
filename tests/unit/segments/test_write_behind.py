"""Each byte arrives, and the disk is asked to begin with it once."""

import os

import pytest
from pyarrow import fs

from queue_core.segments.write_behind import PART_BYTES, WriteBehind


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
