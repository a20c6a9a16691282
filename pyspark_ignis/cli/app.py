"""The application: the options that all commands share, and the kinds of arguments they have."""

from __future__ import annotations

from importlib.metadata import version
from typing import Annotated, Any

import typer

from pyspark_ignis.cli import intake
from pyspark_ignis.cli.display import console
from pyspark_ignis.cli.invocation import Call, Ignis
from queue_core.errors import BadOption
from queue_core.options import seconds

app = typer.Typer(
    cls=Ignis, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False
)

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.")]
AnyName = Annotated[
    str | None, typer.Argument(metavar="[QUEUE]", help="The queue; without it, all.")
]
Format = Annotated[
    str | None,
    typer.Option(
        help=f"One of {', '.join(intake.FORMATS)}; without it, the file's name tells, and standard "
        "input is JSON lines."
    ),
]
Last = Annotated[int, typer.Option(min=1, help="Show so many at most, the last ones.")]


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"ignis {version('ignis-queue')}")
        raise typer.Exit


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


def duration(option: str, text: str) -> float:
    """Seconds; raises `BadOption`."""
    try:
        return seconds(text)
    except ValueError as error:
        raise BadOption(f"--{option} {text}: use {error}") from error


def working(what: str) -> Any:
    """A sign of life while one long transaction is at work."""
    return console(stderr=True).status(what)
