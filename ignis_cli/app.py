"""The application: how functions become commands, and the types of arguments that they share."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, get_args, get_origin

import typer
from typer import Argument, Option
from typer.models import OptionInfo

from ignis_cli.display import complain, console, in_json
from ignis_cli.invocation import BROKEN, REFUSED, Command, Ignis, Invocation, current
from queue_core import __version__
from queue_core.errors import BadOption, IgnisError, NoSuchQueue, Unavailable
from queue_core.values.durations import parse_seconds

if TYPE_CHECKING:
    from queue_core import Queue, Store

app = typer.Typer(cls=Ignis, no_args_is_help=True, pretty_exceptions_enable=False)
Ignis.registered = app.registered_commands

Function = TypeVar("Function", bound=Callable[..., None])

Name = Annotated[str, Argument(metavar="QUEUE", help="Name of the queue.")]
Names = Annotated[
    list[str], Argument(metavar="QUEUE...", help="Names of queues, or patterns such as 'acme.*'.")
]
Pattern = Annotated[
    str, Argument(metavar="QUEUE", help="Name of the queue, or a pattern such as 'acme.*'.")
]
AnyName = Annotated[
    str | None, Argument(metavar="[QUEUE]", help="Name of the queue. By default, all queues.")
]
Host = Annotated[str, Option(help="Address to listen on; 0.0.0.0 for all of the machine.")]
Port = Annotated[int, Option(min=0, max=65535, help="Port to listen on; 0: any free one.")]
Format = Annotated[
    str | None,
    Option(
        help="Format of the file: jsonl, csv, parquet, arrow. By default, the file's extension "
        "decides, and standard input is JSON lines."
    ),
]
#: A number of 1 or more.
Positive = Annotated[int, Option(min=1)]
Last = Annotated[int, Option(min=1, help="Show only this many rows, the latest ones; 1 or more.")]
Count = Annotated[int, Option("--count", "-n", min=1)]
Limit = Annotated[int | None, Option(min=1)]
Where = Annotated[
    str | None,
    Option(metavar="SELECTOR", help="SQL condition on the messages, such as 'amount > 10'."),
]
Yes = Annotated[bool, Option("--yes", "-y", help="Do not ask for confirmation.")]


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"ignis {__version__}")
        raise typer.Exit


@app.callback()
def ignis(
    context: typer.Context,
    path: Annotated[
        str | None,
        Option(metavar="FOLDER", help="Folder of an embedded store. By default, $IGNIS_PATH."),
    ] = None,
    catalog: Annotated[
        str | None,
        Option(metavar="URL", help="Database URL of the catalog. By default, $IGNIS_CATALOG."),
    ] = None,
    storage: Annotated[
        str | None,
        Option(
            metavar="URI", help="Folder or URI of the segment files. By default, $IGNIS_STORAGE."
        ),
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON, one object per line.")] = False,
    _: Annotated[
        bool, Option("--version", is_eager=True, callback=_show_version, help="Print the version.")
    ] = False,
) -> None:
    """Inspect, change and maintain the queues of a store."""
    current.set(Invocation.of(path, catalog, storage))
    in_json.set(as_json)
    # Not at the top: the help needs no catalog.
    from queue_core.catalog.records.acts import DOER, Doer

    token = DOER.set(Doer("command line"))
    context.call_on_close(lambda: DOER.reset(token))


def _queue(store: Store, queue: Name) -> Queue:
    return store.queue(queue)


def _matching(store: Store, queue: Pattern) -> list[Queue]:
    return _each(store, [queue])


def _each(store: Store, queues: Names) -> list[Queue]:
    found: dict[str, None] = {}
    for text in queues:
        names = [text]
        if set("*?[") & set(text):
            names = [name for name in store.queues() if fnmatchcase(name, text)]
            if not names:
                raise NoSuchQueue(f"no queue matches {text!r}: ignis queues lists their names")
        found |= dict.fromkeys(names)
    return [store.queue(name) for name in found]


#: A command with this type runs once for each queue that the command line names.
EachQueue: TypeAlias = "Queue"
#: The same for each queue that one name or pattern matches.
MatchingQueue: TypeAlias = "Queue"

#: The types that the first parameter of a command may have, each with the function that makes its
#: value from the store and the command line. Types are given by name, since the modules of commands
#: import them for mypy alone: `ignis queues` needs no queue, and starts at once.
TAKES: dict[str, Callable[..., Any]] = {
    "Store": lambda store: store,
    "Queue": _queue,
    "EachQueue": _each,
    "MatchingQueue": _matching,
}


def _of_view(view: str, column: str) -> Callable[[typer.Context, str], list[str]]:
    """Return a completer for the values of a view's column; without a store, it finds none."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        given = ctx.find_root().params
        try:
            with Invocation.of(*(given.get(each) for each in Invocation._fields)).store() as store:
                found = store.view(view).to_pylist()
        except IgnisError:
            return []
        # Nobody cancels a job that has ended.
        names = [row[column] for row in found if row.get("ended_at") is None]
        return sorted(name for name in names if name.startswith(incomplete))

    return complete


def _settings(incomplete: str) -> list[str]:
    # Not at the top: the help needs no settings.
    from queue_core.values.settings import QueueSettings

    names = sorted(f"{name}=" for name in QueueSettings.__dataclass_fields__)
    return [name for name in names if name.startswith(incomplete)]


#: What the shell completes of an argument or an option, by its metavar.
COMPLETE: dict[str, Callable[..., list[str]]] = {
    "QUEUE": _of_view("queues", "queue"),
    "CONSUMER": _of_view("consumers", "consumer"),
    "JOB": _of_view("jobs", "job"),
    "NAME=VALUE": _settings,
}


def command(panel: str, name: str | None = None) -> Callable[[Function], Function]:
    """
    Add the command of a function, by default with its name.

    Its first parameter may have a type of `TAKES`. Parameters by keyword are options, and other
    ones arguments. The help of a parameter is in its type, or in the section ``Args`` of the
    docstring, with its metavar in parentheses.
    """

    def add(function: Function) -> Function:
        about, helps = _described(function.__doc__ or "")
        parameters = _parameters(function)
        make = TAKES.get(parameters[0].annotation) if parameters else None
        own = _parameters(make)[1:] if make else []
        shown = [
            _shown(each, *helps.get(each.name, ("", "")))
            for each in sorted([*own, *parameters[bool(make) :]], key=lambda each: each.kind)
        ]

        def run(**given: Any) -> None:
            if make is None:
                function(**given)
                return
            with current.get().store() as store:
                made = make(store, **{each.name: given.pop(each.name) for each in own})
                for_each(made if isinstance(made, list) else [made], function, given)

        run.__name__, run.__module__, run.__doc__ = function.__name__, function.__module__, about
        run.__annotations__ = {each.name: each.annotation for each in shown}
        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        app.command(name, cls=Command, rich_help_panel=panel)(run)
        return function

    return add


def for_each(all_made: Sequence[Any], function: Callable[..., None], given: Any) -> None:
    """Call a function for each queue, even if it fails for some of them."""
    codes = [0]
    for made in all_made:
        try:
            function(made, **given)
        except Unavailable:
            raise
        except (IgnisError, typer.Exit) as error:
            # Ctrl-C ends the whole command, not only the call for one queue.
            if len(all_made) == 1 or isinstance(error.__context__, KeyboardInterrupt):
                raise
            if isinstance(error, IgnisError):
                complain(f"{made.name}: {error}", type(error).__name__)
            codes.append(getattr(error, "exit_code", REFUSED))
    if max(codes):
        raise typer.Exit(max(codes))


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    names = {name: name for name in TAKES}
    found = inspect.signature(function, eval_str=True, locals=names).parameters.values()
    # Without the parameters that a `partial` has bound.
    return [each for each in found if each.name not in getattr(function, "keywords", ())]


def _described(doc: str) -> tuple[str, dict[str, tuple[str, str]]]:
    """Split a docstring into what it says of the command, and the metavar and help by parameter."""
    about, _, section = inspect.cleandoc(doc).partition("\n\nArgs:\n")
    found = re.findall(r"^    (\w+)(?: \((.*?)\))?: (.*(?:\n     .*)*)", section, re.MULTILINE)
    return about, {name: (metavar, " ".join(text.split())) for name, metavar, text in found}


def _shown(parameter: inspect.Parameter, metavar: str, text: str) -> inspect.Parameter:
    """Return a parameter as typer takes it, with its help."""
    kind = parameter.annotation
    info = Option() if parameter.kind is inspect.Parameter.KEYWORD_ONLY else Argument()
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
    info = copy(info)
    if kind is bool and info.default is ...:
        # Otherwise typer adds a --no- option. In `Annotated`, `default` holds the option's name.
        info.default = "--" + parameter.name.replace("_", "-")
    names = {bool: "", int: "NUMBER", float: "NUMBER", str: "TEXT", Path: "FILE"}
    plain = next((each for each in get_args(kind) if each in names), kind)
    if isinstance(info, OptionInfo) and plain in names:
        # Otherwise the help has names of Python's types.
        metavar = metavar or info.metavar or names[plain]
    info.help, info.metavar = text or info.help, metavar or info.metavar
    info.autocompletion = COMPLETE.get((info.metavar or "").strip("[]."))
    return parameter.replace(annotation=Annotated[kind, info])


def duration(option: str, text: str) -> float:
    """Parse a duration into seconds; raises `BadOption`."""
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise BadOption(f"--{option} {text}: use {error}") from error


@contextmanager
def working(text: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a spinner on standard error during long work; yield what shows its progress."""
    with console(stderr=True).status(text) as shown:
        yield lambda part, done, of: shown.update(f"{text}: {part}, {done:,} of {of:,}")


def ask(question: str) -> None:
    """End the command with 1 if the answer is no; with ``--json``, no one can answer."""
    if in_json.get():
        raise BadOption(f"{question}: repeat the command with --yes")
    if not typer.confirm(f"{question}?", err=True):
        complain("nothing was changed")
        raise typer.Exit(BROKEN)
