"""The application: options of every command, and the types of arguments that commands share."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer

from ignis_cli.display import console
from ignis_cli.invocation import Ignis, Invocation
from ignis_cli.row_files import FORMATS
from queue_core.errors import BadOption
from queue_core.values.durations import parse_seconds

app = typer.Typer(cls=Ignis, no_args_is_help=True, pretty_exceptions_enable=False)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="Name of the queue.")]
AnyName = Annotated[
    str | None, typer.Argument(metavar="[QUEUE]", help="Name of the queue. By default, all queues.")
]
Host = Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all of the machine.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any free one.")]
Format = Annotated[
    str | None,
    typer.Option(
        help=f"Format of the file: {', '.join(FORMATS)}. By default, the file's extension decides, "
        "and standard input is JSON lines."
    ),
]
Last = Annotated[
    int, typer.Option(min=1, help="Show only this many rows, the latest ones; 1 or more.")
]


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"ignis {version('ignis-queue')}")
        raise typer.Exit


@app.callback()
def ignis(
    ctx: typer.Context,
    path: Annotated[
        str | None, typer.Option(help="Folder of an embedded store. By default, $IGNIS_PATH.")
    ] = None,
    catalog: Annotated[
        str | None, typer.Option(help="Database URL of the catalog. By default, $IGNIS_CATALOG.")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="Folder or URI of the segment files. By default, $IGNIS_STORAGE."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, one object per line.")
    ] = False,
    _: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version."),
    ] = False,
) -> None:
    """Inspect, change and maintain the queues of a store."""
    ctx.obj = Invocation.of(path, catalog, storage, as_json)


def duration(option: str, text: str) -> float:
    """Parse a duration into seconds; raises `BadOption`."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadOption(f"--{option} {text}: use {error}") from error


def working(text: str) -> Any:
    """Show a spinner on standard error while a long transaction runs."""
    return console(stderr=True).status(text)
