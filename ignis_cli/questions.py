"""The question before a command changes messages or queues for good."""

from __future__ import annotations

from typing import Annotated

import typer

from ignis_cli.display import complain, in_json
from ignis_cli.invocation import BROKEN
from queue_core.errors import BadOption

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do it without a question.")]


def ask(question: str) -> None:
    """End the command with 1 if the answer is no; with ``--json``, there is nobody to answer."""
    if in_json.get():
        raise BadOption(f"{question}: repeat the command with --yes")
    if not typer.confirm(f"{question}?", err=True):
        complain("nothing was changed")
        raise typer.Exit(BROKEN)
