"""`Store`: a catalog and a storage that hold many queues."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.identity.identity import Identity, NewStore
from queue_core.catalog.records.acts import acting
from queue_core.catalog.records.timings import Timings
from queue_core.consumers.presence import Keeper, OwnConsumer
from queue_core.errors import BadOption, Invalid, NoSuchQueue
from queue_core.segments.buffers import DEFAULT_BUFFERS
from queue_core.segments.storage import Storage
from queue_core.support.interruption import shielded
from queue_core.upkeep.tasks.registry import TASKS
from queue_core.values.address import Address
from queue_core.values.durations import Duration, check_timeout, check_whole
from queue_core.values.model import Consumer, Magazine
from queue_core.values.names import check_consumer, check_magazine, listed, nearest
from queue_core.values.options import CLIENT_ID
from queue_core.values.settings import DEFAULT_SHARDS
from queue_core.values.views import VIEWS
from queue_core.watching import views

if TYPE_CHECKING:
    from queue_core.queue import Queue
    from queue_core.upkeep.administration import StoreAdmin
    from queue_core.upkeep.backup.restore import Restored
    from queue_core.waiting.joint_load import JointLoads


@shielded
class Store(AbstractContextManager["Store"]):
    """
    Many queues in one place: ``Store.open("some/folder")``.

    Threads can share a store, and several processes can open the same store. Close it after use, or
    use it in a ``with`` statement.

    Every method that reads or writes the store can raise `CatalogUnavailable`,
    `StorageUnavailable` and `DamagedCatalog`, in addition to the errors that it lists.

    Args:
        address: Where the catalog and the storage are; `Store.open` makes it.
        create: Whether to create a store that does not exist yet.
        adopt: Whether the catalog becomes the owner of the storage, as in `Store.open`.
        leftovers: Whether a new store may be created in a storage with segments that no store
            owns.
    """

    def __init__(
        self,
        address: Address,
        *,
        create: bool = True,
        adopt: bool = False,
        leftovers: bool = False,
    ) -> None:
        self.address = address
        # Before the catalog, because it creates nothing: a malformed URI leaves no catalog.
        self.storage = storage = Storage.open(address.storage).of_store(None)
        new = NewStore(storage, adopt=adopt, leftovers=leftovers)
        self.catalog = Catalog(address.catalog, create=create, new=new)
        try:
            identity = Identity(self.catalog, storage, leftovers=leftovers)
            if adopt:
                identity.adopt()
            identity.attach()
        except BaseException:
            self.catalog.close()
            raise
        self._own_consumer = OwnConsumer(self.catalog)
        self._keeper = Keeper(self.catalog)
        _stores.add(self)

    @classmethod
    def open(
        cls,
        path: str | Path | None = None,
        *,
        catalog: str | None = None,
        storage: str | Path | None = None,
        create: bool = True,
        adopt: bool = False,
    ) -> Store:
        """
        Open a store, and create it if it is new. Give either *path* or *catalog* and *storage*.

        Without any of them, the environment says it, as for the command line and for the options of
        source and sink: ``IGNIS_PATH``, or ``IGNIS_CATALOG`` and ``IGNIS_STORAGE``.

        Args:
            path: Folder of an embedded store, with a SQLite catalog and segment files.
            catalog: Database URL of the catalog, such as ``postgresql+psycopg://host/db`` or
                ``sqlite:///file``.
            storage: Folder or URI of the segment files, such as ``s3://bucket/prefix``.
            create: Whether to create a store that does not exist yet.
            adopt: Whether the catalog becomes the owner of the storage, even if another store or
                another copy of the catalog owns it now. Use it after the catalog was restored,
                moved or lost. First stop every process that uses another copy, and back up the
                storage if it has messages that this catalog does not know: vacuum removes them.

        Returns:
            The open store.

        Raises:
            BadOption: The address is incomplete, contradictory or malformed.
            NoSuchStore: There is no store, and *create* is false.
            CatalogUnavailable: The catalog cannot be reached.
            StorageUnavailable: The storage belongs to another store, or is not mounted.
            DamagedCatalog: The catalog cannot be read, or is missing where messages are stored.
            FormatTooNew: A newer version of ignis wrote the store.
        """
        address = Address.of(path, catalog=catalog, storage=storage)
        return cls(address, create=create, adopt=adopt)

    def create_queue(
        self,
        name: str,
        schema: pa.Schema | type,
        *,
        shards: int = DEFAULT_SHARDS,
        key: str | None = None,
        exist_ok: bool = False,
        **settings: Any,
    ) -> Queue:
        """
        Create a queue.

        Args:
            name: A letter, then letters, digits, ``_``, ``-`` or ``.``; up to 128 characters. It
                must not end in ``_SIDELINE``.
            schema: The columns, or a dataclass or pydantic model whose fields become the columns.
                Names must be unique without regard to case, and must not be those of the metadata
                columns (`METADATA`). Types are those that Spark can hold. The catalog stores the
                columns, and not the class.
            shards: How many shards, 1 to 512. First in, first out holds within each shard; with 1,
                for the whole queue.
            key: The column whose hash picks the shard, so that messages with the same key stay in
                order: an integer, boolean, date, timestamp, decimal, string or binary column. Loads
                refuse rows with a null key. By default, the setting ``group``. Without key and
                group, loads go to the shards in turn.
            exist_ok: Whether to accept an existing queue with the same columns, shards and key. Its
                settings stay as they are, and a Python warning names those of *settings* that are
                different.
            **settings: Fields of `QueueSettings`.

        Returns:
            The queue.

        Raises:
            BadName: The name of the queue or of a column is not allowed.
            BadOption: *shards* or a setting is unknown or out of range, or the policy cannot be
                imported or stored.
            SchemaMismatch: A type of a column or of a field is not supported, or *key* is not a
                suitable column.
            QueueExists: The store has a queue of that name, and *exist_ok* is false or its columns,
                shards or key are different.
            QueueDeactivated: A deactivated queue still has that name.
        """
        # Not at the top, as in `queue`: the command line looks at many stores without a queue.
        from queue_core.queue import Queue
        from queue_core.queue.creating import create

        message_type = schema if isinstance(schema, type) else None
        given = {"shards": shards, "key": key, **settings}
        with acting(self.catalog, "create", name, given):
            info = create(self.catalog, name, schema, shards, key, settings, exist_ok=exist_ok)
        return Queue(self, info, message_type=message_type)

    def subscribe(
        self,
        name: str,
        *,
        to: str,
        start: str | datetime = "latest",
        **settings: Any,
    ) -> Queue:
        """
        Create a subscription: a queue whose messages are those that are loaded into another one.

        No message is copied. Each subscription to a queue gets every message, and has its own
        outcomes, retries and sideline. It has the columns, the key, the shards, the attributes and
        the categories of the queue that it reads, and nothing can be loaded into it. It has none of
        its other settings: of the columns that hold messages, only ``_hold_until`` counts, unless
        it has a ``hold_until`` of its own.

        With the setting ``selector``, it gets only the messages that meet this condition. A
        subscription to a subscription reads the log of the queue too, and gets what meets the
        selectors of both; the other one may be dropped.

        Args:
            name: As that of a queue.
            to: The queue, which has the setting ``log``, or a subscription to it.
            start: Which messages it gets: those that are loaded from now on (``"latest"``), all
                that the log still has (``"earliest"``), those that the log got since a time, with
                its time zone (a little later than their ``_loaded_at``; also earlier ones of the
                same minute, where compaction has merged the log), or those that another
                subscription to the same queue, given by its name, has not taken in. That one may
                have taken in more than it has handled, for instance by a browse or a selector.
            **settings: Fields of `QueueSettings`, except ``log``, ``policy``, ``dedup``,
                ``fair_by``, ``max_size``, ``max_bytes``, ``attributes`` and ``categories``.

        Returns:
            The subscription.

        Raises:
            BadName: The name is not allowed.
            BadOption: The queue has no log, *start* cannot be understood, or a setting is unknown,
                out of range, or not one of a subscription.
            NoSuchQueue: There is no queue *to*, or *start* names none.
            QueueExists: The store has a queue of that name.
            QueueDeactivated: The queue *to* is deactivated.
        """
        from queue_core.queue import Queue
        from queue_core.queue.creating import subscribe

        given = {"to": to, "start": start, **settings}
        with acting(self.catalog, "subscribe", name, given):
            return Queue(self, subscribe(self.catalog, name, to, start, settings))

    def queue(
        self, name: str, message_type: type | None = None, *, buffers: int = DEFAULT_BUFFERS
    ) -> Queue:
        """
        Open an existing queue.

        Args:
            name: The queue's name. ``{queue}_SIDELINE``, such as ``orders_SIDELINE``, opens the
                sideline of the queue ``orders``: `Queue.fire`, `Queue.peek`, `Queue.browse` and
                `Queue.choose` then read the sideline. Source: IgnisMQ.
            message_type: The class of its messages, for `Queue.objects`: a dataclass or a pydantic
                model, each of whose fields is a column of the queue. Source: IgnisMQ,
                ``getMagazine(name, class)``.
            buffers: How many buffers from `Queue.request` may be outstanding at once, 1 or more.

        Returns:
            The queue.

        Raises:
            NoSuchQueue: The store has no queue of that name; the message suggests the nearest.
            BadName: The name is not allowed.
            BadOption: *buffers* is out of range.
            SchemaMismatch: A field of *message_type* has no column, or one of another type.
        """
        from queue_core.queue import Queue

        check_magazine(name)
        check_whole("buffers", buffers, 1)
        with self.catalog.read() as connection:
            info, magazine = queues.find_magazine(connection, name)
        if message_type is not None:
            from queue_core.handling.objects.message_class import message_class

            message_class(message_type).check_fits(info.schema, name)
        queue = Queue(self, info, buffers=buffers, message_type=message_type)
        if magazine is Magazine.SIDELINE:
            queue.opened.only = magazine
        return queue

    @cached_property
    def _loads(self) -> JointLoads:
        from queue_core.waiting.joint_load import JointLoads

        return JointLoads(self.catalog, self.storage)

    def load(
        self, rows: Mapping[str, Any], *, timeout: Duration | None = None
    ) -> dict[str, pa.Array]:
        """
        Publish messages in several queues, in one transaction: all of them, or none.

        Args:
            rows: The rows for each queue by its name; as in `Queue.load`, but no buffers.
            timeout: Seconds, or a text such as ``"30s"`` or a ``timedelta``, for which the call
                waits while one of the queues is full, 0 or more. By default, as long as it takes.

        Returns:
            The ids of the messages of each queue, as `Queue.load` returns them.

        Raises:
            BadOption: One of the queues is a rendezvous, or *timeout* is out of range.
            NoSuchQueue: The store has no queue of one of the names.
            SchemaMismatch: Rows do not fit the columns of their queue.
            QueueFull: A queue is full, and *timeout* is over; nothing was loaded.
            QueueDeactivated: One of the queues was deactivated.
            Conflict: As in `Queue.load`.
            DamagedSegment: As in `Queue.load`.
        """
        # Not at the top: commands wait for its imports.
        from queue_core.queue.loading import load_into_several

        try:
            opened = {name: self.queue(name).opened for name in rows}
        except NoSuchQueue:
            with self.catalog.read() as connection:
                there = queues.find_those(connection, [*rows])
            missing = [name for name in rows if name not in there]
            if len(missing) < 2:
                raise
            raise NoSuchQueue(f"the store has no queues {listed(missing, quoted=True)}") from None
        return load_into_several(opened, rows, check_timeout("timeout", timeout))

    @property
    def admin(self) -> StoreAdmin:
        """What an administrator does with the store: its checks, backups, files and consumers."""
        from queue_core.upkeep.administration import StoreAdmin

        return StoreAdmin(self.catalog, self.storage)

    def queues(self) -> list[str]:
        """
        List the queues, including deactivated ones.

        Returns:
            Their names, sorted.
        """
        with self.catalog.read() as connection:
            return queues.names(connection)

    def view(self, name: str, queue: str | None = None) -> pa.Table:
        """
        Read a metadata view: a table that shows the state of the store.

        Args:
            name: A key of `VIEWS`, such as ``queues``, ``slices`` or ``sideline``.
            queue: Show only the rows of this queue. By default, those of all queues. Views without
                a column ``queue`` ignore it, such as ``consumers``. ``failures``, ``sideline``
                and ``traces`` take the name of the queue's sideline too.

        Returns:
            The rows, with the columns of ``VIEWS[name]``.

        Raises:
            BadOption: *name* is not the name of a view.
            NoSuchQueue: The store has no queue of that name.
        """
        if name not in VIEWS:
            raise BadOption(f"view={name!r}{nearest(name, VIEWS)}; use {', '.join(VIEWS)}")
        return views.view(self.catalog, name, queue, self.storage.uri)

    def consumer(self, name: str | None = None, *, beats: bool = False) -> Consumer:
        """
        Register a consumer, and fence off any earlier consumer of the same name.

        Args:
            name: A letter or digit, then letters, digits or any of ``_.:@-``; up to 200 characters.
                By default, a name of this process, which changes once a day; other calls return the
                same consumer.
            beats: Whether the consumer sends heartbeats, so that sweeps leave its messages alone
                while it lives. The caller must send them.

        Returns:
            The consumer, in a new life (epoch) if the name was known.

        Raises:
            BadName: The name is not allowed.
        """
        if name is not None:
            checked = check_consumer(name)
            return self.catalog.write(
                lambda connection: consumers.enlist(connection, checked, beats=beats)
            )
        return self._own_consumer.consumer()

    @classmethod
    def restore(
        cls,
        folder: str | Path,
        path: str | Path | None = None,
        *,
        catalog: str | None = None,
        storage: str | Path | None = None,
        over: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Restored:
        """
        Restore a backup. It may come from SQLite or PostgreSQL, and go to either.

        Processes that used the store before the restore are fenced off. The restored catalog owns
        the storage, and other copies of the catalog can no longer use it.

        Args:
            folder: The folder of the backup.
            path: Folder of the restored store, if it is embedded.
            catalog: Database URL of the catalog, with *storage*, as in `Store.open`.
            storage: Folder or URI of the segment files.
            over: Whether to replace the catalog of the same store, or to use its storage. Segments
                that the backup does not know stay. First end all processes of the store, Spark
                applications too.
            progress: As in `StoreAdmin.backup`.

        Returns:
            The numbers of restored messages and files, and the known losses.

        Raises:
            BadOption: The folder has no backup, the place is not empty and *over* is false, or the
                place holds another store.
            DamagedBackup: A file of the backup is missing or altered.
            FormatTooNew: A newer version of ignis wrote the backup.
        """
        from queue_core.upkeep.backup.folder import BackupFolder
        from queue_core.upkeep.backup.restore import restore

        address = Address.of(path, catalog=catalog, storage=storage)
        progress = progress or (lambda *_: None)
        return restore(BackupFolder(folder), address, over=over, progress=progress)

    def side_tasks(
        self,
        queues: str | Sequence[str] | None = None,
        *,
        tasks: Collection[str] = TASKS,
        zookeeper: str | None = None,
        client_id: str = CLIENT_ID,
    ) -> AbstractContextManager[object]:
        """
        Run side tasks in the background of this process, as streaming queries and pools do.

        Use it in a ``with`` statement: ``with store.side_tasks(): …``. A thread looks for due tasks
        at once, and then every 10 seconds. Of all processes of the store, one runs a due task, and
        only the leader sweeps. The log shows errors, and a task that failed is tried again after
        10 seconds. The ``with`` statement ends after the current task.

        Args:
            queues: The name of a queue, or of several, whose tasks are run. By default, all queues
                of the store, including queues that are created later. As the leader, the process
                sweeps all queues in any case.
            tasks: The side tasks to run, by name. The default names all of them.
            zookeeper: Servers of the ZooKeeper that elects the leader, as ``host:port``, separated
                by commas. By default, a lease in the catalog elects the leader. All processes of
                the store must use the same.
            client_id: With *zookeeper*, the name of the group of processes that elect one leader.
                Each store needs another name, since a leader sweeps its own store alone.

        Returns:
            The context manager for the ``with`` statement, which can be used once.

        Raises:
            BadOption: *tasks* has an unknown name, *queues* is empty, or *zookeeper* is malformed
                or needs a library that is not installed.
            BadName: The name of a queue is not allowed.
            NoSuchQueue: The store has no queue of that name.
        """
        # Not at the top: few processes run side tasks by themselves.
        from queue_core.upkeep.tasks import background

        return background.checked(self.catalog, self.storage, queues, tasks, zookeeper, client_id)

    @property
    def keeper(self) -> Keeper:
        """The consumer that keeps this process's messages (`Queue.get_and_keep`)."""
        return self._keeper

    def close(self) -> None:
        """
        Close the connections to the catalog, and end the heartbeat of kept messages.

        Stop its pools and side tasks first. Later calls of the store and of its queues are
        refused; a second `close` changes nothing.
        """
        self._keeper.stop()
        self.catalog.close(for_good=True)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise Invalid(
            "a store can be neither pickled nor copied: give the other process its address, and "
            "open it there with Store.open"
        )

    def __repr__(self) -> str:
        return f"<Store {self.storage.name} with {self.catalog!r}>"


#: The open stores of this process, and others that are still known.
_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _forget() -> None:
    """Give a forked child connections, timings and consumers of its own."""
    for store in _stores:
        store.catalog.engine.dispose(close=False)
        store.catalog.timings = Timings()
        store._own_consumer = OwnConsumer(store.catalog)
        store._keeper = Keeper(store.catalog)


os.register_at_fork(after_in_child=_forget)
