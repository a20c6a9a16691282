"""Work in several steps: a bar that counts messages or files, and Ctrl-C between two steps."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from ignis_cli.display import complain, console, in_json
from queue_core.catalog.records import progress
from queue_core.watching.wording import counted

#: Seconds that a transaction may still last after Ctrl-C.
_PATIENCE = 1.0


@dataclass(slots=True)
class Interrupts:
    """Whether Ctrl-C was pressed, and whether it had to break into a transaction."""

    asked: bool = False
    broken: bool = False

    @property
    def least(self) -> str:
        """What to say before the number of what is done: a broken transaction may be, too."""
        return "at least " if self.broken else ""

    def check(self) -> None:
        """Raise `KeyboardInterrupt` if Ctrl-C was pressed; the caller is between transactions."""
        if self.asked:
            raise KeyboardInterrupt

    def press(self, *_: Any) -> None:
        """Wait for the next check, but not for longer than a second."""
        if self.asked:
            self.interrupt()
        self.asked = True
        signal.signal(signal.SIGALRM, self.interrupt)
        signal.setitimer(signal.ITIMER_REAL, _PATIENCE)

    def interrupt(self, *_: Any) -> None:
        """Raise `KeyboardInterrupt`, wherever the program is."""
        self.broken = True
        raise KeyboardInterrupt


@contextmanager
def between_transactions() -> Iterator[Interrupts]:
    """
    Let Ctrl-C wait for the next `Interrupts.check` in the block, so that its count is right.

    A second Ctrl-C, or a check that does not come within a second, interrupts at once.
    """
    interrupts = Interrupts()
    usual = signal.default_int_handler
    in_charge = threading.current_thread() is threading.main_thread()
    if not in_charge or signal.getsignal(signal.SIGINT) is not usual:
        yield interrupts
        return
    signal.signal(signal.SIGINT, interrupts.press)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, usual)
        if interrupts.asked:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)


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
            complain(f"{done_so_far}; the rest is unchanged")
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
