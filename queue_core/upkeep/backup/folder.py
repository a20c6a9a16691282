"""The folder of a backup: files that are durable and checked, and a manifest that is written last.

::

    manifest.json
    catalog-<name>/<table>.arrow
    catalog-<name>/segment files.arrow     the locations and checksums of the copied segments
    segments/<queue>/<segment>.arrow
    lock                                   locked while a backup is written
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from queue_core.errors import BadOption, Conflict, DamagedBackup, StorageUnavailable
from queue_core.support.durable import make_folder, sync
from queue_core.upkeep.backup.manifest import File, Manifest

#: Bytes that are copied at a time.
PIECE = 1 << 20

_MANIFEST, _LOCK = "manifest.json", "lock"
_LIST = "segment files"
#: The list of copied segments.
SEGMENTS = pa.schema([("location", pa.string()), ("bytes", pa.int64()), ("sha256", pa.string())])


class BackupFolder:
    """A local folder that has a backup, or is to get one."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()

    def manifest(self) -> Manifest:
        """Return the manifest; raises `BadOption`, `DamagedBackup` or `FormatTooNew`."""
        file = self.path / _MANIFEST
        try:
            return Manifest.from_json(file.read_text(errors="replace"), str(file))
        except (FileNotFoundError, NotADirectoryError):
            raise BadOption(
                f"{self.path} holds no complete backup: it has no {_MANIFEST}"
            ) from None
        except OSError as error:
            raise _unreadable(file, error) from error

    def of_store(self, store: str) -> Manifest | None:
        """Return the manifest of the store's earlier backup; raises if other files are there."""
        if (self.path / _MANIFEST).exists():
            earlier = self.manifest()
            if earlier.store != store:
                raise BadOption(
                    f"{self.path} holds a backup of another store, {earlier.store}; use another "
                    "folder"
                )
            return earlier
        with self._written():
            others = self.path.exists() and any(
                not each.name.startswith("catalog-") and each.name not in ("segments", _LOCK)
                for each in self.path.iterdir()
            )
        if others:
            raise BadOption(f"{self.path} is not empty, and holds no backup; use another folder")
        return None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let no other backup write into the folder within the block; raises `Conflict`."""
        with self._written():
            make_folder(self.path, 0o700)
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            # Not all file systems have locks.
            with suppress(OSError):
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise Conflict(
                        f"another backup is being written into {self.path}; nothing was changed: "
                        "wait until it has ended, or use another folder"
                    ) from None
            yield
        finally:
            os.close(lock)

    def earlier(self, store: str) -> dict[str, tuple[int, str]]:
        """Return the segments of the store's earlier backup, if it is whole, as `segments` does."""
        manifest = self.of_store(store)
        try:
            return {} if manifest is None else self.segments(manifest)
        except DamagedBackup:
            return {}

    def table(self, manifest: Manifest, name: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table, whose file must be checked first."""
        file = self._arrow(manifest.folder, name)
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            yield from reader

    def check(self, manifest: Manifest, name: str) -> None:
        """Raise `DamagedBackup` unless the file of a table is as it was written."""
        self._check(self._arrow(manifest.folder, name), manifest.tables[name].sha256)

    def check_segment(self, location: str, digest: str) -> None:
        """Raise `DamagedBackup` unless a segment in the backup has that checksum."""
        self._check(self.path / location, digest)

    def segments(self, manifest: Manifest) -> dict[str, tuple[int, str]]:
        """Return the size and the checksum of each segment in the backup, by location."""
        if manifest.segments is None:
            return {}
        file = self._arrow(manifest.folder, _LIST)
        self._check(file, manifest.segments.sha256)
        with pa.OSFile(str(file)) as source, pa.ipc.open_stream(source) as reader:
            columns = [column.to_pylist() for column in reader.read_all().columns]
        return {at: (size, digest) for at, size, digest in zip(*columns, strict=True)}

    def kept(self, copied: Mapping[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
        """
        Return those of some segments that are there as they were copied.

        The bytes of one are read only if its time of writing is not before that of the manifest,
        which a backup writes last.
        """
        try:
            backed_up = (self.path / _MANIFEST).stat().st_mtime_ns
        except OSError:
            return {}
        return {at: each for at, each in copied.items() if self._is_kept(at, *each, backed_up)}

    def _is_kept(self, location: str, size: int, digest: str, backed_up: int) -> bool:
        try:
            file = (self.path / location).stat()
        except OSError:
            return False
        untouched = file.st_mtime_ns < backed_up
        return file.st_size == size and (untouched or self.digest(self.path / location) == digest)

    def write_table(self, folder: str, name: str, schema: pa.Schema, rows: Iterable[Any]) -> File:
        """Write record batches as the file of a table."""
        file = self._arrow(folder, name)
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        count = 0
        with (
            self._durable(file) as sink,
            pa.ipc.new_stream(sink, schema, options=options) as writer,
        ):
            for batch in rows:
                writer.write_batch(batch)
                count += batch.num_rows
        return File(count, self.digest(file))

    def write_segments(self, folder: str, copied: dict[str, tuple[int, str]]) -> File:
        """Write the list of the copied segments."""
        rows = [
            {"location": at, "bytes": size, "sha256": digest}
            for at, (size, digest) in sorted(copied.items())
        ]
        table = pa.Table.from_pylist(rows, SEGMENTS)
        return self.write_table(folder, _LIST, SEGMENTS, table.to_batches())

    def copy_in(self, read: Callable[[int], Any], location: str) -> tuple[int, str]:
        """Copy a segment, whose next bytes *read* returns; return its size and its checksum."""
        with self._durable(self.path / location) as sink:
            return copy(read, sink)

    @contextmanager
    def opened(self, file: Path) -> Iterator[BufferedReader]:
        """Open a file of the backup; raises `DamagedBackup` if it is missing."""
        try:
            with file.open("rb") as source:
                yield source
        except FileNotFoundError:
            raise DamagedBackup(f"{file} is missing; restore from another backup") from None

    def finish(self, manifest: Manifest, segments: Iterable[str]) -> None:
        """Write the manifest, and then remove the tables of an earlier backup."""
        unfinished = self.path / f"{manifest.folder}.json"
        with self._durable(unfinished) as sink:
            sink.write(manifest.to_json().encode())
        with self._written():
            unfinished.replace(self.path / _MANIFEST)
            sync(self.path)
        for each in self.path.glob("catalog-*"):
            if each.name == manifest.folder:
                continue
            with suppress(OSError):
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        # A folder may have its name from an earlier queue, in another case.
        needed = {str(self.path / location).lower() for location in segments}
        for file in (self.path / "segments").rglob("*.arrow"):
            if str(file).lower() not in needed:
                with suppress(OSError):
                    file.unlink()

    @contextmanager
    def _durable(self, file: Path) -> Iterator[BinaryIO]:
        """Open a file to write: on the disk when the block ends, or absent after an error."""
        with self._written():
            # Only the owner may read messages.
            make_folder(self.path, 0o700)
            make_folder(file.parent)
            try:
                with file.open("wb") as sink:
                    yield sink
                    sink.flush()
                    os.fsync(sink.fileno())
            except BaseException:
                file.unlink(missing_ok=True)
                raise
            sync(file.parent)

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageUnavailable(
                f"backup {self.path} cannot be written: {error.strerror or error}; the earlier "
                "backup in the folder, if there is one, is complete"
            ) from error

    def _arrow(self, folder: str, name: str) -> Path:
        return self.path / folder / f"{name}.arrow"

    def _check(self, file: Path, expected: str) -> None:
        if self.digest(file) != expected:
            raise DamagedBackup(f"{file} is altered or torn; restore from another backup")

    def digest(self, file: Path) -> str:
        """Return the checksum of a file of the backup; raises `DamagedBackup` if it is missing."""
        try:
            with self.opened(file) as source:
                return hashlib.file_digest(source, "sha256").hexdigest()
        except OSError as error:
            raise _unreadable(file, error) from error


def copy(read: Callable[[int], Any], sink: Any) -> tuple[int, str]:
    """Copy a file; return its size and its checksum."""
    digest, size = hashlib.sha256(), 0
    while len(piece := read(PIECE)):
        digest.update(piece)
        sink.write(piece)
        size += len(piece)
    return size, digest.hexdigest()


def _unreadable(file: Path, error: OSError) -> StorageUnavailable:
    return StorageUnavailable(f"{file} cannot be read: {error.strerror or error}")
