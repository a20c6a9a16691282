"""Catalogs and storages of each kind, the files behind the store's back, and copies of catalogs."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyarrow.fs as pafs
import pytest

from queue_core import Store
from queue_core.segments.filesystems import connect

#: For tests of what holds on one kind of catalog only.
ONLY_POSTGRESQL = pytest.mark.parametrize(
    "catalog_url", [pytest.param("postgres", marks=pytest.mark.postgres)], indirect=True
)
ONLY_SQLITE = pytest.mark.parametrize("catalog_url", ["sqlite"], indirect=True)
#: For tests that run in a folder and in a bucket.
EVERYWHERE = pytest.mark.parametrize(
    "storage_uri", ["folder", pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)
#: For tests that run in a bucket only.
IN_A_BUCKET = pytest.mark.parametrize(
    "storage_uri", [pytest.param("s3", marks=pytest.mark.s3)], indirect=True
)


class Files:
    """The files of a storage, seen without the store."""

    def __init__(self, uri: str) -> None:
        self._fs, self._root = connect(uri)

    def names(self) -> set[str]:
        """All files, from any writer."""
        selector = pafs.FileSelector(self._root, recursive=True, allow_not_found=True)
        found = self._fs.get_file_info(selector)
        return {info.path[len(self._root) + 1 :] for info in found if info.is_file}

    def file(self, name: str) -> File:
        """One of them, whether or not it is there."""
        return File(self._fs, self._root, name)


class File:
    """A file that a test reads, spoils or removes: with the methods of a `Path`."""

    def __init__(self, filesystem: pafs.FileSystem, root: str, name: str) -> None:
        self.name = name
        self._fs = filesystem
        self._path = f"{root}/{name}"

    def read_bytes(self) -> bytes:
        with self._fs.open_input_stream(self._path) as source:
            return bytes(source.read())

    def write_bytes(self, data: bytes) -> None:
        if isinstance(self._fs, pafs.LocalFileSystem):
            self._fs.create_dir(self._path.rpartition("/")[0])
        with self._fs.open_output_stream(self._path) as sink:
            sink.write(data)

    def unlink(self) -> None:
        self._fs.delete_file(self._path)


def copy_catalog(source: Path, target: Path) -> None:
    """Copy an embedded catalog as a backup does, while processes have it open."""
    with (
        closing(sqlite3.connect(source, timeout=5)) as one,
        closing(sqlite3.connect(target)) as two,
    ):
        one.backup(two)


def put_catalog_back(copy: Path, file: Path) -> None:
    """Put an older copy in the place of a catalog that nobody has open."""
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    shutil.copyfile(copy, file.with_suffix(".new")).replace(file)


def mount_away(store: Store) -> None:
    """Let the folder of the segments be empty, as a mount point is."""
    root = Path(store.storage.uri)
    root.rename(root.with_name("mounted"))
    root.mkdir()
    for name in ("catalog.db", "catalog.db-wal", "catalog.db-shm"):
        if (root.with_name("mounted") / name).exists():
            (root / name).hardlink_to(root.with_name("mounted") / name)


def mount_again(store: Store) -> None:
    """Put the files of the segments back."""
    root = Path(store.storage.uri)
    shutil.rmtree(root)
    root.with_name("mounted").rename(root)
