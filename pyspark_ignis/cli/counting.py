"""A bar that counts the messages of work in several transactions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pyspark_ignis.cli.display import console
from queue_core.catalog import progress


@contextmanager
def counting(doing: str, total: int | None = None) -> Iterator[None]:
    """Show how many messages the block has done, of *total* if it is known, on a terminal."""
    screen = console(stderr=True)
    bar = Progress(
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
    with bar:
        task = bar.add_task(doing, total=total)
        with progress.told_to(lambda messages: bar.advance(task, messages)):
            yield
