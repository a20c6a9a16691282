"""Check that a new store may be created, and write its identity and its clock."""

from __future__ import annotations

import uuid

from sqlalchemy import Connection, insert

from queue_core.catalog.identity import clock
from queue_core.catalog.tables import facts
from queue_core.errors import DamagedCatalog, StorageUnavailable
from queue_core.segments.storage import Storage


class NewStore:
    """A store that may have to be created in a storage."""

    def __init__(self, storage: Storage, *, adopt: bool = False, leftovers: bool = False) -> None:
        self._storage = storage
        self._adopt = adopt
        self._leftovers = leftovers

    def check(self) -> None:
        """Raise `DamagedCatalog` if the storage belongs to a store whose catalog is missing."""
        self._new_id()

    def write(self, connection: Connection) -> None:
        """Check again, and write into the new catalog; raises `DamagedCatalog`."""
        store = self._new_id()
        if store is not None:
            connection.execute(insert(facts).values(name="store", value=store))
        clock.accept(connection)

    def _new_id(self) -> str | None:
        """Return an id for the store; None if adopting or attaching the storage chooses it."""
        return None if self._adopt else check_empty(self._storage, leftovers=self._leftovers)


def check_empty(storage: Storage, *, leftovers: bool = False) -> str | None:
    """
    Return the id for a new store in a storage; None if the storage cannot be reached now.

    Raises `DamagedCatalog` if a store is there whose catalog is missing. Segments without a mark
    are a store of an older ignis or, with *leftovers*, those that the first write has staged.
    """
    try:
        owners = storage.owners()
        segments = not owners and not leftovers and bool(storage.list())
    except StorageUnavailable:
        return None
    if owners or segments:
        whose = f"of store {min(owners)}" if owners else "of a store"
        raise DamagedCatalog(
            f"storage {storage.name} holds the messages {whose}, and its catalog is missing; "
            "nothing was changed: correct the address (on PostgreSQL also the search_path), or "
            "restore that catalog. To give those messages up, run `ignis adopt`: a new catalog "
            "then owns the storage, and its vacuum removes them"
        )
    return uuid.uuid4().hex
