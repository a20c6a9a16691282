"""`StoreAdmin`: what an administrator does with a whole store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlalchemy import Connection

from queue_core.catalog import queues
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders.consumers import DEAD_AFTER_SECONDS
from queue_core.catalog.identity import clock
from queue_core.catalog.records import acts, jobs
from queue_core.catalog.records.acts import Subject, by_hand, noting
from queue_core.catalog.records.breakers import BreakerSwitch
from queue_core.errors import NoSuchQueue
from queue_core.segments.storage import Storage
from queue_core.support.interruption import shielded
from queue_core.upkeep.tasks.vacuum import GRACE_SECONDS, vacuum
from queue_core.values.durations import Duration, check_seconds, check_timeout
from queue_core.verbs.recover import recover

if TYPE_CHECKING:
    from queue_core.upkeep.backup.backup import Backup


@shielded
class StoreAdmin:
    """
    What an administrator does with a store. Get it from `Store.admin`.

    Args:
        catalog: The catalog of the store.
        storage: The storage of the store.
    """

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self._storage = storage

    @property
    def _subject(self) -> Subject:
        return Subject(self._catalog)

    def __repr__(self) -> str:
        return f"<Administration of {self._storage.name} with {self._catalog!r}>"

    @by_hand
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
        return vacuum(self._catalog, self._storage, age, dry_run=dry_run)

    @by_hand
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
        differ from the loaded ones. `QueueAdmin.repair` puts quarantined messages back.

        Args:
            deep: Whether to read all segments and verify the checksum of each chunk.
            repair: Whether to repair what can be repaired.
            progress: Called before each part of the check with its name, the number of parts that
                are done, and the number of all parts.

        Returns:
            One row for each finding; none if the store is in order. Columns: ``invariant`` (the
            number of the broken invariant, such as ``I4``), ``queue`` (null if it concerns the
            whole store), ``table``, ``row`` (the primary key, or the location of a file),
            ``problem``, ``since`` (when the row was last written: the damage is younger; null if
            unknown), ``remedy`` (the repair: ``set apart``, ``recount``, ``restate``,
            ``remove`` or ``none``) and ``repaired`` (whether this call has repaired it).

        Raises:
            CatalogUnavailable: The catalog cannot be reached, or a repair cannot write it.
            StorageUnavailable: The storage cannot be read.
        """
        # Not at the top: few processes check their store.
        from queue_core.upkeep.tasks.fsck import fsck

        return fsck(self._catalog, self._storage, deep=deep, repair=repair, progress=progress)

    def backup(
        self,
        folder: str | Path,
        *,
        segments: bool = True,
        logs: bool = True,
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
            logs: Whether to also copy messages that only the logs of queues keep, since all
                subscriptions, replays and snapshots have taken them in. Without them, each log of
                the copy begins at the first message that one of these has still to take in.
            progress: A function that is called repeatedly with ``tables`` or ``segments``, the
                number of them that are done, and the number of all.

        Returns:
            The numbers of rows and segments in the backup.

        Raises:
            BadOption: The folder is not empty, holds a backup of another store, or is in the
                storage of the store.
            Conflict: Another backup is being written into the folder.
            DamagedBackup: The manifest of the earlier backup is damaged.
        """
        from queue_core.upkeep.backup.backup import backup
        from queue_core.upkeep.backup.folder import BackupFolder

        return backup(
            self._catalog,
            self._storage,
            BackupFolder(folder),
            with_segments=segments,
            with_logs=logs,
            progress=progress or (lambda *_: None),
        )

    @by_hand
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

        return self._catalog.write(noting(files.give_up) if give_up else files.find)

    @by_hand
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
        return recover(self._catalog, check_seconds("dead_after", dead_after))

    @by_hand
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
        from queue_core.upkeep.tasks.purge import forget

        silence = check_timeout("idle", idle)
        return forget(self._catalog, consumers, silence, dry_run=dry_run)

    @by_hand
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

        def work(connection: Connection) -> bool:
            queue_id = jobs.find(connection, job).queue_id
            cancelled = jobs.cancel(connection, job)
            if cancelled:
                with suppress(NoSuchQueue):
                    acts.about(queue=queues.by_id(connection, queue_id).name)
                acts.note(connection)
            return cancelled

        return self._catalog.write(work)

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
        return BreakerSwitch(self._catalog, name)

    @by_hand
    def accept_clock(self) -> None:
        """
        Accept the present time of the catalog's clock.

        When the clock jumps ahead, ignis stops expiring, sweeping and vacuuming, so that no message
        is removed too early. If the present time is right, call this method to resume these tasks.
        They then remove everything that is old by this time.

        Raises:
            CatalogForbidden: The database role is not that of an operator.
        """
        self._catalog.write(noting(clock.accept))
