"""Invocations of `ignis`: find the store, report errors."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import typer
from typer.core import TyperGroup

from ignis_cli.display import OutputLost, complain, flush
from queue_core import IgnisError, Store
from queue_core.errors import BadOption
from queue_core.values.address import Address

#: The exit code when a check found something, or when nobody reads the output any more.
BROKEN = 1
#: The exit code after an error.
REFUSED = 2
#: What typer raises for arguments that do not fit; it does not export the class.
_Misused: Any = typer.BadParameter.__base__


class Ignis(TyperGroup):
    """Accepts options of `ignis` after the command too; reports our errors in one red line."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command whose help is wrapped by the terminal, not by its docstring."""
        command = super().get_command(ctx, cmd_name)
        if command is not None and command.help:
            command.help = re.sub(r"(?<!\n)\n(?!\n)", " ", command.help)
        return command

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of `ignis` wherever they are."""
        # Without a command it shows its help, which is not an error.
        try:
            return super().parse_args(ctx, _own_options_first(args or ["--help"], self.params))
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
            complain(str(error))
            raise typer.Exit(REFUSED) from error
        except OutputLost as error:
            if not error.is_closed:
                complain(str(error))
            raise typer.Exit(BROKEN if error.is_closed else REFUSED) from error
        except _Misused as error:
            raise _refused(error) from error


def _refused(error: Any) -> typer.Exit:
    """Say in one line which argument does not fit; return what ends the program."""
    text = " ".join(error.format_message().split()).rstrip(".")
    text = text.replace(". Did you", "; did you").replace(": Value error, ", ": ")
    see = error.ctx.command_path if error.ctx else "ignis"
    complain(f"{text[:1].lower()}{text[1:]}; see: {see} --help")
    return typer.Exit(REFUSED)


class Invocation(NamedTuple):
    """The address of the store: a path, or a catalog and a storage."""

    path: str | None
    catalog: str | None
    storage: str | None

    @staticmethod
    def of(*given: str | None) -> Invocation:
        """Take the address from the options or, if there is none, from the environment."""
        names = (f"IGNIS_{name.upper()}" for name in Invocation._fields)
        return Invocation(*(given if any(given) else map(os.environ.get, names)))

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
