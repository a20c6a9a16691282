"""Vacuum: remove the files that no slice names, after a grace period.

Changes: files of settled messages are removed, and files whose writer died before it published
them. Guard: a writer may only be slow. So a file is first condemned in the catalog, which conflicts
with its publication, and removed only after that is committed. A writer that comes back later finds
its file missing, because a publication checks that it exists. While a backup is being written,
garbage stays. Crash in between: a condemned file, which the next run removes. Returns the locations
that it removed, or would remove, and writes their number to the task log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from sqlalchemy import Connection

from queue_core.catalog import dialect
from queue_core.catalog.database import Catalog
from queue_core.catalog.holders import leases
from queue_core.catalog.identity import clock
from queue_core.catalog.identity.identity import Identity
from queue_core.catalog.records import acts, progress, schedule
from queue_core.catalog.records.restored import restored_at
from queue_core.catalog.records.task_log import Moves
from queue_core.catalog.slices import files, segments
from queue_core.errors import StorageUnavailable
from queue_core.segments.storage import Storage
from queue_core.support import faults
from queue_core.upkeep.tasks.purge import KEPT_SECONDS, purge
from queue_core.upkeep.tasks.task import Share, TaskContext

#: Age in seconds below which a file that no slice names is kept.
GRACE_SECONDS = 3600.0
#: For each of so many files that no slice names, there can be one more share.
SHARE_FILES = 1_000


def run(context: TaskContext, _: None = None) -> int:
    """Return how many files were removed."""
    if context.share.number == 0:
        purge(context.catalog)
        context.catalog.keep_reserve()
    return len(vacuum(context.catalog, context.storage, share=context.share))


def shares(context: TaskContext, _: None = None) -> int:
    """Return how many processes divide the files among them: each lists the storage."""
    with context.catalog.read() as connection:
        return 1 + files.count_unnamed(connection) // SHARE_FILES


def vacuum(
    catalog: Catalog,
    storage: Storage,
    grace: float = GRACE_SECONDS,
    *,
    dry_run: bool = False,
    share: Share = Share(),  # noqa: B008 - it cannot change
) -> list[str]:
    """Remove unnamed files of *share* older than *grace* seconds; return their locations."""
    identity = Identity(catalog, storage)
    # Files of another catalog must stay, and a storage that is not mounted would seem empty.
    identity.verify() if dry_run else identity.own()
    present = {at: written for at, written in storage.list().items() if share.has(at)}
    if dry_run:
        with catalog.read() as connection:
            # A real run would release these, which makes them garbage at that moment.
            fresh = [*segments.unnamed(connection).values()] if grace <= 0 else []
            strangers, garbage = _removable(connection, present, grace, fresh)
            return sorted(present.keys() & {*strangers, *garbage, *files.condemned(connection)})

    clock.check(catalog)
    # In a reading transaction, which keeps nobody waiting. Their release looks again.
    with catalog.read() as connection:
        unnamed = segments.unnamed(connection)

    def condemn(connection: Connection) -> list[str]:
        segments.release(connection, unnamed.keys())
        strangers, garbage = _removable(connection, present, grace, ())
        files.condemn(connection, strangers, [at for at in garbage if share.has(at)])
        found = [at for at in files.condemned(connection) if share.has(at)]
        clock.confirm(connection)
        faults.point("vacuum.before_commit")
        return found

    condemned = catalog.write(condemn)
    faults.point("vacuum.condemned")
    if condemned:
        identity.verify()
    progress.add(expected=len(condemned))
    kept: dict[str, StorageUnavailable] = {}
    for location in condemned:
        try:
            storage.remove(location)
        except StorageUnavailable as error:
            # One file must not keep the others, unless the whole storage is away.
            identity.verify()
            kept[location] = error
        progress.add(1)
        faults.point("vacuum.removing")
    faults.point("vacuum.removed")
    # No query will ask for these notes of trials of suspects.
    storage.forget_trials(catalog.now() - int(KEPT_SECONDS * 1e6))
    removed = [location for location in condemned if location not in kept]
    gone = sorted(location for location in removed if location in present)

    def forget(connection: Connection) -> None:
        files.forget(connection, removed)
        moves = Moves()
        if gone:
            moves.count(None, len(gone), "storage", None)
            acts.about(files=len(gone))
            acts.note(connection)
        moves.record(connection, schedule.STORE, "vacuum")

    catalog.write(forget)
    for refused in kept.values():
        raise refused
    return gone


def _removable(
    connection: Connection, present: Mapping[str, int], grace: float, fresh: Collection[str | None]
) -> tuple[list[str], list[str]]:
    """Return the files that the catalog does not know or has given up, and *fresh* ones, sorted."""
    now = dialect.read_clock(connection)
    before = now - int(grace * 1e6)
    known = {row.location: row for row in files.all_files(connection)}
    if (restored_at(connection) or 0) > before:
        # A person may still copy what an adopted catalog does not know.
        present = {}
    # A folder may have its name from an earlier queue, in another case.
    named = {at.lower() for at in known}
    strangers = (at for at in present if present[at] <= before and at.lower() not in named)
    garbage = (at for at, row in known.items() if row.state == "garbage" and row.since <= before)
    # Asked after the garbage was found: later garbage is not included, and files that a backup
    # still copies became garbage after the backup had begun.
    if leases.backs_up(connection):
        return sorted(strangers), []
    return sorted(strangers), sorted({*garbage, *(known.keys() & fresh)})
