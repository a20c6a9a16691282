"""Commands for operators: backups, restores, and the rights of database roles."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument, Option

from ignis_cli.app import command, working
from ignis_cli.display import answer
from ignis_cli.invocation import BROKEN, current
from queue_core import Store
from queue_core.catalog.records.grants import ROLES, statements
from queue_core.upkeep.backup.folder import BackupFolder
from queue_core.upkeep.backup.restore import verify as verify_backup
from queue_core.watching.wording import age, counted

_OPERATE = "Operate"

Folder = Annotated[str, Argument(metavar="FOLDER", help="Local folder of the backup.")]


@command(_OPERATE)
def backup(
    folder: Folder,
    *,
    catalog_only: bool = False,
    without_logs: bool = False,
    verify: bool = False,
) -> None:
    """
    Write a backup of the store, which may be in use, or verify one.

    If the folder holds an earlier backup of the store, only new segments are copied. A backup
    without segments can only be restored over the same storage. The exit code is 1 if segments are
    missing from the storage, or damaged there; the backup has everything else.

    Args:
        catalog_only: Write the catalog without the segment files.
        without_logs: Leave out what only the logs of queues keep, and all subscriptions, replays
            and snapshots have taken in. Log readers cannot read it from the copy.
        verify: Write nothing, and compare each file of the backup with its checksum. It needs no
            store. The exit code is 1 if a file is missing, torn or altered.
    """
    if verify:
        _verify(folder)
        return
    with current.get().store() as store, working("backing up") as progress:
        done = store.admin.backup(
            folder, segments=not catalog_only, logs=not without_logs, progress=progress
        )
    lines = [
        f"{counted(done.messages, 'message is', 'messages are')} in {folder}, with "
        f"{counted(done.segments - len(done.missing), 'segment', 'segments')}, "
        f"{done.copied:,} of them new",
        *(f"{location} is missing from the storage, or damaged there" for location in done.missing),
    ]
    figures = ("messages", "rows", "segments", "copied", "missing")
    answer("\n".join(lines), **{name: getattr(done, name) for name in figures})
    if done.missing:
        raise typer.Exit(BROKEN)


def _verify(folder: str) -> None:
    with working("verifying") as progress:
        segments, faults = verify_backup(BackupFolder(folder), progress)
    found = f"the backup in {folder} is complete, with {counted(segments, 'segment', 'segments')}"
    text = f"the backup in {folder} is damaged" if faults else found
    answer("\n".join([text, *faults]), segments=segments, faults=faults)
    if faults:
        raise typer.Exit(BROKEN)


@command(_OPERATE)
def restore(folder: Folder, *, over: bool = False) -> None:
    """
    Restore a backup: into an empty place, or over the same store.

    First stop every process that uses the store. A backup from SQLite can be restored into
    PostgreSQL, and the other way round.

    Args:
        over: Replace the catalog of the same store, or use its storage. Segments that the backup
            does not know stay.
    """
    with working("restoring") as progress:
        done = Store.restore(folder, **current.get()._asdict(), over=over, progress=progress)
    lines = [
        f"{counted(done.messages, 'message is', 'messages are')} restored, as of "
        f"{age(done.age)} ago; {done.copied:,} segments were copied"
    ]
    if done.damaged:
        lines.append(f"{done.damaged:,} messages are damaged, because their segments are missing")
    if done.found:
        newer = "segments are newer than the backup: `ignis leftovers` lists them"
        lines.append(f"{len(done.found):,} {newer}")
    figures = ("age", "messages", "copied", "damaged", "found")
    answer("\n".join(lines), **{name: getattr(done, name) for name in figures})


@command(_OPERATE)
def leftovers(store: Store, *, give_up: bool = False) -> None:
    """
    List the segment files that are newer than the restored catalog.

    Args:
        give_up: Let vacuum remove the files after its grace period.
    """
    found = store.admin.leftovers(give_up=give_up)
    verb = "were given up" if give_up else "are newer than the backup"
    answer("\n".join([f"{len(found):,} files {verb}", *found]), given_up=give_up, files=found)


@command(_OPERATE)
def grants(
    name: str,
    *,
    role: Annotated[str, Option(metavar="KIND", help=f"Kind of the role: {', '.join(ROLES)}.")],
    schema: str = "public",
) -> None:
    """
    Print the SQL statements that give a role of PostgreSQL its rights on the catalog.

    Run them with psql, as the owner of the tables. A reader only reads. A producer may load into
    queues without a policy, dedup, a ring, a rendezvous or fair_by. A consumer may fire, settle,
    and run every side task except vacuum and compact. An operator may do everything, except for an
    upgrade of the format.

    Args:
        name (NAME): Name of the database role.
        schema: Schema of the tables.
    """
    found = statements(role, name, schema)
    answer("\n".join(found), role=name, kind=role, statements=found)
