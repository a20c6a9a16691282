"""What the shell completes: names of queues, consumers and jobs of the store, and settings."""

from __future__ import annotations

from collections.abc import Callable

import typer

from ignis_cli.invocation import Invocation
from queue_core.errors import IgnisError


def _of_view(view: str, column: str) -> Callable[[typer.Context, str], list[str]]:
    """Return what completes values of a column of a view, or nothing if there is no store."""

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
    from queue_core.values.settings import descriptions

    names = sorted(f"{each.name}=" for each in descriptions())
    return [name for name in names if name.startswith(incomplete)]


#: What completes an argument or an option, by its metavar.
COMPLETE: dict[str, Callable[..., list[str]]] = {
    "QUEUE": _of_view("queues", "queue"),
    "CONSUMER": _of_view("consumers", "consumer"),
    "JOB": _of_view("jobs", "job"),
    "NAME=VALUE": _settings,
}
