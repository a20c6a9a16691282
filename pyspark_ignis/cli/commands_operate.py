"""Commands for operators: backups, restores, and the rights of database roles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from pyspark_ignis.cli.app import app, working
from pyspark_ignis.cli.invocation import Invocation
from queue_core import Store
from queue_core.catalog.grants import ROLES, statements

_OPERATE = "Operate"

Folder = Annotated[str, typer.Argument(metavar="FOLDER", help="Local folder of the backup.")]


@app.command(rich_help_panel=_OPERATE)
def backup(
    ctx: typer.Context,
    folder: Folder,
    catalog_only: Annotated[
        bool,
        typer.Option("--catalog-only", help="Leave the segment files out."),
    ] = False,
) -> None:
    """
    Write a backup of the store, which may be in use.

    A folder with an earlier backup of the store gets only new segments. A backup of the catalog
    alone can only be restored over the same storage.
    """
    call = Invocation.current(ctx)
    with call.store() as store, working("backing up") as status:
        done = store.backup(folder, segments=not catalog_only, progress=_shown(status))
    lines = [
        f"{done.rows:,} rows and {done.segments:,} segments are in {folder}, "
        f"{done.copied:,} of them new",
        *(f"{location} is missing from the storage" for location in done.missing),
    ]
    figures = {"rows": done.rows, "segments": done.segments, "copied": done.copied}
    call.answer("\n".join(lines), **figures, missing=list(done.missing))


@app.command(rich_help_panel=_OPERATE)
def restore(
    ctx: typer.Context,
    folder: Folder,
    over: Annotated[
        bool,
        typer.Option(
            "--over",
            help="Replace the catalog, or use the storage, of the same store. Segments that the "
            "backup does not know stay.",
        ),
    ] = False,
) -> None:
    """
    Restore a backup: into an empty place, or over the same store.

    Stop every process that uses the store first. The backup may be of either database.
    """
    call = Invocation.current(ctx)
    with working("restoring") as status:
        done = Store.restore(folder, **call.address, over=over, progress=_shown(status))
    lines = [
        f"{done.messages:,} messages are back, as they were {done.age / 60:,.0f} minutes ago; "
        f"{done.copied:,} segments were copied"
    ]
    if done.damaged:
        lines.append(f"{done.damaged:,} messages are damaged: their segments are nowhere")
    if done.found:
        lines.append(
            f"{len(done.found):,} segments are newer than the backup: `ignis leftovers` lists them"
        )
    call.answer(
        "\n".join(lines),
        age=done.age,
        messages=done.messages,
        copied=done.copied,
        damaged=done.damaged,
        found=list(done.found),
    )


@app.command(rich_help_panel=_OPERATE)
def leftovers(
    ctx: typer.Context,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="Let vacuum remove the files after its grace period.")
    ] = False,
) -> None:
    """List the segment files that a restored catalog does not know."""
    call = Invocation.current(ctx)
    with call.store() as store:
        found = store.leftovers(give_up=give_up)
    verb = "were given up" if give_up else "are newer than the backup"
    call.answer("\n".join([f"{len(found):,} files {verb}", *found]), given_up=give_up, files=found)


@app.command(rich_help_panel=_OPERATE)
def grants(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The role of the database.")],
    role: Annotated[str, typer.Option(metavar="KIND", help=f"What it does: {', '.join(ROLES)}.")],
    schema: Annotated[str, typer.Option(help="The schema of the tables.")] = "public",
) -> None:
    """
    Print the SQL statements that give a role of PostgreSQL its rights on the catalog.

    Run them as the owner of the tables, with psql. A producer loads into queues without a policy, a
    consumer fires, settles and runs side tasks but vacuum and compact, an operator does everything.
    """
    typer.echo("\n".join(statements(role, name, schema)))


def _shown(status: Any) -> Callable[[str, int, int], None]:
    """Return a function that shows the progress of long work."""

    def show(kind: str, done: int, count: int) -> None:
        status.update(f"{kind}: {done:,} of {count:,}")

    return show
