"""Traces of exceptions that handlers raise: their ends, cut so that the handler's line is in.

A trace is made of one failure in two seconds, and of each that comes from another line. In a
flood of failures, only each fourth one of a known class is looked at. So thousands of failures a
second cost next to nothing, and each cause has its trace.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, extract_stack
from types import CodeType

from queue_core.values.failure_kinds import TRACE_LENGTH, escaped

#: Seconds between two traces from one place, and how many places are remembered.
EVERY_SECONDS = 2.0
_MOST_PLACES = 1000
#: How many failures are passed over if two that were looked at come within so many seconds.
_FLOOD = 3
_FLOOD_SECONDS = 0.01
#: The first frames of the handler, and the last ones of the trace.
_FIRST = _LAST = 8
#: Characters of a frame or a message: all of a trace then fit into `TRACE_LENGTH`.
_LINE = 300
_MESSAGE = 1000
#: As Python says it.
_CAUSE = "The above exception was the direct cause of the following exception:\n"
_CONTEXT = "During handling of the above exception, another exception occurred:\n"
_OWN = str(Path(__file__).parent.parent / "_")[:-1]


class Tracer:
    """Makes the traces of the failures of one handler that are worth one. Thread-safe."""

    def __init__(self) -> None:
        #: When the next trace is due, from any place.
        self._due = 0.0
        #: When a failure was last looked at, and how many of the next ones are passed over.
        self._looked = 0.0
        self._passed = 0
        self._classes: set[type[BaseException]] = set()
        #: Lines that have raised, whose code stays in memory meanwhile.
        self._places: dict[tuple[int, int], CodeType] = {}

    def trace_of(self, error: BaseException) -> str | None:
        """Return the trace of an exception, if it is due."""
        if self._passed > 0 and type(error) in self._classes:
            self._passed -= 1
            return None
        end = error.__traceback__
        if end is None:
            return None
        while end.tb_next is not None:
            end = end.tb_next
        code = end.tb_frame.f_code
        # By its id, because the hash of code is slow.
        place = id(code), end.tb_lasti
        now = time.monotonic()
        self._passed = _FLOOD if now - self._looked < _FLOOD_SECONDS else 0
        self._looked = now
        if now < self._due and place in self._places:
            return None
        # Two threads at once may make one more.
        self._due = now + EVERY_SECONDS
        if len(self._places) >= _MOST_PLACES:
            self._places.clear()
            self._classes.clear()
        self._places[place] = code
        self._classes.add(type(error))
        try:
            return trace_of(error)
        except Exception:  # noqa: BLE001 - an exception of a user can fail in any way when it is shown
            return None


def trace_of(error: BaseException) -> str:
    """Return the end of an exception's trace, with those of its causes before it."""
    return _kept("\n".join(_blocks(TracebackException.from_exception(error, compact=True))))


def trace_of_thread(thread: threading.Thread) -> str | None:
    """Return where a thread is, if it still runs."""
    frame = sys._current_frames().get(thread.ident or 0)
    if frame is None:
        return None
    stack = extract_stack(frame)
    own = [_is_own(frame) for frame in stack]
    shown = _frames(stack[own.index(True) :] if True in own else stack)
    return _kept(f"The call was here (most recent call last):\n{shown}")


def _blocks(shown: TracebackException) -> list[str]:
    blocks: list[str] = []
    if shown.__cause__ is not None:
        blocks = [*_blocks(shown.__cause__), _CAUSE]
    elif shown.__context__ is not None and not shown.__suppress_context__:
        blocks = [*_blocks(shown.__context__), _CONTEXT]
    for each in (shown.exceptions or ())[:2]:
        blocks += [*_blocks(each), "It is a part of the following group:\n"]
    message = "".join(shown.format_exception_only()).rstrip("\n")
    frames = f"Traceback (most recent call last):\n{_frames(shown.stack)}" if shown.stack else ""
    return [*blocks, frames + _cut(message, _MESSAGE) + "\n"]


def _is_own(frame: FrameSummary) -> bool:
    return frame.filename.startswith(_OWN)


def _frames(stack: Sequence[FrameSummary]) -> str:
    """Return the frames from the handler on, which ignis calls: the first ones, and the last."""
    after = list(dropwhile(_is_own, stack))
    lines = StackSummary.from_list(after or list(stack)).format()
    lines = [_cut(line.rstrip("\n"), _LINE) + "\n" for line in lines]
    left_out = len(lines) - _FIRST - _LAST
    if left_out > 0:
        lines[_FIRST:-_LAST] = [f"  … {left_out} frames are left out\n"]
    return "".join(lines)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _kept(trace: str) -> str:
    """Return the end of a trace that is kept, from the beginning of a line."""
    shown = escaped(trace.rstrip("\n"))
    if len(shown) <= TRACE_LENGTH:
        return shown
    return "…\n" + shown[2 - TRACE_LENGTH :].partition("\n")[2]
