"""Traces of exceptions that handlers raise: their ends, cut so that the handler's line is in.

A trace is made of one failure every two seconds, and of each failure whose line, or whose text
apart from its values, is new within a minute. In a flood of failures that are not new, only every
seventh is looked at, and fewer the longer it lasts. So thousands of failures a second cost next to
nothing, and each cause has its trace.
"""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Sequence
from itertools import dropwhile
from pathlib import Path
from traceback import FrameSummary, StackSummary, TracebackException, extract_stack
from types import CodeType, TracebackType

from queue_core.values.failure_kinds import TRACE_LENGTH, escaped, message_of

#: Seconds between two traces that are not the first of their text, and how many lines are known.
EVERY_SECONDS = 2.0
_MOST_PLACES = 1000
#: Seconds after which each text is new again, so that each minute of the log has its trace.
ANEW_SECONDS = 60.0
#: How many texts of one line have traces of their own until then.
MOST_TEXTS = 20
#: After `DULL` failures in sequence that were not new, `SHARE` of their number, at most `PASSED`,
#: are passed over before the next one is looked at.
DULL, SHARE, PASSED = 100, 1 / 16, 60
#: The characters of a text by which failures are told apart, and the values that are left out.
_TEXT = 200
# Words with digits are tried from their beginning alone, and no word twice.
_VALUE = re.compile(r"(?<![^\s'\"])[^\s\d]*+\d\S*+|'[^']*'|\"[^\"]*\"")
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
        #: When the next trace is due, from any place, and when each text is new again.
        self._due = self._anew = 0.0
        #: How many failures in sequence were not new, and how many of the next are passed over.
        self._dull = self._passed = 0
        self._classes: set[type[BaseException]] = set()
        #: Lines that have raised, whose code stays in memory meanwhile, and the texts of each.
        self._places: dict[tuple[int, int], tuple[CodeType, set[str]]] = {}

    def trace_of(self, error: BaseException) -> str | None:
        """Return the trace of an exception, if it is due."""
        if self._passed > 0 and type(error) in self._classes:
            self._passed -= 1
            return None
        end = error.__traceback__
        if end is None:
            return None
        try:
            return trace_of(error) if self._is_due(error, end) else None
        except Exception:  # noqa: BLE001 - an exception of a user can fail in any way when it is shown
            return None

    def _is_due(self, error: BaseException, end: TracebackType) -> bool:
        """Return whether a failure is new, or the time has come; note it."""
        while end.tb_next is not None:
            end = end.tb_next
        code, now = end.tb_frame.f_code, time.monotonic()
        if len(self._places) >= _MOST_PLACES or now >= self._anew:
            self._places.clear()
            self._classes.clear()
            self._anew = now + ANEW_SECONDS
        self._classes.add(type(error))
        # By its id, because the hash of code is slow.
        _, texts = self._places.setdefault((id(code), end.tb_lasti), (code, set()))
        is_due = now >= self._due
        if is_due:
            # Two threads at once may make one more.
            self._due = now + EVERY_SECONDS
        text = _VALUE.sub("*", message_of(error)[:_TEXT])
        is_new = text not in texts and len(texts) < MOST_TEXTS
        if is_new:
            texts.add(text)
        self._dull = 0 if is_new else self._dull + 1
        self._passed = min(int(self._dull * SHARE), PASSED) if self._dull >= DULL else 0
        return is_due or is_new


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
