"""The identity of a store: its catalog and its storage know each other.

The catalog has the store's id, and the storage has a mark of that name, ``identity/<id>``, with a
token. The catalog remembers the tokens that it wrote, and each vacuum writes a new one. So, of two
copies of a catalog, only the last writer owns the storage. A copy that was not made by the
database's own replication is recognised at once, by the place of the catalog.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import NamedTuple

from sqlalchemy import Connection, insert, select, update

from queue_core.catalog import dialect, seals
from queue_core.catalog.database import Catalog
from queue_core.catalog.identity import clock
from queue_core.catalog.records.restored import ADOPTED, RESTORED_AT
from queue_core.catalog.tables import facts, files, slices
from queue_core.errors import CatalogUnavailable, DamagedCatalog, StorageUnavailable
from queue_core.segments.storage import Storage

#: How many of its last tokens a catalog remembers, because concurrent vacuums write in any order.
_TOKENS = 256
_NAMES = ("store", "tokens", "place", "storage")
_ADOPT = "run `ignis adopt` on the one catalog that is to own the storage"


class _Known(NamedTuple):
    """The catalog's facts about the store."""

    store: str | None
    tokens: tuple[str, ...]
    #: Where the catalog was when it took the storage, and the storage's name; None before that.
    place: str | None
    storage: str | None


class Identity:
    """Checks that a storage is the one of a catalog, and that no other catalog owns it."""

    def __init__(self, catalog: Catalog, storage: Storage, *, leftovers: bool = False) -> None:
        self._catalog = catalog
        self._storage = storage
        self._leftovers = leftovers

    def attach(self) -> None:
        """
        Check a storage when its store is opened, and let it check itself before it is written.

        Raises `StorageUnavailable` or `DamagedCatalog` if it is certainly the wrong one. A storage
        that cannot be reached or written now is checked later.
        """
        self._storage.verify = self.verify
        known = self._read()
        if known.storage is None:
            try:
                self._storage.owners()
            except StorageUnavailable:
                return
            self._bind(known, opening=True)
        else:
            self._is_of(known.store)
            try:
                there = self._token(known) is not None
            except StorageUnavailable:
                return
            if not there:
                raise self._stranger()

    def verify(self, verified: str | None = None) -> str:
        """
        Return the token of the storage's mark.

        Raises `StorageUnavailable` unless this catalog owns the storage. The catalog is not asked
        again about the token *verified*.
        """
        mine = self._storage.identity
        if verified is not None and mine is not None and self._storage.token(mine) == verified:
            return verified
        known = self._read()
        if known.storage is None:
            self._bind(known)
            known = self._read()
        self._is_of(known.store)
        token = self._token(known)
        if token is None:
            raise self._stranger()
        if known.place != self._place():
            raise StorageUnavailable(
                f"storage {self._storage.name}: this catalog was copied, moved or restored from a "
                "dump since it took the storage, and the vacuum of its other copy may remove what "
                f"it writes; nothing was changed: stop the other copy, then {_ADOPT}"
            )
        # A vacuum may have written a newer token since the catalog was read. It remembers each one
        # in the catalog first, so that a second look finds it there.
        if token not in known.tokens and token not in self._read().tokens:
            raise StorageUnavailable(
                f"storage {self._storage.name}: another copy of this catalog owns the storage, or "
                f"this one was restored from a backup; nothing was changed: stop the other, then "
                f"{_ADOPT}"
            )
        return token

    def own(self) -> None:
        """Write a new token, so that from now on every other copy of the catalog is refused."""
        self.verify()
        self.verify_alone()
        token = _new_token()
        store = self._catalog.write(lambda connection: _remember(connection, token))
        # On a full disk, the old token, which was just found, is enough: vacuum makes room.
        with suppress(StorageUnavailable):
            self._storage.mark(store, token)

    def verify_alone(self) -> None:
        """Raise `StorageUnavailable` if the storage has the mark of another store too."""
        others = self._storage.owners() - {self._storage.identity}
        if others:
            raise StorageUnavailable(
                f"storage {self._storage.name} belongs to another store too, {min(others)}; "
                f"nothing was changed: give each store a storage of its own, or {_ADOPT}"
            )

    def adopt(self) -> None:
        """Make this catalog the owner of the storage, whatever its present owner."""
        token = _new_token()

        def work(connection: Connection) -> str:
            store = _facts(connection).store or uuid.uuid4().hex
            _put(connection, store=store, tokens=token, place=self._place(connection))
            # Most adopted catalogs were restored by other means than `ignis restore`.
            now = dialect.read_clock(connection)
            _put(connection, storage=self._storage.name, **{ADOPTED: token, RESTORED_AT: str(now)})
            # Messages that were fired by a clock that was ahead of this one were fired before, too.
            late = update(slices).where(slices.c.fired_at > now)
            connection.execute(late.values(seals.changing(slices, fired_at=now)))
            return store

        store = self._catalog.write(work)
        self._storage.mark(store, token)
        for other in self._storage.owners() - {store}:
            self._storage.unmark(other)
        self._is_of(store)

    def _bind(self, known: _Known, *, opening: bool = False) -> None:
        """Take a storage that belongs to no store; several processes of the store may do so."""
        try:
            self._check_free(known)
        except (StorageUnavailable, DamagedCatalog):
            if self._read() != known:
                # Another process of this store was faster.
                self.verify()
                return
            raise
        token = _new_token()

        def work(connection: Connection) -> str:
            # Of several processes of this store, one chooses its id.
            connection.execute(select(facts).with_for_update()).all()
            now = _facts(connection)
            store = now.store or uuid.uuid4().hex
            _put(connection, store=store, place=self._place(connection))
            _remember(connection, token)
            return store

        try:
            store = self._catalog.write(work)
            self._storage.mark(store, token)
        except (CatalogUnavailable, StorageUnavailable):
            # A process that only reads need not be able to.
            if opening:
                return
            raise
        others = self._storage.owners() - {store}
        if others:
            # Each of the two that began at once sees the other's mark, or only the later one does.
            self._storage.unmark(store)
            raise self._taken(others)
        self._catalog.write(lambda connection: _put(connection, storage=self._storage.name))
        self._is_of(store)

    def _is_of(self, store: str | None) -> None:
        self._storage.identity = self._catalog.store = store

    def _check_free(self, known: _Known) -> None:
        """Raise if the storage belongs to another store, or is not where the segments are."""
        others = self._storage.owners() - {known.store}
        if others:
            raise self._taken(others)
        if known.store is not None:
            # It was checked when the catalog was made.
            return
        with self._catalog.read() as connection:
            live = connection.scalars(select(files.c.location).where(files.c.state == "live"))
            named = set(live)
        there = self._storage.list()
        if there and not named and not self._leftovers:
            raise DamagedCatalog(
                f"storage {self._storage.name} holds segments that the catalog does not know; "
                "nothing was changed: restore their catalog, correct the address, or, to give "
                "their messages up, run `ignis adopt`"
            )
        if named and not named & there.keys() and self._storage.missing(named) == named:
            raise StorageUnavailable(
                f"storage {self._storage.name} holds none of the {len(named)} segments that the "
                "catalog names; nothing was changed: mount it, or correct `storage`"
            )

    def _taken(self, others: set[str]) -> StorageUnavailable:
        return StorageUnavailable(
            f"storage {self._storage.name} belongs to another store, {min(others)}; nothing was "
            "changed: give this catalog a storage of its own, or restore the catalog of that "
            f"store. To give its messages up, {_ADOPT}"
        )

    def _stranger(self) -> StorageUnavailable:
        others = self._storage.owners()
        return self._taken(others) if others else StorageUnavailable(self._storage.stranger())

    def _token(self, known: _Known) -> str | None:
        return None if known.store is None else self._storage.token(known.store)

    def _place(self, connection: Connection | None = None) -> str:
        """Return the place of the catalog; a copy has another one."""
        if self._catalog.file is not None and self._storage.holds(self._catalog.file):
            return "embedded"
        if connection is None:
            with self._catalog.read() as connection:
                return dialect.of(connection).place(connection, facts)
        return dialect.of(connection).place(connection, facts)

    def _read(self) -> _Known:
        with self._catalog.read() as connection:
            return _facts(connection)


def _facts(connection: Connection, *, lock: bool = False) -> _Known:
    query = select(facts).where(facts.c.name.in_(_NAMES))
    rows = connection.execute(query.with_for_update() if lock else query)
    found = {row.name: row.value for row in rows}
    return _Known(
        store=found.get("store"),
        tokens=tuple(found.get("tokens", "").split()),
        place=found.get("place"),
        storage=found.get("storage"),
    )


def _remember(connection: Connection, token: str) -> str:
    """Add a token to those of the catalog; return the store's id."""
    known = _facts(connection, lock=True)
    assert known.store is not None, "the store has an id"
    _put(connection, tokens=" ".join([*known.tokens[1 - _TOKENS :], token]))
    return known.store


def _put(connection: Connection, **values: str) -> None:
    rows = [{"name": name, "value": value} for name, value in values.items()]
    connection.execute(dialect.upsert(dialect.of(connection), facts, "value"), rows)


def _new_token() -> str:
    return uuid.uuid4().hex[:16]


class NewStore:
    """A store that may have to be created in a storage."""

    def __init__(self, storage: Storage, *, adopt: bool = False, leftovers: bool = False) -> None:
        self._storage = storage
        self._adopt = adopt
        self._leftovers = leftovers

    def write(self, connection: Connection) -> None:
        """Check again, and write into the new catalog; raises `DamagedCatalog`."""
        store = self.check()
        if store is not None:
            connection.execute(insert(facts).values(name="store", value=store))
        clock.accept(connection)

    def check(self) -> str | None:
        """
        Return an id for the store; None if adopting or attaching the storage chooses it.

        Raises `DamagedCatalog` if a store is there whose catalog is missing. Segments without a
        mark are a store too unless, as *leftovers*, the first write has staged them.
        """
        if self._adopt:
            return None
        try:
            owners = self._storage.owners()
            segments = not owners and not self._leftovers and bool(self._storage.list())
        except StorageUnavailable:
            return None
        if owners or segments:
            whose = f"of store {min(owners)}" if owners else "of a store"
            raise DamagedCatalog(
                f"storage {self._storage.name} holds the messages {whose}, and its catalog is "
                "missing; nothing was changed: correct the address (on PostgreSQL also the "
                "search_path), or restore that catalog. To give those messages up, run `ignis "
                "adopt`: a new catalog then owns the storage, and its vacuum removes them"
            )
        return uuid.uuid4().hex
