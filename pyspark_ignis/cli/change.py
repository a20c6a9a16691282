"""Commands that make, fill, set and end queues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import pyarrow as pa
import typer
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from pyspark_ignis.cli import intake
from pyspark_ignis.cli.app import Format, Name, app
from pyspark_ignis.cli.ddl import columns as parse_columns
from pyspark_ignis.cli.display import complain, console
from pyspark_ignis.cli.invocation import Call
from queue_core import IgnisError
from queue_core.errors import BadOption
from queue_core.settings import DEFAULT_SHARDS

_CHANGE = "Change"


@app.command(rich_help_panel=_CHANGE)
def create(
    ctx: typer.Context,
    queue: Name,
    columns: Annotated[
        str | None,
        typer.Argument(help="As in Spark: 'order_id LONG NOT NULL, customer STRING'."),
    ] = None,
    like: Annotated[
        str | None, typer.Option(metavar="FILE", help="Take the columns from a file instead.")
    ] = None,
    format: Format = None,
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


@app.command(rich_help_panel=_CHANGE)
def load(
    ctx: typer.Context,
    queue: Name,
    file: Annotated[
        str, typer.Argument(help="JSON lines, Parquet or Arrow; '-' is standard input.")
    ] = intake.STDIN,
    format: Format = None,
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
    loaded = left_out = 0
    with call.queue(queue) as found, progress:
        task = progress.add_task("load", total=None)
        try:
            for rows in _parts(intake.batches(file, format, found.schema), part):
                ids = found.load(rows)
                left_out += ids.null_count
                loaded += len(ids) - ids.null_count
                progress.update(task, completed=loaded)
        except IgnisError:
            if loaded:
                complain(f"{loaded:,} messages were loaded, and then:")
            raise
    told = f"{loaded:,} messages loaded into {queue}"
    told += f", {left_out:,} left out" if left_out else ""
    call.answer(told, loaded=loaded, left_out=left_out)


@app.command(name="set", rich_help_panel=_CHANGE)
def change(
    ctx: typer.Context,
    queue: Name,
    settings: Annotated[
        list[str], typer.Argument(metavar="NAME=VALUE...", help="Such as sweep_after=60.")
    ],
) -> None:
    """Change settings of a queue, also while it is in use."""
    call = Call.current(ctx)
    values = _settings(settings)
    with call.queue(queue) as found:
        found.change_settings(**values)
    told = ", ".join(f"{name} is {json.dumps(value)}" for name, value in values.items())
    call.answer(f"{queue}: {told}", **values)


@app.command(rich_help_panel=_CHANGE)
def deactivate(ctx: typer.Context, queue: Name) -> None:
    """Give a queue up, for good: nothing is loaded into it nor fired from it any more."""
    call = Call.current(ctx)
    with call.queue(queue) as found:
        found.deactivate()
    call.answer(f"queue {queue} is given up", deactivated=queue)


def _settings(pairs: Iterable[str]) -> dict[str, Any]:
    """Settings as they are said: numbers, lists and truth values as in JSON, all else as text."""
    settings = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise BadOption(f"setting {pair!r}: write NAME=VALUE")
        try:
            settings[name] = json.loads(text)
        except ValueError:
            settings[name] = text
    return settings


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
