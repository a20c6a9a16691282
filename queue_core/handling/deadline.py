"""Calls of handlers, to the end of a coroutine, and a limit on how long they take.

An alarm interrupts Python code and blocking calls, such as waiting, sleeping, or reading from a
network. It cannot interrupt C code; the limit then acts when that code returns to Python. A call of
ignis ends before the limit acts.
"""

from __future__ import annotations

import asyncio
import inspect
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import FrameType
from typing import Any

from queue_core.support.interruption import Interruptible, TimedOut, bind, here

#: An alarm goes off no sooner than this.
_LEAST_SECONDS = 0.001


def interruptibly(function: Callable[..., Any], *values: Any) -> Any:
    """Call a handler, and finish its coroutine; this is what the limit of time may interrupt."""
    with here() or nullcontext():
        result = function(*values)
        # To ask whether it is a coroutine takes longer than a quick handler.
        return result if isinstance(result, bool) else finish(result)


class Deadline:
    """
    Calls functions, and raises `TimedOut` when one takes longer than *seconds*.

    One alarm serves many short calls: when it goes off, it is set again for the remaining time of
    the call in progress. Setting it for each call would cost more than many calls.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        #: When the call in progress began; None between calls.
        self._began: float | None = None
        self._set = False
        self._passed = False

    def __enter__(self) -> Deadline:
        self._calls = Interruptible()
        self._others = bind(self._calls)
        # Only a main thread can do this, and Spark runs a task's Python in one.
        self._before = signal.signal(signal.SIGALRM, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self._before)
        bind(self._others)

    def call(self, function: Callable[..., Any], *values: Any) -> Any:
        """Call a function; raises `TimedOut` even when the function catches the interruption."""
        self._passed = False
        self._began = time.monotonic()
        if not self._set:
            self._alarm(self._seconds)
        try:
            # A coroutine has not begun yet, and its time counts too.
            result = interruptibly(function, *values)
        finally:
            self._began = None
        if self._passed:
            raise self._late()
        return result

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        self._set = False
        if self._began is None:
            return
        left = self._began + self._seconds - time.monotonic()
        if left > 0:
            self._alarm(left)
            return
        self._passed = True
        self._calls.interrupt(self._late())

    def _alarm(self, seconds: float) -> None:
        self._set = True
        # A time that rounds to 0 microseconds would turn the alarm off.
        signal.setitimer(signal.ITIMER_REAL, max(seconds, _LEAST_SECONDS))

    def _late(self) -> TimedOut:
        return TimedOut(f"not done after {self._seconds:g} s")


def finish(result: Any) -> Any:
    """
    Return the result of a handler, which is run to its end if it is a coroutine.

    Each call has its own loop, so that a timeout can end the call with everything that it started.
    Objects that belong to a loop must therefore be made within the handler.
    """
    return asyncio.run(result) if inspect.iscoroutine(result) else result
