"""Interrupts of handlers whose calls take too long, which never hit ignis' own code.

A load, a firing or a settlement that a handler calls is done or not done, and may be done together
with those of other threads. So the methods of ignis' public classes are shielded: an interrupt that
comes meanwhile is raised when the outermost of them has ended. Without one, it is raised wherever
the handler is, by a signal or by another thread. It is never raised after the call of the handler.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from functools import wraps
from types import FunctionType
from typing import Any, TypeVar

_Class = TypeVar("_Class", bound=type)


class TimedOut(BaseException):
    """A call took too long. Not an `Exception`, so that handlers do not catch it among others."""


class _Sent(TimedOut):
    """What another thread raises. Python makes it in the thread that it hits, at that moment."""

    def __init__(self) -> None:
        super().__init__("not done in time")
        if _here.calls is not None:
            _here.calls._is_sent = False


class Interruptible:
    """The calls of handlers that one thread makes, one after another: ``with calls: handler()``."""

    def __init__(self) -> None:
        self._thread: int | None = None
        # A signal may come while its own thread is within the lock.
        self._lock = threading.RLock()
        self._is_open = False
        #: How many shielded methods the thread is within.
        self._depth = 0
        #: Whether another thread has sent an interrupt that has not been raised yet.
        self._is_sent = False
        #: What is raised when the shielded methods have ended.
        self._late: TimedOut | None = None

    def interrupt(self, late: TimedOut) -> None:
        """Raise *late* in the call in progress, if there is one."""
        with self._lock:
            if self._depth:
                self._late = late
            elif self._thread == threading.get_ident():
                raise late
            elif self._is_open:
                # Once for each call.
                self._is_open, self._is_sent = False, True
                _raise_in(self._thread, _Sent)

    def __enter__(self) -> None:
        self._is_open, self._depth = True, 0

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._is_open, self._late = False, None
            if self._is_sent:
                self._recall()

    def enter(self) -> None:
        """Enter a shielded method; raise an interrupt that is on its way."""
        with self._lock:
            if self._recall():
                raise TimedOut
            self._depth += 1

    def leave(self) -> None:
        """Leave a shielded method; raise an interrupt that came meanwhile after the outermost."""
        with self._lock:
            self._depth -= 1
            if not self._depth:
                self.check()

    def check(self) -> None:
        """Raise an interrupt that came within a shielded method."""
        late, self._late = self._late, None
        if late is not None:
            raise late

    def _recall(self) -> bool:
        """Take back an interrupt that was sent and not raised; return whether there was one."""
        was_sent, self._is_sent = self._is_sent, False
        if was_sent:
            _raise_in(self._thread, None)
        return was_sent


class _Here(threading.local):
    #: The calls of handlers that this thread makes, if another one may interrupt them.
    calls: Interruptible | None = None


_here = _Here()


def bind(calls: Interruptible | None) -> Interruptible | None:
    """Make *calls* those of this thread; return those that were."""
    before, _here.calls = _here.calls, calls
    if calls is not None:
        calls._thread = threading.get_ident()
    return before


def here() -> Interruptible | None:
    """Return the calls of handlers that this thread makes, if they can be interrupted."""
    return _here.calls


def check() -> None:
    """Raise an interrupt that has come: for code that waits, and where nothing is half done."""
    if _here.calls is not None:
        _here.calls.check()


def shielded(cls: _Class) -> _Class:
    """Shield the public methods of a class: a decorator."""
    for name, member in list(vars(cls).items()):
        if name.startswith("_") and name not in ("__enter__", "__exit__"):
            continue
        if isinstance(member, FunctionType):
            setattr(cls, name, _shielded(member))
        elif isinstance(member, classmethod):
            setattr(cls, name, classmethod(_shielded(member.__func__)))
    return cls


def _shielded(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*arguments: Any, **options: Any) -> Any:
        calls = _here.calls
        if calls is None or not (calls._is_open or calls._is_sent):
            return method(*arguments, **options)
        calls.enter()
        try:
            return method(*arguments, **options)
        finally:
            calls.leave()

    return call


def _raise_in(thread: int | None, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread or 0), None if error is None else ctypes.py_object(error)
    )
