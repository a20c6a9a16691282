"""What all commands of `ignis` share: where the store is, how to answer, what becomes of errors."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from pyspark_ignis.cli.display import complain, say, show, show_json
from queue_core import IgnisError, Queue, Store

#: The exit code when ignis refuses, or cannot do, what it was asked.
REFUSED = 2


class Ignis(TyperGroup):
    """Lets options of `ignis` stand behind the command too; tells our errors in one red line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the options of `ignis` wherever they stand."""
        return super().parse_args(ctx, _own_options_first(args, self.params))

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except IgnisError as error:
            complain(str(error))
            raise typer.Exit(REFUSED) from error


@dataclass(frozen=True, slots=True)
class Call:
    """Where the store is, and whether to answer in JSON."""

    #: ``path``, or ``catalog`` and ``storage``.
    where: Mapping[str, str | None]
    as_json: bool

    @staticmethod
    def of(path: str | None, catalog: str | None, storage: str | None, as_json: bool) -> Call:
        """From the options, or, when none says where the store is, from the environment."""
        where = {"path": path, "catalog": catalog, "storage": storage}
        if not any(where.values()):
            where = {name: os.environ.get(f"IGNIS_{name.upper()}") for name in where}
        return Call(where, as_json)

    @staticmethod
    def current(ctx: typer.Context) -> Call:
        """The call that a command belongs to."""
        call = ctx.find_object(Call)
        assert call is not None, "the callback of `ignis` makes it"
        return call

    def store(self, *, create: bool = False) -> Store:
        """The store, which is made only where *create* says so."""
        where = self.where
        return Store.open(
            where["path"], catalog=where["catalog"], storage=where["storage"], create=create
        )

    @contextmanager
    def queue(self, name: str) -> Iterator[Queue]:
        """One queue of the store."""
        with self.store() as store:
            yield store.queue(name)

    def show_view(
        self,
        name: str,
        queue: str | None = None,
        *,
        columns: Sequence[str] | None = None,
        last: int | None = None,
    ) -> None:
        """Show a view of the store, or the *last* so many rows of it."""
        with self.store() as store:
            rows = store.view(name, queue)
        left_out = max(rows.num_rows - last, 0) if last else 0
        show(rows.slice(left_out), as_json=self.as_json, columns=columns)
        if left_out:
            complain(f"{left_out:,} earlier ones are not shown; ask for more with --last")

    def answer(self, said: str, **told: Any) -> None:
        """Say what was done: a sentence, or its figures as JSON."""
        if self.as_json:
            show_json(told)
        else:
            say(said)


def _own_options_first(args: Sequence[str], params: Sequence[Any]) -> list[str]:
    """The options among *params* before everything else; what follows ``--`` is left alone."""
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
