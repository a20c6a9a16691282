"""Output of the command line: sentences for people, lines of JSON for programs, errors in red."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from queue_core.values.json_text import as_json

if TYPE_CHECKING:
    # It takes a while to import, and most output needs none of it.
    from rich.console import Console

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


def visible(text: str) -> str:
    """Return a text with escapes for characters that could control a terminal."""
    return _STEERING.sub(lambda found: ascii(found[0])[1:-1], text)


def console(*, stderr: bool = False) -> Console:
    """Return a console for the present standard output or standard error."""
    from rich.console import Console

    class Raising(Console):
        """A console that raises what its stream raises, also in later versions of rich."""

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    return Raising(
        stderr=stderr,
        width=None if (sys.stderr if stderr else sys.stdout).isatty() else _PIPE_WIDTH,
        highlight=False,
        # By itself, it would leave out colours alone, and not bold.
        color_system=None if os.environ.get("NO_COLOR") else "auto",
    )


def say(text: str) -> None:
    """Print a text as it is, with escapes for what could control a terminal."""
    put(visible(text) + "\n")


def put(text: str) -> None:
    """Write to standard output; raises `OutputLost`, as every function that prints."""
    with _writing():
        sys.stdout.write(text)


def buffer_output() -> None:
    """
    Give standard output a buffer, line by line, if PYTHONUNBUFFERED took it away.

    Without one, Python drops the rest of a text if the system takes only a part of it, as a pipe or
    a disk does before it fails. `ignis fire --delete` would remove messages that nobody has.
    If standard input is closed, Python has none: give it an empty one.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: SIM115 - it stays open to the end
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
    """Write the rest of standard output."""
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


def complain(text: str, error: str | None = None) -> None:
    """
    Print a text on standard error, its first line in red.

    *error*: the class of the error, if one ends the command; with ``--json``, it is printed as a
    line of JSON.
    """
    if error and in_json.get():
        sys.stderr.write(as_json({"error": error, "message": text}) + "\n")
        return
    text = "ignis: " + visible(text.replace("\r\n", "\n"))
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        first, *others = text.split("\n")
        text = "\n".join([f"\x1b[31m{first}\x1b[0m", *others])
    sys.stderr.write(text + "\n")


def answer(text: str, **figures: Any) -> None:
    """Print the result of a command: a sentence, or its figures as JSON."""
    if in_json.get():
        show_json(figures)
    else:
        say(text)


def show_json(value: object) -> None:
    """Print one object, a dict or a dataclass, as a line of JSON."""
    # These escapes are JSON, and mean the same characters.
    line = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", as_json(value))
    put(line + "\n")
