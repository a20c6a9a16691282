"""A limit on how long a handler may take, enforced in the worker that runs it.

An alarm interrupts Python code and calls that block: waiting, sleeping, reading from a network. It
cannot interrupt C code that never returns to Python: then the limit acts when that code returns.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from types import FrameType
from typing import Any


class TimedOut(BaseException):
    """A call took too long. No `Exception`, so that handlers do not catch it with their errors."""


class Deadline:
    """Calls functions, and raises `TimedOut` when one takes longer than *seconds*."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._passed = False

    def __enter__(self) -> Deadline:
        # Spark runs a task's Python in the main thread of a process, which alone can do this.
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGALRM, self._before)

    def call(self, function: Callable[[Any], Any], value: Any) -> Any:
        """The result of ``function(value)``; also `TimedOut` when it swallowed the interruption."""
        self._passed = False
        signal.setitimer(signal.ITIMER_REAL, self._seconds)
        try:
            result = function(value)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
        if self._passed:
            raise TimedOut
        return result

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self._passed = True
        raise TimedOut
