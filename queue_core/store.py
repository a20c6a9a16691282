"""`Store`: a catalog and a storage that hold many queues."""

from __future__ import annotations

import os
import warnings
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import consumers
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.identity import clock
from queue_core.catalog.identity.identity import Identity, NewStore
from queue_core.catalog.records import jobs
from queue_core.catalog.records.breakers import BreakerSwitch
from queue_core.consumers.presence.keeper import Keeper
from queue_core.consumers.presence.own_consumer import OwnConsumer
from queue_core.errors import BadOption, Invalid
from queue_core.policies import binding
from queue_core.policies.imported import storable
from queue_core.queue import Queue
from queue_core.segments.buffers import DEFAULT_BUFFERS
from queue_core.segments.shard_hash import check_key
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.support.interruption import shielded
from queue_core.upkeep.leader.client import CLIENT_ID
from queue_core.upkeep.tasks.registry import TASKS
from queue_core.upkeep.tasks.vacuum import GRACE_SECONDS, vacuum
from queue_core.values import column_roles
from queue_core.values.address import Address
from queue_core.values.durations import Duration, check_seconds, check_timeout
from queue_core.values.model import Consumer, Magazine, QueueInfo
from queue_core.values.names import check_consumer, check_magazine, check_queue, nearest
from queue_core.values.schema import canonical
from queue_core.values.settings import DEFAULT_SHARDS, QueueSettings, check_shards, is_whole
from queue_core.values.views import VIEWS
from queue_core.verbs.recover import recover
from queue_core.waiting.joint_load import JointLoads
from queue_core.watching import views

if TYPE_CHECKING:
    from queue_core.upkeep.backup.backup import Backup
    from queue_core.upkeep.backup.replacement import Restored


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
        self._loads = JointLoads(self.catalog, storage)
        self._own_consumer = OwnConsumer(self.catalog)
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
        adopt: bool = False,
    ) -> Store:
        """
        Open a store, and create it if it is new. Give either *path* or *catalog* and *storage*.

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
        check_queue(name)
        check_shards(shards)
        message_type = schema if isinstance(schema, type) else None
        if message_type is not None:
            from queue_core.handling.objects.message_class import message_class

            schema = message_class(message_type).schema
        columns = canonical(schema)
        given = storable(settings)
        checked = QueueSettings.of(given)
        # All messages of a group must be in one shard.
        key = checked.group if key is None else key
        check_key(key, columns, name)
        column_roles.check(checked, columns, key)
        binding.check(checked, columns, key, shards)

        def work(connection: Connection) -> QueueInfo:
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

        created = Queue(self, self.catalog.write(work, grows=True), message_type=message_type)
        faults.point("create.committed")
        if exist_ok:
            _warn_of_kept(created.info, given)
        return created

    def queue(
        self, name: str, message_type: type | None = None, *, buffers: int = DEFAULT_BUFFERS
    ) -> Queue:
        """
        Open an existing queue.

        Args:
            name: The queue's name. ``{queue}_SIDELINE``, such as ``orders_SIDELINE``, opens the
                sideline of the queue ``orders``: `Queue.fire`, `Queue.peek` and `Queue.browse` then
                read the sideline. Source: IgnisMQ.
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
        check_magazine(name)
        if not is_whole(buffers) or buffers < 1:
            raise BadOption(f"buffers={buffers!r}: use a whole number, 1 or more")
        with self.catalog.read() as connection:
            info, magazine = queues.find_magazine(connection, name)
        if message_type is not None:
            from queue_core.handling.objects.message_class import message_class

            message_class(message_type).check_fits(info.schema, name)
        sideline = magazine is Magazine.SIDELINE
        return Queue(self, info, buffers=buffers, message_type=message_type, sideline=sideline)

    def deactivate(self, name: str) -> None:
        """
        Deactivate a queue for good, as `Queue.deactivate`.

        Args:
            name: The queue's name.

        Raises:
            NoSuchQueue: The store has no queue of that name.
            BadName: The name is not allowed.
        """
        self.queue(name).deactivate()

    def drop(self, name: str) -> int:
        """
        Remove a deactivated queue with all its messages, as `Queue.drop`.

        Args:
            name: The queue's name.

        Returns:
            How many messages were removed.

        Raises:
            NoSuchQueue: The store has no queue of that name.
            BadName: The name is not allowed.
            BadOption: The queue is in use. Deactivate it first.
        """
        return self.queue(name).drop()

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
            name: A key of `VIEWS`: ``queues``, ``shards``, ``slices``, ``consumers``,
                ``sideline``, ``failures``, ``reports``, ``jobs``, ``breakers``,
                ``samples`` or ``limits``.
            queue: Show only the rows of this queue. By default, those of all queues. The views
                ``consumers`` and ``breakers`` ignore it. ``failures`` and ``sideline`` take the
                name of the queue's sideline too.

        Returns:
            The rows, with the columns of ``VIEWS[name]``.

        Raises:
            BadOption: *name* is not the name of a view.
            NoSuchQueue: The store has no queue of that name.
        """
        if name not in VIEWS:
            raise BadOption(f"view={name!r}{nearest(name, VIEWS)}; use {', '.join(VIEWS)}")
        return views.view(self.catalog, name, queue, self.storage.uri)

    def breaker(self, name: str) -> BreakerSwitch:
        """
        Return the switch by which a person opens or closes a circuit breaker.

        Args:
            name: The breaker's name, as the view ``breakers`` shows it. It need not exist yet.

        Returns:
            The switch.

        Raises:
            BadOption: *name* is empty or too long.
        """
        return BreakerSwitch(self.catalog, name)

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

    def vacuum(self, *, grace: Duration = GRACE_SECONDS, dry_run: bool = False) -> list[str]:
        """
        Remove segment files that no message needs.

        Args:
            grace: Age in seconds, or a text such as ``"2d"`` or a ``timedelta``, 0 or more. Younger
                files are kept, so a writer must publish its files within this time.
            dry_run: Whether to return the files without removing them.

        Returns:
            The locations of the files that were (or would be) removed.

        Raises:
            BadOption: *grace* is out of range.
        """
        age = check_seconds("grace", grace)
        return vacuum(self.catalog, self.storage, age, dry_run=dry_run)

    def forget(
        self, consumers: Sequence[str] = (), *, idle: Duration | None = None, dry_run: bool = False
    ) -> list[str]:
        """
        Remove what the catalog keeps of consumers and queries that will not come back.

        The catalog remembers the tickets of each consumer and the last batch of each streaming
        query, because a checkpoint may start again after any time. If a forgotten query starts
        again from its checkpoint and repeats its last batch, its sink loads this batch a second
        time. A consumer that is alive or holds messages is never removed.

        Args:
            consumers: Names of consumers to remove, as the view ``consumers`` shows them.
            idle: Seconds, or a text such as ``"90d"`` or a ``timedelta``, 0 or more. Also remove
                each consumer that sent its last heartbeat before that time, such as a streaming
                query or a pool, and the record of each streaming query that published its last
                batch before that time. None: neither.
            dry_run: Whether to return the names without removing anything.

        Returns:
            The names of the consumers and the ids of the queries that were (or would be) removed.

        Raises:
            BadOption: *idle* is out of range, or one of *consumers* is unknown or alive.
            Conflict: One of *consumers* holds messages; nothing was removed.
        """
        from queue_core.upkeep.tasks.forget import forget

        silence = check_timeout("idle", idle)
        return forget(self.catalog, consumers, silence, dry_run=dry_run)

    def backup(
        self,
        folder: str | Path,
        *,
        segments: bool = True,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> Backup:
        """
        Write a backup of the store, which may be in use.

        The backup shows the catalog at one moment. Loads and firings continue, and vacuum removes
        no segments meanwhile. If the folder holds an earlier backup of the store, only new segments
        are copied, and the complete new backup replaces the earlier one.

        Args:
            folder: A local folder: empty, or with an earlier backup of this store.
            segments: Whether to copy the segment files too. Without them, the backup can only be
                restored over the same storage.
            progress: A function that is called repeatedly with ``tables`` or ``segments``, the
                number of them that are done, and the number of all.

        Returns:
            The numbers of rows and segments in the backup.

        Raises:
            BadOption: The folder is not empty, holds a backup of another store, or is in the
                storage of the store.
            DamagedBackup: The list of segments in the earlier backup is damaged.
        """
        from queue_core.upkeep.backup.backup import backup
        from queue_core.upkeep.backup.folder import BackupFolder

        return backup(
            self.catalog,
            self.storage,
            BackupFolder(folder),
            with_segments=segments,
            progress=progress or (lambda *_: None),
        )

    @classmethod
    def restore(
        cls,
        folder: str | Path,
        path: str | Path | None = None,
        *,
        catalog: str | None = None,
        storage: str | None = None,
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
            progress: As in `Store.backup`.

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

    def leftovers(self, *, give_up: bool = False) -> list[str]:
        """
        List the segment files that are newer than the restored catalog.

        They are ordinary Arrow files in the folders of their queues. Their messages were loaded or
        rewritten after the backup, and some of them were already settled. To keep a message, read
        its file with ``pyarrow.ipc.open_file`` and load the message again.

        Args:
            give_up: Whether vacuum may remove the files after its grace period.

        Returns:
            Their locations in the storage.
        """
        from queue_core.catalog.slices import files

        return self.catalog.write(files.give_up if give_up else files.find)

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
            tasks: The side tasks to run: any of ``shovel``, ``sweep``, ``expire``, ``compact``,
                ``vacuum``, ``fsck`` and ``sample``. By default, all.
            zookeeper: Servers of the ZooKeeper that elects the leader, as ``host:port``, separated
                by commas. By default, a lease in the catalog elects the leader. All processes of
                the store must use the same.
            client_id: With *zookeeper*, the name of the group of processes that elect one leader.

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

    def cancel(self, job: str) -> bool:
        """
        Cancel a job (`Queue.start_shovel`). Messages that it has moved stay where they are.

        Args:
            job: The id of the job, as the view ``jobs`` shows it.

        Returns:
            Whether the job had not ended before.

        Raises:
            BadOption: The store has no job of that id.
        """
        return self.catalog.write(lambda connection: jobs.cancel(connection, job))

    def recover(self, *, dead_after: Duration = DEAD_AFTER_SECONDS) -> int:
        """
        Put back messages that dead consumers fired and never read; this is not a delivery.

        Args:
            dead_after: Seconds, or a text such as ``"30s"`` or a ``timedelta``, without a heartbeat
                after which a consumer counts as dead, 0 or more.

        Returns:
            How many messages were put back to their old positions.

        Raises:
            BadOption: *dead_after* is out of range.
        """
        return recover(self.catalog, check_seconds("dead_after", dead_after))

    def accept_clock(self) -> None:
        """
        Accept the present time of the catalog's clock.

        When the clock jumps ahead, ignis stops expiring, sweeping and vacuuming, so that no message
        is removed too early. If the present time is right, call this method to resume these tasks.
        They then remove everything that is old by this time.

        Raises:
            CatalogForbidden: The database role is not that of an operator.
        """
        self.catalog.write(clock.accept)

    def fsck(
        self,
        *,
        deep: bool = False,
        repair: bool = False,
        progress: Callable[[str, int, int], None] | None = None,
    ) -> pa.Table:
        """
        Check every invariant of the store, as docs/protocol.md lists them.

        The store may be in use, because each part of the check reads one state of the catalog. A
        repair corrects counters, removes rows without a meaning, and quarantines messages that may
        differ from the loaded ones. `Queue.repair` puts quarantined messages back.

        Args:
            deep: Whether to read all segments and verify the checksum of each chunk.
            repair: Whether to repair what can be repaired.
            progress: Called before each part of the check with its name, the number of parts that
                are done, and the number of all parts.

        Returns:
            One row for each finding; none if the store is in order. Columns: ``invariant`` (the
            number of the broken invariant, such as ``I4``), ``queue`` (null if it concerns the
            whole store), ``table``, ``row`` (the primary key, or the location of a file),
            ``problem``, ``since`` (when the row was last written, so that the damage is younger;
            null if unknown), ``remedy`` (the repair: ``set apart``, ``recount``, ``restate``,
            ``remove`` or ``none``) and ``repaired`` (whether this call has repaired it).

        Raises:
            CatalogUnavailable: The catalog cannot be reached, or a repair cannot write it.
            StorageUnavailable: The storage cannot be read.
        """
        # Not at the top: few processes check their store.
        from queue_core.upkeep.fsck.run import fsck

        return fsck(self.catalog, self.storage, deep=deep, repair=repair, progress=progress)

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


def _close_in_children(store: Store) -> None:
    """Give forked children connections and a consumer of their own."""
    alive = weakref.ref(store)

    def forget() -> None:
        inherited = alive()
        if inherited is not None:
            inherited.catalog.engine.dispose(close=False)
            inherited._own_consumer = OwnConsumer(inherited.catalog)
            inherited._keeper = Keeper(inherited.catalog)

    os.register_at_fork(after_in_child=forget)


def _warn_of_kept(queue: QueueInfo, given: Mapping[str, Any]) -> None:
    """Warn of settings that an existing queue keeps, although its creator gave other values."""
    names = queue.settings.unlike(given)
    if names:
        kept = ", ".join(f"{name}={getattr(queue.settings, name)!r}" for name in names)
        wanted = ", ".join(f"{name}={given[name]!r}" for name in names)
        warnings.warn(
            f"queue {queue.name!r} exists already and keeps {kept}, not {wanted}; to change the "
            f"queue, call its method change_settings({wanted})",
            stacklevel=4,
        )
