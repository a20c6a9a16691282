"""`Store`: one catalog and one storage, which hold many queues."""

from __future__ import annotations

import os
import weakref
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa

from queue_core import column_roles, faults
from queue_core.address import Address
from queue_core.catalog import consumers, queues, views
from queue_core.catalog.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.database import Catalog
from queue_core.errors import BadOption, SchemaMismatch
from queue_core.model import Consumer, QueueInfo
from queue_core.names import check_consumer, check_queue, nearest, of_process
from queue_core.policies import binding
from queue_core.presence.keeper import Keeper
from queue_core.queue import Queue
from queue_core.schema import canonical
from queue_core.segments.buffers import DEFAULT_BUFFERS
from queue_core.segments.shard_hash import can_be_key
from queue_core.segments.storage import Storage
from queue_core.settings import (
    DEFAULT_SHARDS,
    QueueSettings,
    check_seconds,
    check_shards,
    is_whole,
)
from queue_core.tasks.vacuum import GRACE_SECONDS, vacuum
from queue_core.verbs.recover import recover
from queue_core.views import VIEWS


class Store(AbstractContextManager["Store"]):
    """
    Many queues in one place: ``Store.open("some/folder")``.

    Safe for many threads, and for many processes at once. Close it after use, or use it in a
    ``with`` statement.
    """

    def __init__(self, address: Address, *, create: bool = True) -> None:
        self.address = address
        # First, as it makes nothing: a URI that is none leaves no catalog behind.
        self.storage = Storage.open(address.storage)
        self.catalog = Catalog(address.catalog, create=create)
        self._consumer: Consumer | None = None
        self._keeper = Keeper(self.catalog)
        _close_in_children(self)

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        catalog: str | None = None,
        storage: str | None = None,
        create: bool = True,
    ) -> Store:
        """
        Open the store in a folder, or the one at a catalog and a storage; made if it is new.

        Raises `BadOption`, `CatalogUnavailable`, `DamagedCatalog`, `FormatTooNew`, and
        `NoSuchStore` where *create* is False.
        """
        return cls(Address.of(path, catalog=catalog, storage=storage), create=create)

    def create_queue(
        self,
        name: str,
        schema: pa.Schema,
        *,
        shards: int = DEFAULT_SHARDS,
        key: str | None = None,
        exist_ok: bool = False,
        **settings: Any,
    ) -> Queue:
        """
        A new queue with the columns of *schema*; *settings* are those of `QueueSettings`.

        *key* names the column whose hash picks the shard: messages of one key stay in order. It is
        the one of the setting ``group``, unless given. With
        *exist_ok*, one that is there already and has the same shape will do. Raises `BadName`,
        `BadOption`, `SchemaMismatch`, `QueueExists`.
        """
        check_queue(name)
        check_shards(shards)
        columns = canonical(schema)
        checked = QueueSettings.of(settings)
        # Messages of one group are in one shard.
        key = checked.group if key is None else key
        _check_key(columns, key)
        column_roles.check(checked, columns, key)
        binding.check(checked, columns, key)

        def work(connection: Any) -> QueueInfo:
            created = queues.create(
                connection,
                name,
                columns,
                shards=shards,
                key=key,
                settings=checked,
                exist_ok=exist_ok,
            )
            faults.point("create.before_commit")
            return created

        created = Queue(self, self.catalog.write(work))
        faults.point("create.committed")
        return created

    def queue(self, name: str, *, buffers: int = DEFAULT_BUFFERS) -> Queue:
        """
        The queue of that name; raises `NoSuchQueue`, with the nearest name there is.

        Of the buffers that `Queue.request` gives, so many are out at a time.
        """
        check_queue(name)
        if not is_whole(buffers) or buffers < 1:
            raise BadOption(f"buffers={buffers!r}: use a whole number, 1 or more")
        with self.catalog.read() as connection:
            return Queue(self, queues.find(connection, name), buffers=buffers)

    def deactivate(self, name: str) -> None:
        """Give the queue of that name up, for good (`Queue.deactivate`)."""
        self.queue(name).deactivate()

    def queues(self) -> list[str]:
        """The names of all queues, sorted; of deactivated ones too."""
        with self.catalog.read() as connection:
            return [info.name for info in queues.find_all(connection)]

    def view(self, name: str, queue: str | None = None) -> pa.Table:
        """A metadata view (`queue_core.views.VIEWS`), of one queue or of all of them."""
        if name not in VIEWS:
            raise BadOption(f"view={name!r}{nearest(name, VIEWS)}; use {', '.join(VIEWS)}")
        return views.view(self.catalog, name, queue)

    def consumer(self, name: str | None = None, *, beats: bool = False) -> Consumer:
        """
        This process as a consumer, or a new life of the consumer of that name.

        One that *beats* keeps what it has fired from being swept, as long as it says that it lives
        (`queue_core.catalog.consumers.heartbeat`). A consumer of the same name elsewhere is fenced
        off. Raises `BadName`.
        """
        if name is not None:
            checked = check_consumer(name)
            return self.catalog.write(
                lambda connection: consumers.enlist(connection, checked, beats=beats)
            )
        if self._consumer is None:
            self._consumer = self.consumer(f"python:{of_process()}")
        return self._consumer

    def vacuum(self, *, grace: float = GRACE_SECONDS, dry_run: bool = False) -> list[str]:
        """Remove files that no message needs, after *grace* seconds; return their locations."""
        check_seconds("grace", grace)
        return vacuum(self.catalog, self.storage, grace, dry_run=dry_run)

    def recover(self, *, dead_after: float = DEAD_AFTER_SECONDS) -> int:
        """Give back what dead consumers had fired and never seen; return how many messages."""
        check_seconds("dead_after", dead_after)
        return recover(self.catalog, dead_after)

    @property
    def keeper(self) -> Keeper:
        """This process as one that keeps what it has received (`Queue.get_and_keep`)."""
        return self._keeper

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._keeper.stop()
        self.catalog.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {self.storage.name} with {self.catalog!r}>"


def _check_key(columns: pa.Schema, key: str | None) -> None:
    if key is not None:
        if key not in columns.names:
            raise SchemaMismatch(
                f"key={key!r} is no column of the queue{nearest(key, columns.names)}; "
                f"it has {', '.join(columns.names)}"
            )
        if not can_be_key(columns.field(key).type):
            raise SchemaMismatch(
                f"key={key!r}: a column of type {columns.field(key).type} cannot pick the shard; "
                "use an integer, boolean, date, timestamp, decimal, string or binary column"
            )


def _close_in_children(store: Store) -> None:
    """A forked child must not use its parent's connections, nor act as the same consumer."""
    alive = weakref.ref(store)

    def forget() -> None:
        inherited = alive()
        if inherited is not None:
            inherited.catalog.engine.dispose(close=False)
            inherited._consumer = None
            inherited._keeper = Keeper(inherited.catalog)

    os.register_at_fork(after_in_child=forget)
