"""The command line `ignis`: what a store holds, and the verbs that people call by hand.

Imports no Spark: it must answer at once, and on machines that have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import version
from itertools import islice
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.live import Live
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pyspark_ignis import intake, top
from pyspark_ignis.ddl import columns as parse_columns
from pyspark_ignis.display import complain, console, grid, show, show_json
from pyspark_ignis.invocation import Call, Ignis
from queue_core import IgnisError
from queue_core.errors import BadOption
from queue_core.options import seconds
from queue_core.settings import DEFAULT_SHARDS
from queue_core.tasks.vacuum import GRACE_SECONDS

app = typer.Typer(
    cls=Ignis, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ignis {version('ignis-queue')}")
        raise typer.Exit


_Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
_AnyName = Annotated[
    str | None, typer.Argument(metavar="[QUEUE]", help="The queue; without it, all.")
]
_Format = Annotated[
    str | None,
    typer.Option(
        help=f"One of {', '.join(intake.FORMATS)}; without it, the file's name tells, and standard "
        "input is JSON lines."
    ),
]
_Last = Annotated[int, typer.Option(min=1, help="Show so many at most, the last ones.")]


@app.callback()
def ignis(
    ctx: typer.Context,
    path: Annotated[
        str | None, typer.Option(help="Folder of an embedded store; else $IGNIS_PATH.")
    ] = None,
    catalog: Annotated[
        str | None, typer.Option(help="Database URL of the catalog; else $IGNIS_CATALOG.")
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help="Folder or URI of the segments; else $IGNIS_STORAGE.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Answer in JSON, one row a line.")
    ] = False,
    _: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show it.")
    ] = False,
) -> None:
    """Look at the queues of a store, and mend them."""
    ctx.obj = Call.of(path, catalog, storage, as_json)


@app.command()
def queues(ctx: typer.Context) -> None:
    """List the queues, and how many messages wait in each."""
    shown = ["queue", "shards", "key", "waiting", "in_flight", "sidelined", "damaged", "bytes"]
    Call.current(ctx).show_view("queues", columns=shown)


@app.command()
def create(
    ctx: typer.Context,
    queue: _Name,
    columns: Annotated[
        str | None,
        typer.Argument(help="As in Spark: 'order_id LONG NOT NULL, customer STRING'."),
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="FILE", help="Take the columns from a file instead.")
    ] = None,
    format: _Format = None,
    shards: Annotated[int, typer.Option(help="Shards of the queue.")] = DEFAULT_SHARDS,
    key: Annotated[
        str | None, typer.Option(help="Column whose hash picks the shard: keeps order per key.")
    ] = None,
    set: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="A setting, such as sweep_after=60."),
    ] = None,
) -> None:
    """Create a queue, and the store if it is new."""
    if (columns is None) == (like is None):
        raise BadOption("which columns? give either a list of them or --like FILE")
    schema = parse_columns(columns) if columns else intake.schema_of(str(like), format)
    call = Call.current(ctx)
    with call.store(create=True) as store:
        made = store.create_queue(queue, schema, shards=shards, key=key, **_settings(set or []))
    call.answer(f"queue {made.name} is there, with {made.info.shards} shards", queue=made.name)


@app.command()
def describe(ctx: typer.Context, queue: _Name) -> None:
    """Show a queue's columns, settings and counters."""
    call = Call.current(ctx)
    with call.queue(queue) as found:
        columns = [
            {"column": each.name, "type": str(each.type), "required": not each.nullable}
            for each in found.schema
        ]
        facts = found.store.view("queues", queue).to_pylist()[0]
        counters = found.metadata()
    settings = json.loads(facts.pop("settings"))
    if call.as_json:
        show_json(
            facts | {"columns": columns, "settings": settings, "counters": counters.to_pylist()}
        )
        return
    del facts["columns"]
    told = {"fact": [*facts, *settings], "value": map(str, [*facts.values(), *settings.values()])}
    out = console()
    out.print(grid(pa.table({name: list(values) for name, values in told.items()})))
    out.print(grid(pa.Table.from_pylist(columns), title="columns"))
    out.print(grid(counters.drop_columns("queue"), title="shards"))


@app.command()
def peek(
    ctx: typer.Context,
    queue: _Name,
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="So many at most.")] = 10,
    magazine: Annotated[str, typer.Option(help="main or sideline.")] = "main",
    selector: Annotated[
        str | None, typer.Option(help="A SQL condition, such as 'amount > 10'.")
    ] = None,
    order_by: Annotated[str | None, typer.Option(help="Such as 'priority DESC'.")] = None,
) -> None:
    """Show the messages that would be fired next; take none."""
    call = Call.current(ctx)
    with call.queue(queue) as found:
        messages = found.peek(count, selector=selector, order_by=order_by, magazine=magazine)
    hidden = ("_queue", "_fired_at")
    shown = [name for name in messages.column_names if name not in hidden]
    show(messages, as_json=call.as_json, columns=shown)


@app.command()
def load(
    ctx: typer.Context,
    queue: _Name,
    file: Annotated[
        str, typer.Argument(help="JSON lines, Parquet or Arrow; '-' is standard input.")
    ] = intake.STDIN,
    format: _Format = None,
    part: Annotated[
        int, typer.Option(min=1, help="Messages that one transaction loads, all or none.")
    ] = 1_000_000,
) -> None:
    """Load the rows of a file into a queue."""
    call = Call.current(ctx)
    progress = Progress(
        SpinnerColumn(),
        TextColumn("{task.completed:,} messages loaded"),
        TimeElapsedColumn(),
        console=(screen := console(stderr=True)),
        transient=True,
        disable=not screen.is_terminal,
    )
    loaded = 0
    with call.queue(queue) as found, progress:
        task = progress.add_task("load", total=None)
        try:
            for rows in _parts(intake.batches(file, format, found.schema), part):
                found.load(rows)
                loaded += rows.num_rows
                progress.update(task, completed=loaded)
        except IgnisError:
            if loaded:
                complain(f"{loaded:,} messages were loaded, and then:")
            raise
    call.answer(f"{loaded:,} messages loaded into {queue}", loaded=loaded)


@app.command()
def slices(ctx: typer.Context, queue: _AnyName = None, last: _Last = 1000) -> None:
    """Show where messages are, and who holds them."""
    Call.current(ctx).show_view("slices", queue, last=last)


@app.command()
def shards(ctx: typer.Context, queue: _AnyName = None) -> None:
    """Show pointers and counters of each shard."""
    Call.current(ctx).show_view("shards", queue)


@app.command()
def consumers(ctx: typer.Context) -> None:
    """Show who has fired from the store, and what they hold."""
    Call.current(ctx).show_view("consumers")


@app.command()
def failures(ctx: typer.Context, queue: _AnyName = None, last: _Last = 100) -> None:
    """Show why messages were sidelined."""
    Call.current(ctx).show_view("failures", queue, last=last)


@app.command()
def reports(ctx: typer.Context, queue: _AnyName = None, last: _Last = 100) -> None:
    """Show what side tasks have moved."""
    Call.current(ctx).show_view("reports", queue, last=last)


@app.command()
def shovel(
    ctx: typer.Context,
    queue: _Name,
    limit: Annotated[int | None, typer.Option(min=1, help="Move so many at most.")] = None,
) -> None:
    """Bring sidelined messages back to main."""
    call = Call.current(ctx)
    with call.queue(queue) as found, _working("shovelling"):
        moved = found.shovel(limit)
    call.answer(f"{moved:,} messages are back in {queue}", shovelled=moved)


@app.command()
def sweep(
    ctx: typer.Context,
    queue: _Name,
    older_than: Annotated[
        str | None, typer.Option(metavar="TIME", help="Such as 20m; else the queue's sweep_after.")
    ] = None,
) -> None:
    """Sideline what was fired too long ago and never finished."""
    call = Call.current(ctx)
    with call.queue(queue) as found, _working("sweeping"):
        moved = found.sweep(_duration("older-than", older_than) if older_than else None)
    call.answer(f"{moved:,} messages of {queue} were stuck, and are sidelined now", swept=moved)


@app.command()
def recover(ctx: typer.Context) -> None:
    """Give back what consumers that died had fired and never seen."""
    call = Call.current(ctx)
    with call.store() as store, _working("recovering"):
        given_back = store.recover()
    call.answer(f"{given_back:,} messages wait again", recovered=given_back)


@app.command()
def vacuum(
    ctx: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    grace: Annotated[
        str, typer.Option(metavar="TIME", help="Leave younger files alone.")
    ] = f"{GRACE_SECONDS:.0f}s",
) -> None:
    """Remove the files that no message needs any more."""
    call = Call.current(ctx)
    with call.store() as store, _working("vacuuming"):
        gone = store.vacuum(grace=_duration("grace", grace), dry_run=dry_run)
    verb = "would be removed" if dry_run else "removed"
    lines = [f"{len(gone):,} files {verb}", *gone]
    call.answer("\n".join(lines), dry_run=dry_run, files=gone)


@app.command()
def repair(ctx: typer.Context, queue: _Name) -> None:
    """Load what was set apart as damaged again, once its files are restored."""
    call = Call.current(ctx)
    with call.queue(queue) as found, _working("repairing"):
        repaired = found.repair()
    call.answer(f"{repaired:,} messages of {queue} wait again", repaired=repaired)


@app.command(name="top")
def watch(
    ctx: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Show it once, and end.")] = False,
    interval: Annotated[str, typer.Option(metavar="TIME", help="How often to look.")] = "1s",
) -> None:
    """Watch the queues live: what is there, and what happens each second."""
    call = Call.current(ctx)
    screen = console()
    with call.store() as store, suppress(KeyboardInterrupt):
        frames = top.frames(store, _duration("interval", interval))
        if once or call.as_json or not screen.is_terminal:
            for frame in islice(frames, 1 if once else None):
                show(frame, as_json=call.as_json)
            return
        with Live(console=screen, screen=True) as live:
            for frame in frames:
                live.update(grid(frame, title=f"{store!r}"))


def main() -> None:
    """The entry point of the command `ignis`."""
    app()


def _settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings as they are said: numbers, lists and truth values as in JSON, all else as text."""
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise BadOption(f"--set {pair}: write NAME=VALUE")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


def _duration(option: str, text: str) -> float:
    """Seconds; raises `BadOption`."""
    try:
        return seconds(text)
    except ValueError as error:
        raise BadOption(f"--{option} {text}: use {error}") from error


def _parts(batches: Iterable[pa.RecordBatch], rows: int) -> Iterator[pa.Table]:
    """Batches put together to tables of about so many rows."""
    waiting: list[pa.Table] = []
    for batch in batches:
        waiting.append(pa.Table.from_batches([batch]))
        if sum(each.num_rows for each in waiting) >= rows:
            yield pa.concat_tables(waiting, promote_options="permissive")
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting, promote_options="permissive")


def _working(what: str) -> Any:
    """A sign of life while one long transaction is at work."""
    return console(stderr=True).status(what)
