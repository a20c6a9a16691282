"""Write a backup of a store that is in use.

One transaction reads all tables as they are at one moment, and blocks no other. Then the segments
that they name are copied, under a `Hold`, which keeps vacuum from removing them: a lease that a
thread renews, so it ends by itself when its process dies. In a folder with an earlier backup, only
new segments are copied, and the earlier backup stays complete until the new one is. Each copy is
compared with the checksums in the catalog. Guard: one backup at a time writes into a folder.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import dialect, format, table_rows
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import leases
from queue_core.catalog.holders.leases import LONGEST_LEASE_SECONDS
from queue_core.catalog.records.restored import fact
from queue_core.catalog.slices import amounts, unread
from queue_core.catalog.slices.quarantined import find_fault
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    DamagedSegment,
    IgnisError,
    StorageUnavailable,
)
from queue_core.segments.format import unpack_chunks
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.support.loop import Loop
from queue_core.upkeep.backup.folder import BackupFolder
from queue_core.upkeep.backup.manifest import File, Manifest

#: Seconds for which a hold lasts without being renewed, and between two renewals.
HELD_SECONDS = LONGEST_LEASE_SECONDS
RENEWED_SECONDS = 20.0
#: Files that are copied at once.
_AT_ONCE = 8

#: Called repeatedly with the kind of work, the number of parts that are done, and of all parts.
Progress = Callable[[str, int, int], None]

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class Backup:
    """
    A backup that was written.

    Attributes:
        messages: Number of messages in the backup.
        rows: Number of rows of the catalog.
        segments: Number of segment files that the catalog names; 0 if only the catalog was backed
            up.
        copied: Number of segment files that were copied now. The others were already in the folder.
        missing: Locations of segment files that the storage does not have, or only torn or altered.
    """

    messages: int
    rows: int
    segments: int
    copied: int
    missing: tuple[str, ...]


def backup(
    catalog: Catalog,
    storage: Storage,
    folder: BackupFolder,
    *,
    with_segments: bool = True,
    with_logs: bool = True,
    progress: Progress = lambda *_: None,
) -> Backup:
    """Write a backup; raises `BadOption` if the folder is of the store, or holds anything else."""
    if storage.surrounds(folder.path):
        raise BadOption(
            f"{folder.path} is in the storage of the store itself, where vacuum removes foreign "
            "files; use a folder outside of it"
        )
    with catalog.read() as connection:
        store = fact(connection, "store")
    if store is None:
        raise StorageUnavailable(
            f"{catalog!r} has no storage yet; open the store once with its storage, then back it up"
        )
    folder.of_store(store)
    with folder.alone():
        there = folder.earlier(store)
        name = f"catalog-{uuid.uuid4().hex}"
        with Hold(catalog) if with_segments else nullcontext() as hold:
            with catalog.read() as connection:
                # A newer ignis may have upgraded the catalog since this process opened it.
                found = format.read(connection, dialect.hidden(catalog.url))
                tables = _write_tables(connection, folder, name, progress, with_logs=with_logs)
                last_ids = table_rows.last_ids(connection)
                taken_at = dialect.read_clock(connection)
                messages = amounts.messages(connection)
                named = unread.filed(connection, with_logs=with_logs)
            copied: dict[str, tuple[int, str]] = {}
            missing: list[str] = []
            kept = folder.kept({at: there[at] for at in named if at in there})
            if hold is not None:
                wanted = {at: named[at] for at in sorted(named.keys() - kept.keys())}
                copied, missing = _copy(storage, folder, wanted, progress)
                hold.check()
        listed = folder.write_segments(name, kept | copied) if with_segments else None
        faults.point("backup.copied")
        folder.finish(
            Manifest(
                store=store,
                format=found,
                taken_at=taken_at,
                folder=name,
                tables=tables,
                last_ids=last_ids,
                segments=listed,
            ),
            kept | copied if with_segments else (),
        )
        return Backup(
            messages=messages,
            rows=sum(file.rows for file in tables.values()),
            segments=len(named) if with_segments else 0,
            copied=len(copied),
            missing=tuple(missing),
        )


def _write_tables(
    connection: Connection, folder: BackupFolder, name: str, progress: Progress, *, with_logs: bool
) -> dict[str, File]:
    written = {}
    for number, table in enumerate(table_rows.NAMES):
        progress("tables", number, len(table_rows.NAMES))
        found = table_rows.read(connection, table, with_logs=with_logs)
        written[table] = folder.write_table(name, table, table_rows.schema_of(table), found)
    return written


def _copy(
    storage: Storage, folder: BackupFolder, wanted: Mapping[str, bytes], progress: Progress
) -> tuple[dict[str, tuple[int, str]], list[str]]:
    """
    Copy segments; return the size and the checksum of each, and those that are not whole.

    *wanted* are their chunks by their locations.
    """
    copies = Storage.open(str(folder.path))

    def copy_one(location: str) -> tuple[int, str] | None:
        try:
            source = storage.opened(location)
        except DamagedSegment:
            return None
        with source:

            def read(length: int) -> pa.Buffer:
                return storage.read(source, source.tell(), length, location)

            copied = folder.copy_in(read, location)
        try:
            chunks = unpack_chunks(wanted[location])
        except struct.error:
            return None
        return copied if find_fault(copies, 0, location, None, chunks) is None else None

    found = dict(each_at_once(copy_one, wanted, progress))
    copied = {location: it for location, it in found.items() if it is not None}
    return copied, sorted(found.keys() - copied.keys())


def each_at_once(
    work: Callable[[str], Done], locations: Collection[str], progress: Progress
) -> Iterator[tuple[str, Done]]:
    """Do *work* for each segment, some at once; yield its result. After an error, begin no more."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        pending = {pool.submit(work, location): location for location in locations}
        try:
            for number, done in enumerate(as_completed(pending)):
                progress("segments", number, len(pending))
                yield pending[done], done.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise


class Hold(AbstractContextManager["Hold"]):
    """Keeps every segment that a slice names, now or later, until the block ends."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._role = f"{leases.BACKUP}{uuid.uuid4().hex}"
        self._loop = Loop("hold", self._renew, every=RENEWED_SECONDS)

    def __enter__(self) -> Hold:
        self._catalog.write(self._take)
        self._loop.start()
        return self

    def check(self) -> None:
        """Raise `CatalogUnavailable` if the hold has ended meanwhile."""
        if not self._catalog.write(self._is_held):
            raise CatalogUnavailable(
                f"{self._catalog!r} could not be reached for {HELD_SECONDS:.0f} seconds while its "
                "backup was written, so segments may have been removed meanwhile; the backup is "
                "not complete: begin again"
            )

    def __exit__(self, *_: object) -> None:
        self._loop.stop()
        # If this fails, the hold ends by itself.
        with suppress(IgnisError):
            self._catalog.write(lambda connection: leases.forget(connection, self._role))

    def _take(self, connection: Connection) -> None:
        leases.hold(connection, self._role, self._role, HELD_SECONDS)

    def _is_held(self, connection: Connection) -> bool:
        return leases.holds(connection, self._role, self._role, 1)

    def _renew(self) -> None:
        def renew(connection: Connection) -> None:
            # A hold that has ended stays ended, and `check` reports it.
            if self._is_held(connection):
                self._take(connection)

        with suppress(IgnisError):
            self._catalog.write(renew)
