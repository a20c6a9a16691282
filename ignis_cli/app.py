"""The application: options of every command, and the types of arguments that commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any, TypeVar

import typer

from ignis_cli.display import console, in_json
from ignis_cli.invocation import Ignis, Invocation, current
from ignis_cli.row_files import FORMATS
from queue_core import Queue, Store
from queue_core.errors import BadOption
from queue_core.values.durations import parse_seconds

app = typer.Typer(cls=Ignis, no_args_is_help=True, pretty_exceptions_enable=False)

Function = TypeVar("Function", bound=Callable[..., None])

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
    current.set(Invocation.of(path, catalog, storage))
    in_json.set(as_json)


def command(panel: str, name: str | None = None) -> Callable[[Function], Function]:
    """
    Add the command of a function, by default with its name.

    If its first parameter is a `Store`, it gets that of the invocation; if it is a `Queue`, the one
    that the first argument names.
    """

    def add(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        parameters = list(signature.parameters.values())
        first = parameters[0] if parameters else None
        if first is None or first.annotation not in (Store, Queue):
            app.command(name, rich_help_panel=panel)(function)
            return function

        def run(**given: Any) -> None:
            with current.get().store() as store:
                of_queue = first.annotation is Queue
                given[first.name] = store.queue(given[first.name]) if of_queue else store
                function(**given)

        parameters[:1] = [first.replace(annotation=Name)] if first.annotation is Queue else []
        run.__name__, run.__doc__ = function.__name__, function.__doc__
        run.__annotations__ = {each.name: each.annotation for each in parameters}
        run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        app.command(name, rich_help_panel=panel)(run)
        return function

    return add


def duration(option: str, text: str) -> float:
    """Parse a duration into seconds; raises `BadOption`."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadOption(f"--{option} {text}: use {error}") from error


def working(text: str) -> Any:
    """Show a spinner on standard error while a long transaction runs."""
    return console(stderr=True).status(text)
