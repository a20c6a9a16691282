"""Output of the command line: tables for people, lines of JSON for programs, errors in red."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import datetime
from typing import Any

import pyarrow as pa
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from ignis_cli import json_lines
from queue_core.values.json_text import as_json
from queue_core.values.valid_text import valid_table

#: Whether the command answers in JSON.
in_json: ContextVar[bool] = ContextVar("in_json", default=False)

# Wide enough for any table, because a pipe has no width.
_PIPE_WIDTH = 10_000

# Characters that could control a terminal: controls, and changes of direction.
_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class OutputLost(Exception):
    """Standard output takes no more: its reader has gone (*is_closed*), or a disk is full."""

    def __init__(self, error: OSError) -> None:
        self.is_closed = error.errno == errno.EPIPE
        super().__init__(
            "standard output was closed by its reader"
            if self.is_closed
            else f"standard output cannot be written: {error.strerror or error}"
        )


class _Console(Console):
    """A console that raises what its stream raises, also in later versions of rich."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def visible(text: str) -> str:
    """Return a text with escapes for characters that could control a terminal."""
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def console(*, stderr: bool = False) -> Console:
    """Return a console for the present standard output or standard error."""
    stream = sys.stderr if stderr else sys.stdout
    return _Console(stderr=stderr, width=None if stream.isatty() else _PIPE_WIDTH, highlight=False)


def counted(number: int, one: str = "message", more: str = "messages") -> str:
    """Return a number with its noun, and its verb if there is one: ``1 message is``."""
    return f"{number:,} {one if number == 1 else more}"


def say(text: str) -> None:
    """Print one line."""
    put(Text(visible(text)), soft_wrap=True)


def put(shown: RenderableType, *, soft_wrap: bool = False) -> None:
    """Print a table, or something else that rich knows to show."""
    with _writing():
        console().print(shown, soft_wrap=soft_wrap)


def buffer_output() -> None:
    """
    Give standard output a buffer, line by line, if PYTHONUNBUFFERED took it away.

    Without one, Python drops the rest of a text of which the system takes only a part, as a pipe or
    a disk does before it fails. `ignis fire --delete` would remove messages that nobody has.
    """
    stream = getattr(sys.stdout, "buffer", None)
    if isinstance(stream, io.RawIOBase):
        sys.stdout = io.TextIOWrapper(
            # The stubs know no raw stream there.
            io.BufferedWriter(stream),
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=True,
        )


def flush() -> None:
    """Write the rest of standard output; raises `OutputLost`, as every function that prints."""
    with _writing():
        sys.stdout.flush()


@contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # At its end, Python would write the rest once more, and complain.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise OutputLost(error) from error


def complain(text: str) -> None:
    """Print a text on standard error, its first line in red."""
    first, *others = visible(text.replace("\r\n", "\n")).split("\n")
    out = console(stderr=True)
    out.print(Text(f"ignis: {first}", style="red"), soft_wrap=True)
    for line in others:
        out.print(Text(line), soft_wrap=True)


def answer(text: str, **figures: Any) -> None:
    """Print the result of a command: a sentence, or its figures as JSON."""
    if in_json.get():
        show_json(figures)
    else:
        say(text)


def show(
    rows: pa.Table,
    columns: Sequence[str] | None = None,
    *,
    without: Sequence[str] = (),
    last: int | None = None,
) -> None:
    """
    Print rows: as a table of *columns*, or as JSON, one object per line with all columns.

    *without*: columns that the table leaves out. *last*: print only this many rows, the latest
    ones, and say how many are left out.
    """
    left_out = max(rows.num_rows - last, 0) if last else 0
    rows = rows.slice(left_out)
    if in_json.get():
        for row in _as_rows(rows):
            show_json(row)
    else:
        names = [name for name in columns or rows.column_names if name not in without]
        put(grid(rows.select(names)))
    if left_out:
        complain(f"{left_out:,} earlier rows are not shown; show more with --last")


def show_json(value: Mapping[str, Any]) -> None:
    """Print one object as a line of JSON."""
    # These escapes are JSON, and mean the same characters.
    line = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", as_json(value))
    with _writing():
        sys.stdout.write(line + "\n")


def grid(rows: pa.Table, title: str | None = None) -> Table:
    """Return rows as a table for people: numbers to the right, nulls blank."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for field in rows.schema:
        numeric = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if numeric else "left", overflow="fold")
    for row in _as_rows(rows):
        # As plain text: brackets in a message are not markup.
        table.add_row(*(Text(visible(_cell(name, value))) for name, value in row.items()))
    return table


def _as_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Yield rows as dicts."""
    columns = [
        [json_lines.value_for(value, column.type) for value in column.to_pylist()]
        for column in valid_table(rows).columns
    ]
    for row in zip(*columns, strict=True):
        yield dict(zip(rows.column_names, row, strict=True))


def _cell(name: str, value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%S}"
    if isinstance(value, int) and not isinstance(value, bool) and not name.endswith("_id"):
        return f"{value:,}"
    if isinstance(value, bytes):
        return value.replace(b"\\", b"\\\\").decode(errors="backslashreplace")
    return as_json(value) if isinstance(value, dict | list) else str(value)
