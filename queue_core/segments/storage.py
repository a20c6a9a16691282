"""Read, write and remove segment files in a folder or a bucket. No other module makes paths.

A location is relative to the storage (``segments/orders/0f….arrow``) and is never used twice. A
durable file survives a power failure, because the file and its folder are synced. An object in a
bucket is durable and visible as soon as it is closed.
"""

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from queue_core import faults
from queue_core.address import masked
from queue_core.errors import DamagedSegment, PublicationRefused, StorageUnavailable
from queue_core.segments.filesystems import connect

_SEGMENTS = "segments"
_DAMAGED = "damaged"
#: Concurrent requests to a server: each takes a round trip.
_AT_ONCE = 16
#: Advice when a bucket refuses or does not answer.
_REMEDY = (
    "; check that the server and the bucket can be reached from here, and that the credentials "
    "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) are right, then try again"
)
_SEGMENT_NAME = re.compile(r"[0-9a-f]{32}\.arrow")


class Storage:
    """The segment files of one store: ``Storage.open("some/folder")`` or ``"s3://bucket/prefix"``."""

    def __init__(self, uri: str, filesystem: pafs.FileSystem, root: str) -> None:
        #: Its URI, possibly with credentials: for machines.
        self.uri = uri
        #: Its URI without credentials: for people.
        self.name = masked(uri)
        self._fs = filesystem
        self._root = root.rstrip("/")
        self._local = isinstance(filesystem, pafs.LocalFileSystem)
        in_bucket = isinstance(filesystem, pafs.S3FileSystem)
        self._bucket = self._root.partition("/")[0] if in_bucket else None

    @staticmethod
    @lru_cache(maxsize=64)
    def open(uri: str) -> "Storage":
        """Open a folder or a URI of `pyarrow.fs`; raises `BadOption` or `StorageUnavailable`."""
        return Storage(uri, *connect(uri))

    def __repr__(self) -> str:
        return f"<Storage {self.name}>"

    def new_location(self, queue: str) -> str:
        """Return a location that was never used before."""
        return f"{_SEGMENTS}/{queue}/{uuid.uuid4().hex}.arrow"

    @contextmanager
    def create(self, location: str) -> Iterator[Any]:
        """Open a sink for a new file, durable when the block ends; remove the file on failure."""
        path = self._path(location)
        folder = path.rsplit("/", 1)[0]
        with self._mapped(location):
            self._make_folder(folder)
            sink = self._fs.open_output_stream(path)
        try:
            with self._mapped(location):
                with sink:
                    yield sink
                faults.point("load.segment_written")
                if self._local:
                    _sync(path)
                    _sync(folder)
        except FileNotFoundError as error:
            raise PublicationRefused(
                f"segment {location} was removed by a vacuum while it was written; nothing was "
                "published: load the messages again, and let vacuum's grace outlast every writer"
            ) from error
        except Exception:
            # If this fails as well, vacuum removes the file.
            with suppress(StorageUnavailable):
                self.remove(location)
            raise
        faults.point("load.segment_synced")

    def opened(self, location: str) -> Any:
        """Return a random-access handle on a file; raises `DamagedSegment` if it is missing."""
        try:
            with self._mapped(location):
                return self._fs.open_input_file(self._path(location))
        except FileNotFoundError as error:
            self._check_bucket(location)
            raise DamagedSegment(
                f"segment {location} is missing from {self.name}; restore the file, then load its "
                "messages again with `ignis repair`"
            ) from error

    def exists(self, location: str) -> bool:
        """Return whether a file exists."""
        with self._mapped(location):
            return bool(self._fs.get_file_info(self._path(location)).is_file)

    def missing(self, locations: Iterable[str]) -> set[str]:
        """Return those of some files that do not exist."""
        ordered = sorted(locations)
        if self._local or len(ordered) < 2:
            return {location for location in ordered if not self.exists(location)}
        with ThreadPoolExecutor(min(_AT_ONCE, len(ordered))) as pool:
            found = pool.map(self.exists, ordered)
            return {location for location, exists in zip(ordered, found, strict=True) if not exists}

    def read(self, handle: Any, offset: int, length: int, location: str) -> pa.Buffer:
        """Return *length* bytes at *offset*, or fewer if the file ends before."""
        with self._mapped(location):
            handle.seek(offset)
            return handle.read_buffer(length)

    def list(self) -> dict[str, int]:
        """Return the location of every segment file, and its time of writing in microseconds."""
        with self._mapped(_SEGMENTS):
            selector = pafs.FileSelector(
                self._path(_SEGMENTS), recursive=True, allow_not_found=True
            )
            found = self._fs.get_file_info(selector)
        if not found:
            self._check_bucket(_SEGMENTS)
        skip = len(self._root) + 1
        return {
            info.path[skip:]: (info.mtime_ns or 0) // 1000
            for info in found
            if info.type == pafs.FileType.File and _SEGMENT_NAME.fullmatch(info.base_name)
        }

    def remove(self, location: str) -> None:
        """Remove a file, if it still exists."""
        try:
            with self._mapped(location):
                self._fs.delete_file(self._path(location))
        except FileNotFoundError:
            return

    def report_damage(self, location: str, message: str) -> None:
        """Report, from a machine without a catalog, that a segment cannot be read."""
        path = self._path(f"{_DAMAGED}/{location.replace('/', '!')}")
        with self._mapped(location):
            self._make_folder(self._path(_DAMAGED))
            with self._fs.open_output_stream(path) as sink:
                sink.write(message.encode())
        faults.point("quarantine.reported")

    def damage_reports(self) -> dict[str, str]:
        """Return the message of each reported segment, by location."""
        with self._mapped(_DAMAGED):
            selector = pafs.FileSelector(self._path(_DAMAGED), allow_not_found=True)
            found = [info for info in self._fs.get_file_info(selector) if info.is_file]
            reports = {}
            for info in found:
                with self._fs.open_input_stream(info.path) as source:
                    message = source.read().decode(errors="replace")
                reports[info.base_name.replace("!", "/")] = message
        return reports

    def forget_damage(self, location: str) -> None:
        """Remove a report, once the catalog has it."""
        self.remove(f"{_DAMAGED}/{location.replace('/', '!')}")

    def _path(self, location: str) -> str:
        return f"{self._root}/{location}"

    def _check_bucket(self, location: str) -> None:
        """Raise `StorageUnavailable` if the bucket itself is missing, and not only a file in it."""
        if self._bucket is None:
            return
        with self._mapped(location):
            there = self._fs.get_file_info(self._bucket).type
        if there == pafs.FileType.NotFound:
            raise StorageUnavailable(
                f"storage {self.name}: bucket {self._bucket!r} does not exist; create it, or "
                "pass another `storage`"
            )

    def _make_folder(self, folder: str) -> None:
        if not self._local:
            return
        missing = []
        path = Path(folder)
        while not path.exists():
            missing.append(path)
            path = path.parent
        Path(folder).mkdir(parents=True, exist_ok=True)
        for created in missing:
            _sync(str(created.parent))

    @contextmanager
    def _mapped(self, location: str) -> Iterator[None]:
        """Raise file system errors as `StorageUnavailable`; `FileNotFoundError` stays itself."""
        try:
            yield
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            number = getattr(error, "errno", None)
            reason = os.strerror(number) if number else str(error)
            remedy = "" if self._bucket is None else _REMEDY
            raise StorageUnavailable(
                f"storage {self.name}: {location}: {reason}; nothing was changed{remedy}"
            ) from error


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
