"""The place of a restore: its present contents, and whether a backup may be restored into it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from queue_core.catalog import table_rows
from queue_core.catalog.database import Catalog
from queue_core.catalog.records.restored import ORIGIN, fact
from queue_core.errors import BadOption
from queue_core.segments.storage import Storage
from queue_core.upkeep.backup.manifest import Manifest
from queue_core.values.address import Address


@dataclass(frozen=True, slots=True)
class BackupPlace:
    """The catalog and the storage before the restore."""

    #: The id of the store in the catalog, and of the store that its backup was made of.
    store: str | None
    origin: str | None
    #: Whether the catalog has queues or consumers.
    used: bool
    #: The ids of the stores whose marks are in the storage, and the segments in it.
    owners: frozenset[str]
    present: frozenset[str]


def look(catalog: Catalog | None, storage: Storage) -> BackupPlace:
    """Look at a catalog, which may not exist yet, and at a storage."""
    owners, present = frozenset(storage.owners()), frozenset(storage.list())
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
