"""A bar that counts the messages or files of work in several steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ignis_cli.display import complain, console, counted, in_json
from ignis_cli.interrupts import between_transactions
from queue_core.catalog.records import progress


@contextmanager
def counting(
    doing: str, total: int | None = None, *, nouns: tuple[str, str] = ("message", "messages")
) -> Iterator[None]:
    """
    Show on a terminal how many messages or files the block has done, unless it answers in JSON.

    After Ctrl-C, say how many these are, also elsewhere. *total*: how many there are; by default,
    as many as the block expects, if it knows that. *nouns*: what they are, one and many.
    """
    # Steps may be those of several threads; appending is one operation.
    done: list[int] = []
    expected: list[int] = []
    with between_transactions() as interrupts:
        try:
            with bar(doing, total) as shown:

                def heard(further: int, more: int) -> None:
                    done.append(further)
                    expected.append(more)
                    shown(further, more)
                    interrupts.check()

                with progress.told_to(heard):
                    yield
        except KeyboardInterrupt:
            of = total or sum(expected)
            number = f"{sum(done):,} of {counted(of, *nouns)}" if of else counted(sum(done), *nouns)
            done_so_far = f"{doing} was interrupted after {interrupts.least}{number}"
            complain(f"{done_so_far}; the others are as they were")
            raise


@contextmanager
def bar(doing: str, total: int | None) -> Iterator[progress.Listener]:
    """Show a bar on a terminal, unless the command answers in JSON; yield what moves it."""
    screen = console(stderr=True)
    if in_json.get() or not screen.is_terminal:
        yield lambda *_: None
        return
    shown = Progress(
        TextColumn(doing),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=screen,
        transient=True,
    )
    with shown:
        task = shown.add_task(doing, total=total)

        def move(done: int, expected: int) -> None:
            if expected and total is None:
                shown.update(task, total=(shown.tasks[task].total or 0) + expected)
            shown.advance(task, done)

        yield move
