"""Invocations of `ignis`: find the store, report errors."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info
from typer.models import CommandInfo

from ignis_cli.display import OutputLost, complain, flush, in_json
from queue_core.errors import BadOption, IgnisError
from queue_core.values.address import Address, completed

if TYPE_CHECKING:
    from queue_core import Store

#: The exit code when a check found something, or when nobody reads the output any more.
BROKEN = 1
#: The exit code after an error.
REFUSED = 2
#: What typer raises for arguments that do not fit; it does not export the class.
_Misused: Any = typer.BadParameter.__base__


#: What `ignis --help` shows of each command, and its module: written by `make docs`.
INDEX = Path(__file__).parent / "index.json"


class _NoTypes:
    """Leaves out of the help that a flag is a `bool`."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, with those of typer."""
        found = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
        return found


class Command(_NoTypes, TyperCommand):
    """A command."""


class Ignis(_NoTypes, TyperGroup):
    """
    Imports a command when it is asked for; until then, it has what the index says of it.

    To import all takes a second. It accepts options of `ignis` after the command too, and reports
    our errors in one red line.
    """

    #: What modules of commands have added to the application.
    registered: ClassVar[Sequence[CommandInfo]] = ()

    def __init__(self, *, commands: Mapping[str, Any] | None = None, **how: Any) -> None:
        self._modules: dict[str, str] = {}
        known: dict[str, Any] = {}
        for name, (module, panel, about) in json.loads(INDEX.read_bytes()).items():
            self._modules[name] = module
            known[name] = TyperCommand(name, help=about, rich_help_panel=panel)
        super().__init__(commands=known | dict(commands or {}), **how)

    def load(self, name: str | None = None) -> None:
        """Import the module of a command; by default, and for an unknown name, all of them."""
        every = (file.stem for file in INDEX.parent.glob("commands_*.py"))
        module = self._modules.get(name or "")
        for each in [module] if module else sorted(every):
            import_module(f"ignis_cli.{each}")
        for info in self.registered:
            command = get_command_from_info(
                info, pretty_exceptions_short=False, rich_markup_mode=self.rich_markup_mode
            )
            self.commands[str(command.name)] = command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Import the command, and return it."""
        self.load(args[0])
        return super().resolve_command(ctx, args)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command whose help is wrapped by the terminal, not by its docstring."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of `ignis` wherever they are."""
        # Without a command it shows its help, which is not an error.
        args = _own_options_first(args or ["--help"], self.params)
        # Also an error before the command is one in JSON.
        in_json.set("--json" in (args[: args.index("--")] if "--" in args else args))
        if os.environ.get("NO_COLOR") and "--help" in args:
            # Only for the help, since it takes a while to import.
            from typer import rich_utils

            rich_utils.COLOR_SYSTEM = None
        try:
            return super().parse_args(ctx, args)
        except _Misused as error:
            raise _refused(error) from error

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            try:
                return super().invoke(ctx)
            finally:
                flush()
        except IgnisError as error:
            complain(str(error), type(error).__name__)
            raise typer.Exit(REFUSED) from error
        except OutputLost as error:
            if not error.is_closed:
                complain(str(error), "OutputLost")
            raise typer.Exit(BROKEN if error.is_closed else REFUSED) from error
        except typer.Abort as error:
            typer.echo(err=True)  # The line of the question has no end.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from error
            complain("standard input ended before an answer")
            raise typer.Exit(BROKEN) from error
        except _Misused as error:
            raise _refused(error) from error


def _refused(error: Any) -> typer.Exit:
    """Say in one line which argument does not fit; return what ends the program."""
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text.replace(". Did you", "; did you").replace(": Value error, ", ": ")
    see = error.ctx.command_path if error.ctx else "ignis"
    complain(f"{text[:1].lower()}{text[1:]}; see: {see} --help", "BadOption")
    return typer.Exit(REFUSED)


class Invocation(NamedTuple):
    """The address of the store: a path, or a catalog and a storage."""

    path: str | None
    catalog: str | None
    storage: str | None

    @staticmethod
    def of(path: str | None, catalog: str | None, storage: str | None) -> Invocation:
        """Take the address from the options, and what they lack from the environment."""
        return Invocation(*completed(path, catalog, storage))

    def address(self) -> Address:
        """Return the address; raises `BadOption`, which names the options of the command line."""
        path, catalog, storage = self
        if path and (catalog or storage):
            raise BadOption("give either --path, or --catalog and --storage, not both")
        if not path and not (catalog and storage):
            raise BadOption(
                "which store? give --path some/folder, or both --catalog postgresql+psycopg://… "
                "and --storage s3://bucket/prefix; or set IGNIS_PATH, or IGNIS_CATALOG and "
                "IGNIS_STORAGE"
            )
        return Address.of(path, catalog=catalog, storage=storage)

    def store(self, *, create: bool = False, adopt: bool = False) -> Store:
        """Open the store; create it only if *create* is true."""
        from queue_core.store import Store

        return Store(self.address(), create=create, adopt=adopt)


#: The invocation that a command belongs to; the callback of `ignis` sets it.
current: ContextVar[Invocation] = ContextVar("current")


def _own_options_first(args: Sequence[str], params: Sequence[Any]) -> list[str]:
    """Move the options in *params* to the front; leave everything after ``--`` alone."""
    takes_value = {name: not param.is_flag for param in params for name in param.opts}
    own: list[str] = []
    others: list[str] = []
    rest = iter(args)
    for arg in rest:
        name = arg.partition("=")[0]
        if arg == "--":
            others += [arg, *rest]
        elif name in takes_value:
            own.append(arg)
            if takes_value[name] and arg == name:
                own += [value for value in [next(rest, None)] if value is not None]
        else:
            others.append(arg)
    return own + others
