"""Replace the rows of a catalog by those of a backup.

Changes: all tables, in one transaction. Segments that the storage has and the backup does not know
are recorded as found, and vacuum keeps them until an operator gives them up. Messages without a
segment become damaged. Ids and epochs jump ahead, so that no id from the lost time is assigned
again. Guard: the backup was checked, and the place is empty or the caller allows it. Crash before
the commit: the old catalog is as it was. Crash after it: the next opening takes the storage.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from sqlalchemy import Connection

from queue_core.catalog import dialect, table_rows
from queue_core.catalog.records import acts, restored, schedule
from queue_core.catalog.records.restored import RESTORE
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import amounts, files
from queue_core.errors import BadOption
from queue_core.support import faults
from queue_core.upkeep.backup.backup import Progress
from queue_core.upkeep.backup.folder import BackupFolder
from queue_core.upkeep.backup.manifest import Manifest
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Replacement:
    """The replacement of a catalog by a backup."""

    folder: BackupFolder
    manifest: Manifest
    #: The id of the restored store.
    store: str
    #: The segments that are in the storage.
    present: Set[str]
    copied: int
    over: bool
    progress: Progress

    def work(self, connection: Connection) -> Restored:
        """Replace all rows; raises `BadOption` if the catalog must be empty and is not."""
        table_rows.lock(connection)
        if not self.over and table_rows.are_used(connection):
            raise BadOption(
                "the catalog was put to use while segments were copied; its rows were not changed"
            )
        for number, name in enumerate(table_rows.NAMES):
            self.progress("tables", number, len(table_rows.NAMES))
            table_rows.replace(connection, name, self.folder.table(self.manifest, name))
        age = max(dialect.read_clock(connection) - self.manifest.taken_at, 0) / 1e6
        # Skip what may have been assigned since the backup.
        jump = JUMP + int(age * JUMP_PER_SECOND)
        table_rows.skip_ids(connection, self.manifest.last_ids, jump)
        restored.forget_processes(connection, self.manifest.taken_at)
        restored.take_identity(connection, self.store, self.manifest.store)
        found, damaged = self._compare(connection)
        _report(connection, len(found), damaged)
        acts.about(messages_set_apart=damaged)
        acts.note(connection)
        faults.point("restore.before_commit")
        return Restored(
            age=age,
            messages=amounts.messages(connection),
            copied=self.copied,
            found=tuple(found),
            damaged=damaged,
        )

    def _compare(self, connection: Connection) -> tuple[list[str], int]:
        """Record files that the backup does not know; mark messages without files as damaged."""
        known = {row.location: row.state for row in files.all_files(connection)}
        found = sorted(self.present - known.keys())
        files.note_found(connection, found)
        live = {location for location, state in known.items() if state == "live"}
        lost = sorted(live - self.present)
        return found, set_apart(connection, lost) if lost else 0


def _report(connection: Connection, found: int, damaged: int) -> None:
    moves = Moves()
    if found:
        moves.count(None, found, "segments that the backup does not know", None)
    if damaged:
        moves.count(None, damaged, "messages whose segments are missing", "damaged")
    moves.record(connection, schedule.STORE, RESTORE)
