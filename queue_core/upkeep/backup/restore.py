"""Restore a backup: into a new place, or over the storage of the same store; or verify it.

First, the backup is checked. Then segments that the storage does not have, or not in their length,
are copied into it. At last, one
transaction replaces the catalog: `queue_core.upkeep.backup.replacement`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from queue_core.catalog import format, table_rows
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity.identity import Identity
from queue_core.catalog.records.acts import acting
from queue_core.catalog.records.restored import ORIGIN, fact
from queue_core.errors import (
    BadOption,
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
from queue_core.upkeep.backup.replacement import Replacement, Restored
from queue_core.values.address import Address


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
    catalog = _open(address)
    try:
        found = look(catalog, storage)
        store = store_id(manifest, found, address, over=over)
        needed = {at: it for at, it in copies.items() if found.present.get(at) != it[0]}
        _copy(folder, storage, needed, progress)
        faults.point("restore.copied")
        if catalog is None:
            catalog = Catalog(address.catalog)
        replacement = Replacement(
            folder=folder,
            manifest=manifest,
            store=store,
            present=found.present.keys() | needed.keys(),
            copied=len(needed),
            over=over,
            progress=progress,
        )
        with acting(catalog, "restore", None, {"folder": str(folder.path), "over": over}):
            done = catalog.write(replacement.work)
        faults.point("restore.committed")
        Identity(catalog, storage).adopt()
    finally:
        if catalog is not None:
            catalog.close()
    return done


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


def _open(address: Address) -> Catalog | None:
    """Open the catalog; None if there is none."""
    try:
        return Catalog(address.catalog, create=False)
    except NoSuchStore:
        return None


def _copy(
    folder: BackupFolder,
    storage: Storage,
    needed: Mapping[str, tuple[int, str]],
    progress: Progress,
) -> None:
    """Copy segments into the storage, or none of them; raises `DamagedBackup`."""

    def copy_one(location: str) -> None:
        with folder.opened(location) as source, storage.create(location) as sink:
            if copy(source.read, sink) != needed[location]:
                raise DamagedBackup(
                    f"{folder.path / location} is altered or torn; the catalog was not changed: "
                    "restore from another backup"
                )

    try:
        for _ in each_at_once(copy_one, needed, progress):
            pass
    except BaseException:
        # The next restore wants an empty place.
        with suppress(StorageUnavailable):
            for _ in each_at_once(storage.remove, needed, progress):
                pass
        raise


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
    faults += [
        f"{location} is not in the backup: when it was taken, the storage did not have it whole"
        for location in sorted({*_named(folder, manifest)} - copies.keys())
    ]
    return len(copies), faults


def _named(folder: BackupFolder, manifest: Manifest) -> Iterator[str]:
    """Yield the files that the catalog of a backup names."""
    for batch in folder.table(manifest, "segments"):
        yield from batch.column("file").drop_null().to_pylist()
