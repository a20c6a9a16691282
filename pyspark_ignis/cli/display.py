"""How the command line speaks: tables for people, lines of JSON for programs, errors in red."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table
from rich.text import Text

# Wide enough for any table where nobody sees its edge: a pipe has no width to fit.
_PIPE_WIDTH = 10_000


def console(*, stderr: bool = False) -> Console:
    """A console for standard output or error, as they are now."""
    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False)


def say(text: str) -> None:
    """One line about what was done."""
    console().print(Text(text), soft_wrap=True)


def complain(text: str) -> None:
    """One red line on standard error; below it, what a longer text has besides."""
    first, *others = text.splitlines() or [""]
    out = console(stderr=True)
    out.print(Text(f"ignis: {first}", style="red"), soft_wrap=True)
    for line in others:
        out.print(Text(line), soft_wrap=True)


def show(
    rows: pa.Table, *, as_json: bool, title: str | None = None, columns: Sequence[str] | None = None
) -> None:
    """
    Rows as a table of some of their *columns*, or, as JSON, one object a line with all of them.
    """
    if as_json:
        for row in rows.to_pylist():
            show_json(row)
    else:
        console().print(grid(rows.select(list(columns or rows.column_names)), title))


def show_json(value: Mapping[str, Any]) -> None:
    """One object as a line of JSON."""
    sys.stdout.write(json.dumps(value, default=_as_text, ensure_ascii=False) + "\n")


def grid(rows: pa.Table, title: str | None = None) -> Table:
    """Rows as a table for people; numbers to the right, what is null left blank."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for field in rows.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in rows.to_pylist():
        # As plain text: brackets in a message are no markup.
        table.add_row(*(Text(_cell(name, value)) for name, value in row.items()))
    return table


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith("_id"):
        return f"{value:,}"
    if isinstance(value, dict | list):
        return json.dumps(value, default=_as_text, ensure_ascii=False)
    return _as_text(value)


def _as_text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return str(value)
