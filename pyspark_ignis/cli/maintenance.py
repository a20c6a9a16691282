"""Commands that do by hand what side tasks do, and mend what was damaged."""

from __future__ import annotations

from typing import Annotated

import typer

from pyspark_ignis.cli.app import Name, app, duration, working
from pyspark_ignis.cli.invocation import Call
from queue_core.tasks.vacuum import GRACE_SECONDS

_MEND = "Mend"


@app.command(rich_help_panel=_MEND)
def shovel(
    ctx: typer.Context,
    queue: Name,
    limit: Annotated[int | None, typer.Option(min=1, help="Move so many at most.")] = None,
) -> None:
    """Bring sidelined messages back to main."""
    call = Call.current(ctx)
    with call.queue(queue) as found, working("shovelling"):
        moved = found.shovel(limit)
    call.answer(f"{moved:,} messages are back in {queue}", shovelled=moved)


@app.command(rich_help_panel=_MEND)
def sweep(
    ctx: typer.Context,
    queue: Name,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Such as 20m; else the queue's sweep_after.")
    ] = None,
) -> None:
    """Sideline what was fired too long ago and never finished."""
    call = Call.current(ctx)
    with call.queue(queue) as found, working("sweeping"):
        moved = found.sweep(duration("older-than", older_than) if older_than else None)
    call.answer(f"{moved:,} messages of {queue} were stuck, and are sidelined now", swept=moved)


@app.command(rich_help_panel=_MEND)
def recover(ctx: typer.Context) -> None:
    """Give back what consumers that died had fired and never seen."""
    call = Call.current(ctx)
    with call.store() as store, working("recovering"):
        given_back = store.recover()
    call.answer(f"{given_back:,} messages wait again", recovered=given_back)


@app.command(rich_help_panel=_MEND)
def vacuum(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="Leave younger files alone.")
    ] = f"{GRACE_SECONDS:.0f}s",
) -> None:
    """Remove the files that no message needs any more."""
    call = Call.current(ctx)
    with call.store() as store, working("vacuuming"):
        gone = store.vacuum(grace=duration("grace", grace), dry_run=dry_run)
    verb = "would be removed" if dry_run else "removed"
    lines = [f"{len(gone):,} files {verb}", *gone]
    call.answer("\n".join(lines), dry_run=dry_run, files=gone)


@app.command(rich_help_panel=_MEND)
def repair(ctx: typer.Context, queue: Name) -> None:
    """Load what was set apart as damaged again, once its files are restored."""
    call = Call.current(ctx)
    with call.queue(queue) as found, working("repairing"):
        repaired = found.repair()
    call.answer(f"{repaired:,} messages of {queue} wait again", repaired=repaired)


@app.command(rich_help_panel=_MEND)
def compact(ctx: typer.Context, queue: Name) -> None:
    """Rewrite waiting messages of many small loads together."""
    call = Call.current(ctx)
    with call.queue(queue) as found, working("compacting"):
        rewritten = found.compact()
    call.answer(f"{rewritten:,} messages of {queue} are rewritten", compacted=rewritten)


@app.command(rich_help_panel=_MEND)
def expire(ctx: typer.Context, queue: Name) -> None:
    """Remove the waiting messages that are too old."""
    call = Call.current(ctx)
    with call.queue(queue) as found, working("expiring"):
        gone = found.expire()
    call.answer(f"{gone:,} messages of {queue} had expired, and are gone", expired=gone)
