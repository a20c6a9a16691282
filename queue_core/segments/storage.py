"""Read, write and remove segment files in a folder or a bucket. No other module makes paths.

A location is relative to the storage (``segments/orders/0f….arrow``) and is never used twice. A
durable file survives a power failure, because the file and its folder are synced. An object in a
bucket is durable and visible as soon as it is closed.
"""

from __future__ import annotations

import errno
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from queue_core.errors import DamagedSegment, PublicationRefused, StorageUnavailable
from queue_core.support import faults
from queue_core.support.durable import make_folder, sync
from queue_core.values.address import CATALOG_FILE, masked

if TYPE_CHECKING:
    # Not at the top: a query's start does not wait for this, if its storage is a folder.
    from pyarrow import fs as pafs

_SEGMENTS = "segments"
_DAMAGED = "damaged"
_TRIALS = "trials"
_IDENTITY = "identity"
#: Seconds for which a bucket that was checked is trusted: it is never unmounted.
_TRUSTED_SECONDS = 60.0
#: Concurrent requests to a server: each takes a round trip.
AT_ONCE = 16
#: Advice when a bucket refuses or does not answer.
_REMEDY = (
    "; check that the server and the bucket can be reached from here, and that the credentials "
    "(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) are right, then try again"
)
_SEGMENT_NAME = re.compile(r"[0-9a-f]{32}\.arrow")
_MARK_NAME = re.compile(r"[0-9a-f]{32}")
#: Bytes that are handed to the disk at a time.
PART_BYTES = 8 << 20
#: The most bytes of one call of the system. For more, Linux 6.18 looks for stretches of memory of
#: two megabytes, which took up to twenty times as long as to fill them.
WRITE_BYTES = 1 << 20


class Storage:
    """The segment files of one store: ``Storage.open("some/folder")`` or ``"s3://bucket/prefix"``."""

    def __init__(self, uri: str) -> None:
        #: Its URI, possibly with credentials: for machines.
        self.uri = uri
        #: Its URI without credentials: for people.
        self.name = masked(uri)
        if "://" in uri:
            from queue_core.segments.filesystems import connect

            self._fs, root = connect(uri)
            self._local = self._fs.type_name == "local"
        else:
            root = str(Path(uri).absolute())
            self._local = True
        self._root = root.rstrip("/")
        in_bucket = not self._local and self._fs.type_name == "s3"
        self._bucket = self._root.partition("/")[0] if in_bucket else None
        #: The id of the store to which it must belong; None while it is unknown.
        self.identity: str | None = None
        #: Checks the storage against the catalog, unless its mark still has the passed token, which
        #: was verified last. Returns the token of its mark; raises if the storage is a wrong one.
        self.verify: Callable[[str | None], str] | None = None
        # The token that was verified last, and when.
        self._verified: str | None = None
        self._verified_at = 0.0

    @staticmethod
    @lru_cache(maxsize=64)
    def open(uri: str) -> Storage:
        """Open a folder or a URI of `pyarrow.fs`; raises `BadOption` or `StorageUnavailable`."""
        return Storage(uri)

    def of_store(self, identity: str | None) -> Storage:
        """Return the same storage, which refuses writes unless it belongs to a store."""
        mine = copy(self)
        mine.identity = identity
        return mine

    @property
    def folder(self) -> str | None:
        """The folder of its files; None in a bucket."""
        return self._root if self._local else None

    def check(self, *, again: bool = False) -> None:
        """
        Raise `StorageUnavailable` if the storage does not belong to the store.

        A folder may be unmounted, so it is checked each time. A bucket is checked once a minute, or
        at once with *again*.
        """
        if self.identity is None and self.verify is None:
            return
        now = time.monotonic()
        trusted = not self._local and now - self._verified_at < _TRUSTED_SECONDS
        if trusted and not again and self._verified is not None:
            return
        if self.verify is not None:
            self._verified = self.verify(self._verified)
        else:
            # An executor has no catalog to compare it with.
            self._verified = None if self.identity is None else self.token(self.identity)
            if self._verified is None:
                raise StorageUnavailable(self.stranger())
        self._verified_at = now

    def stranger(self) -> str:
        """Return why the storage cannot be used, when it has no mark of the store."""
        return (
            f"storage {self.name} does not belong to this store, or is not mounted: its file "
            f"{_IDENTITY}/{self.identity} is missing; nothing was changed: mount it, correct "
            "`storage`, or, if its files are in order, run `ignis adopt`"
        )

    def owners(self) -> set[str]:
        """Return the ids of the stores whose marks are in the storage."""
        with self._mapped(_IDENTITY):
            found = self._found(_IDENTITY)
        if not found:
            self._check_bucket(_IDENTITY)
        return {info.base_name for info in found if _MARK_NAME.fullmatch(info.base_name)}

    def token(self, identity: str) -> str | None:
        """Return the content of a store's mark; None if there is none."""
        try:
            with self._mapped(_IDENTITY):
                if self._local:
                    return Path(self._path(f"{_IDENTITY}/{identity}")).read_text(errors="replace")
                with self._fs.open_input_stream(self._path(f"{_IDENTITY}/{identity}")) as source:
                    return str(source.read().decode(errors="replace"))
        except FileNotFoundError:
            return None

    def mark(self, identity: str, token: str) -> None:
        """Write the mark of a store, or replace it; it is durable when this returns."""
        path = self._path(f"{_IDENTITY}/{identity}")
        with self._mapped(_IDENTITY):
            self._make_folder(self._path(_IDENTITY))
            if not self._local:
                with self._fs.open_output_stream(path) as sink:
                    sink.write(token.encode())
                return
            # Written under another name first, so that no process reads half a mark, even after a
            # power cut.
            unfinished = f"{path}.{uuid.uuid4().hex}"
            try:
                Path(unfinished).write_text(token)
                sync(unfinished)
                Path(unfinished).replace(path)
            except BaseException:
                Path(unfinished).unlink(missing_ok=True)
                raise
            sync(self._path(_IDENTITY))

    def unmark(self, identity: str) -> None:
        """Remove the mark of a store, if there is one."""
        self.remove(f"{_IDENTITY}/{identity}")

    def surrounds(self, folder: Path) -> bool:
        """Return whether a local folder lies in the storage."""
        return self._local and folder.resolve().is_relative_to(Path(self._root).resolve())

    def holds(self, file: Path) -> bool:
        """Return whether a local file is the catalog in the storage's own folder, and no copy."""
        return self._local and Path(self._root, CATALOG_FILE).resolve() == file.resolve()

    def __repr__(self) -> str:
        return f"<Storage {self.name}>"

    def new_location(self, queue: str) -> str:
        """Return a location that was never used before."""
        # In lower case: where "Orders" and "orders" are one folder, only its first name is listed.
        return f"{_SEGMENTS}/{queue.lower()}/{uuid.uuid4().hex}.arrow"

    @contextmanager
    def create(self, location: str) -> Iterator[Any]:
        """Open a sink for a new file, durable when the block ends; remove the file on failure."""
        path = self._path(location)
        folder = path.rsplit("/", 1)[0]
        self.check()
        with self._mapped(location):
            self._make_folder(folder)
            sink = self._fs.open_output_stream(path)
        try:
            with self._mapped(location):
                with sink:
                    yield WriteBehind(sink, path) if self._local else sink
                faults.point("load.segment_written")
                if self._local:
                    sync(path)
                    sync(folder)
        except FileNotFoundError as error:
            raise PublicationRefused(
                f"segment {location} was removed by a vacuum while it was written; nothing was "
                "published: load the messages again, and make vacuum's grace longer than any load"
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
            self._check_presence(location)
            raise DamagedSegment(
                f"segment {location} is missing from {self.name}; restore the file, then put its "
                "messages back with `ignis repair`"
            ) from error

    def exists(self, location: str) -> bool:
        """Return whether a file exists."""
        with self._mapped(location):
            return bool(self._fs.get_file_info(self._path(location)).is_file)

    def missing(self, locations: Iterable[str]) -> set[str]:
        """Return those of some files that do not exist."""
        ordered = sorted(locations)
        if ordered and self._local and self.identity and self.token(self.identity) is None:
            # The files may have been written into an empty mount point.
            raise StorageUnavailable(self.stranger())
        if self._local or len(ordered) < 2:
            return {location for location in ordered if not self.exists(location)}
        # Not at the top: only servers need it.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(AT_ONCE, len(ordered))) as pool:
            found = pool.map(self.exists, ordered)
            return {location for location, exists in zip(ordered, found, strict=True) if not exists}

    def read(self, handle: Any, offset: int, length: int, location: str) -> pa.Buffer:
        """Return *length* bytes at *offset*, or fewer if the file ends before."""
        with self._mapped(location):
            if not self._local and offset > handle.size():
                # A file has no bytes there; an object refuses to say so.
                return pa.py_buffer(b"")
            handle.seek(offset)
            return handle.read_buffer(length)

    def list(self) -> dict[str, int]:
        """
        Return the location of every segment file, and its time of writing in microseconds.

        Symbolic links to folders are not followed, because they may lead to other files.
        """
        return {location: written for location, (written, _) in self._listed().items()}

    def sizes(self) -> dict[str, int]:
        """Return the location of every segment file, and its size in bytes, as in `list`."""
        return {location: size for location, (_, size) in self._listed().items()}

    def _listed(self) -> dict[str, tuple[int, int]]:
        if self._local:
            with self._mapped(_SEGMENTS):
                return dict(_listed(self._path(_SEGMENTS), len(self._root) + 1))
        with self._mapped(_SEGMENTS):
            found = self._found(_SEGMENTS, recursive=True)
        if not found:
            self._check_bucket(_SEGMENTS)
        skip = len(self._root) + 1
        return {
            info.path[skip:]: ((info.mtime_ns or 0) // 1000, info.size or 0)
            for info in found
            if info.is_file and _SEGMENT_NAME.fullmatch(info.base_name)
        }

    def remove(self, location: str) -> None:
        """Remove a file, if it still exists."""
        with suppress(FileNotFoundError), self._mapped(location):
            self._fs.delete_file(self._path(location))

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
            found = [info for info in self._found(_DAMAGED) if info.is_file]
            reports = {}
            for info in found:
                try:
                    with self._fs.open_input_stream(info.path) as source:
                        message = source.read().decode(errors="replace")
                except FileNotFoundError:
                    # Another process has quarantined the segment meanwhile.
                    continue
                reports[info.base_name.replace("!", "/")] = message
        return reports

    def forget_damage(self, location: str) -> None:
        """Remove a report, once the catalog has it."""
        self.remove(f"{_DAMAGED}/{location.replace('/', '!')}")

    def note_trial(self, name: str) -> None:
        """Note, from a machine without a catalog, that a trial has begun."""
        with self._mapped(_TRIALS):
            self._make_folder(self._path(_TRIALS))
            self._fs.open_output_stream(self._path(f"{_TRIALS}/{name}")).close()

    def has_trial(self, name: str) -> bool:
        """Return whether a trial was noted."""
        return self.exists(f"{_TRIALS}/{name}")

    def forget_trials(self, before: int) -> None:
        """Remove the notes of trials that began before a time in microseconds."""
        with self._mapped(_TRIALS):
            found = [info for info in self._found(_TRIALS) if info.is_file]
        for info in found:
            if (info.mtime_ns or 0) // 1000 < before:
                self.remove(f"{_TRIALS}/{info.base_name}")

    def _path(self, location: str) -> str:
        return f"{self._root}/{location}"

    @cached_property
    def _fs(self) -> pafs.FileSystem:
        """The file system; that of this machine is imported on first use."""
        from pyarrow import fs as pafs

        return pafs.LocalFileSystem()

    def _found(self, folder: str, *, recursive: bool = False) -> Sequence[pafs.FileInfo]:
        """Return what is in a folder; nothing if there is no such folder."""
        if self._local:
            try:
                os.lstat(self._path(folder))
            except (FileNotFoundError, NotADirectoryError):
                return []
        from pyarrow import fs as pafs

        selector = pafs.FileSelector(self._path(folder), recursive=recursive, allow_not_found=True)
        found: Sequence[pafs.FileInfo] = self._fs.get_file_info(selector)
        return found

    def _check_presence(self, location: str) -> None:
        """Raise `StorageUnavailable` if the whole storage is missing, not only a file in it."""
        self._check_bucket(location)
        lost = not self.owners() if self.identity is None else self.token(self.identity) is None
        if lost:
            raise StorageUnavailable(
                f"storage {self.name} does not belong to this store, or is not mounted: it lacks "
                f"{location} and has no file {_IDENTITY}/{self.identity or '…'}; nothing was "
                "changed: mount it, correct `storage`, or, if its files are in order, run `ignis "
                "adopt`"
            )

    def _check_bucket(self, location: str) -> None:
        """Raise `StorageUnavailable` if the whole bucket is missing, not only a file in it."""
        if self._bucket is None:
            return
        with self._mapped(location):
            there = self._fs.get_file_info(self._bucket)
        if there.type.name == "NotFound":
            raise StorageUnavailable(
                f"storage {self.name}: bucket {self._bucket!r} does not exist; create it, or "
                "pass another `storage`"
            )

    def _make_folder(self, folder: str) -> None:
        if self._local:
            make_folder(folder)

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
            if number in (errno.ENOSPC, errno.EDQUOT):
                remedy = ": free some room, such as by: ignis vacuum --grace 0"
            raise StorageUnavailable(
                f"storage {self.name}: {location}: {reason}; nothing was changed{remedy}"
            ) from error


def _listed(folder: str, skip: int) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield segment files with their times and sizes; *skip* is the length of the root."""
    if os.path.islink(folder):
        return
    try:
        entries = os.scandir(folder)
    except FileNotFoundError:
        return
    with entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _listed(entry.path, skip)
            elif _SEGMENT_NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):
                    found = entry.stat(follow_symlinks=False)
                    yield entry.path[skip:], (found.st_mtime_ns // 1000, found.st_size)


class WriteBehind:
    """
    Passes writes on to a sink, and lets the disk begin with them before the file is complete.

    A sync of a whole file would leave the processor idle. It would also hold up others: on ext4,
    the commit of a catalog waits for the bytes of all files that are new in the same transaction.

    Args:
        sink: A writable file of Arrow, which keeps no bytes to itself.
        path: The path of its file.
    """

    def __init__(self, sink: Any, path: str) -> None:
        self._sink = sink
        self._path = path
        self._written = self._handed = 0

    def write(self, data: Any) -> None:
        """Write bytes, and let the disk begin with those that are complete parts."""
        view = memoryview(data).cast("B")
        for begin in range(0, view.nbytes, WRITE_BYTES):
            self._sink.write(view[begin : begin + WRITE_BYTES])
        self._written += view.nbytes
        if self._written - self._handed >= PART_BYTES:
            self._hand_over()

    def flush(self) -> None:
        """Flush the sink."""
        self._sink.flush()

    def _hand_over(self) -> None:
        # Linux begins to write pages whose dropping is advised, and keeps them until that is done.
        if hasattr(os, "posix_fadvise"):
            file = os.open(self._path, os.O_RDONLY)
            try:
                length = self._written - self._handed
                os.posix_fadvise(file, self._handed, length, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(file)
        self._handed = self._written
