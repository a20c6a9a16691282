"""Ctrl-C during work of several transactions: it ends the work between two of them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

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
