"""Restore a backup: into a new place, or over the storage of the same store; or verify it.

First, the backup is checked. Then segments that the storage does not have, or not in their length,
are copied into it. At last, one transaction replaces the catalog.

Changes: all tables. Segments that the storage has and the backup does not know are recorded as
found, and vacuum keeps them until an operator gives them up. Messages without a segment become
damaged. Ids and epochs jump ahead, so that no id from the lost time is assigned again. Guard: the
backup was checked, and the place is empty or the caller allows it. Crash before the commit: the old
catalog is as it was. Crash after it: the next opening takes the storage.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass

from sqlalchemy import Connection

from queue_core.catalog import dialect, format, table_rows
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity.identity import Identity
from queue_core.catalog.records import acts, restored, schedule
from queue_core.catalog.records.restored import ORIGIN, RESTORE, fact
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import amounts, files
from queue_core.errors import (
    BadOption,
    CatalogUnavailable,
    DamagedBackup,
    FormatTooNew,
    NoSuchStore,
    StorageUnavailable,
)
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.upkeep.backup.backup import Progress, each_at_once
from queue_core.upkeep.backup.folder import BackupFolder, copy
from queue_core.upkeep.backup.manifest import Manifest
from queue_core.values.address import Address
from queue_core.verbs.quarantine import set_apart

#: Ids and epochs jump by a million, and by ten for each millisecond since the backup.
JUMP = 1_000_000
JUMP_PER_SECOND = 10_000


@dataclass(frozen=True, slots=True)
class Restored:
    """
    The outcome of a restore.

    Attributes:
        age: Seconds since the backup was taken, by the catalog's clock. Messages that were settled
            since then are back. Messages that were loaded since then are lost, unless their
            segments are in `found`.
        messages: Number of messages in the catalog.
        copied: Number of segment files that were copied into the storage.
        found: Locations of segment files in the storage that the backup does not know. Vacuum keeps
            them.
        damaged: Number of messages that are damaged, because neither the storage nor the backup has
            their segments.
    """

    age: float
    messages: int
    copied: int
    found: tuple[str, ...]
    damaged: int


def restore(
    folder: BackupFolder,
    address: Address,
    *,
    over: bool = False,
    progress: Progress = lambda *_: None,
) -> Restored:
    """Restore a backup; raises `BadOption` unless the place is empty or *over* is given."""
    manifest = _checked(folder)
    copies = folder.segments(manifest)
    storage = Storage.open(address.storage).of_store(None)
    catalog: Catalog | None = None
    with suppress(NoSuchStore):
        catalog = Catalog(address.catalog, create=False)
    try:
        found = look(catalog, storage)
        store = store_id(manifest, found, address, over=over)
        needed = {at: it for at, it in copies.items() if found.present.get(at) != it[0]}
        undo = ExitStack()

        def work(connection: Connection) -> Restored:
            table_rows.lock(connection)
            if not over and table_rows.are_used(connection):
                # Perhaps another restore of the same backup did, and needs these segments.
                undo.pop_all()
                raise BadOption(
                    "the catalog was put to use while segments were copied; its rows were not "
                    "changed"
                )
            age = _replace_rows(connection, folder, manifest, progress)
            restored.take_identity(connection, store, manifest.store)
            strange, damaged = _compare(connection, found.present.keys() | needed.keys())
            _report(connection, len(strange), damaged)
            acts.about(messages_set_apart=damaged)
            acts.note(connection)
            messages = amounts.messages(connection)
            faults.point("restore.before_commit")
            # From here on, the copies may belong to the restored store.
            undo.pop_all()
            return Restored(age, messages, len(needed), tuple(strange), damaged)

        with undo:
            if not over:
                undo.callback(_remove, storage, needed)
            _copy(folder, storage, needed, progress)
            faults.point("restore.copied")
            if catalog is None:
                catalog = Catalog(address.catalog)
            with acts.acting(catalog, "restore", None, {"folder": str(folder.path), "over": over}):
                try:
                    done = catalog.write(work)
                except CatalogUnavailable:
                    # Perhaps another restore of the same backup keeps the catalog just now.
                    undo.pop_all()
                    raise
        faults.point("restore.committed")
        # The reports are about files that are back, or the lost catalog. Readers report the rest.
        for report in storage.damage_reports():
            storage.forget_damage(report)
        Identity(catalog, storage).adopt()
    finally:
        if catalog is not None:
            catalog.close()
    return done


def _replace_rows(
    connection: Connection, folder: BackupFolder, manifest: Manifest, progress: Progress
) -> float:
    """Replace the rows of all tables; return the age of the backup in seconds."""
    for number, name in enumerate(table_rows.NAMES):
        progress("tables", number, len(table_rows.NAMES))
        table_rows.replace(connection, name, folder.table(manifest, name))
    age = max(dialect.read_clock(connection) - manifest.taken_at, 0) / 1e6
    # Skip what may have been assigned since the backup.
    jump = JUMP + int(age * JUMP_PER_SECOND)
    table_rows.skip_ids(connection, manifest.last_ids, jump)
    restored.forget_processes(connection, manifest.taken_at)
    return age


def _compare(connection: Connection, present: Set[str]) -> tuple[list[str], int]:
    """Record files that the backup does not know; mark messages without files as damaged."""
    known = {row.location: row.state for row in files.all_files(connection)}
    found = sorted(present - known.keys())
    files.note_found(connection, found)
    lost = sorted({at for at, state in known.items() if state == "live"} - present)
    return found, set_apart(connection, lost) if lost else 0


def _report(connection: Connection, found: int, damaged: int) -> None:
    moves = Moves()
    if found:
        moves.count(None, found, "segments that the backup does not know", None)
    if damaged:
        moves.count(None, damaged, "messages whose segments are missing", "damaged")
    moves.record(connection, schedule.STORE, RESTORE)


def _checked(folder: BackupFolder) -> Manifest:
    """Check every table, and return the manifest."""
    manifest = folder.manifest()
    if manifest.format > format.FORMAT:
        raise FormatTooNew(
            f"backup {folder.path} is of a catalog of format {manifest.format}, and this ignis "
            f"reads up to {format.FORMAT}; upgrade ignis"
        )
    if manifest.format < format.FORMAT or manifest.tables.keys() != {*table_rows.NAMES}:
        raise BadOption(
            f"backup {folder.path} is of a catalog of format {manifest.format}; restore it with "
            f"the ignis that wrote it, and then open the store with this one"
        )
    for name in manifest.tables:
        folder.check(manifest, name)
    return manifest


def _copy(
    folder: BackupFolder,
    storage: Storage,
    needed: Mapping[str, tuple[int, str]],
    progress: Progress,
) -> None:
    """Copy segments into the storage; raises `DamagedBackup`."""

    def copy_one(location: str) -> None:
        with folder.opened(folder.path / location) as source, storage.create(location) as sink:
            if copy(source.read, sink) != needed[location]:
                raise DamagedBackup(
                    f"{folder.path / location} is altered or torn; the catalog was not changed: "
                    "restore from another backup"
                )

    list(each_at_once(copy_one, needed, progress))


def _remove(storage: Storage, copies: Collection[str]) -> None:
    """Remove segments that were copied, since the next restore wants an empty place."""
    with suppress(StorageUnavailable):
        list(each_at_once(storage.remove, copies, lambda *_: None))


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """The catalog and the storage before the restore."""

    #: The id of the store in the catalog, and of the store that its backup was made of.
    store: str | None
    origin: str | None
    #: Whether the catalog has queues or consumers.
    used: bool
    #: The ids of the stores whose marks are in the storage, and the sizes of the segments in it.
    owners: frozenset[str]
    present: Mapping[str, int]


def look(catalog: Catalog | None, storage: Storage) -> BackupPlace:
    """Look at a catalog, which may not exist yet, and at a storage."""
    owners, present = frozenset(storage.owners()), storage.sizes()
    if catalog is None:
        return BackupPlace(None, None, False, owners, present)
    with catalog.read() as connection:
        store, origin = (fact(connection, name) for name in ("store", ORIGIN))
        return BackupPlace(store, origin, table_rows.are_used(connection), owners, present)


def store_id(manifest: Manifest, place: BackupPlace, address: Address, *, over: bool) -> str:
    """Return the id for the restored store; raises `BadOption` if the place is not allowed."""
    same = {manifest.store}
    if place.store is not None and place.origin == manifest.store:
        same.add(place.store)
    users = {place.store} if place.used and place.store is not None else set()
    for what, stores in (("catalog", users), ("storage", place.owners)):
        if stores - same:
            raise BadOption(
                f"{address.shown} has the {what} of another store, {min(stores - same)}, and the "
                f"backup is of store {manifest.store}; nothing was changed: restore into another "
                "place"
            )
    if not over and (place.used or place.owners or place.present):
        raise BadOption(
            f"{address.shown} is not empty; nothing was changed: restore into another place, or, "
            "once every process that uses the store is stopped, over the store (--over), which "
            "replaces its catalog and keeps its segments"
        )
    if len(place.owners) > 1:
        raise BadOption(
            f"{address.shown} has the storage of several stores, {', '.join(sorted(place.owners))}"
            "; nothing was changed: restore into another place"
        )
    return min(place.owners) if place.owners else uuid.uuid4().hex


def verify(folder: BackupFolder, progress: Progress = lambda *_: None) -> tuple[int, list[str]]:
    """
    Return the number of segments in a backup, and what is wrong with the backup.

    Raises `BadOption` if the folder holds no backup, and `DamagedBackup` if its manifest cannot be
    read.
    """
    manifest = folder.manifest()
    faults: list[str] = []

    def check(compare: Callable[..., None], *file: object) -> None:
        try:
            compare(*file)
        except DamagedBackup as error:
            faults.append(str(error))

    for number, name in enumerate(manifest.tables):
        progress("tables", number, len(manifest.tables))
        check(folder.check, manifest, name)
    if faults or manifest.segments is None:
        return 0, faults
    try:
        copies = folder.segments(manifest)
    except DamagedBackup as error:
        return 0, [str(error)]
    for number, (location, (_, digest)) in enumerate(copies.items()):
        progress("segments", number, len(copies))
        check(folder.check_segment, location, digest)
    batches = folder.table(manifest, "segments")
    named = {at for each in batches for at in each.column("file").drop_null().to_pylist()}
    faults += [
        f"{location} is not in the backup: when it was taken, the storage did not have it whole"
        for location in sorted(named - copies.keys())
    ]
    return len(copies), faults
