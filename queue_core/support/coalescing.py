"""Coalescing: several threads request the same kind of work, and one of them does it for all.

A thread that finds no other at work does the work for all threads that have requested it by then.
Threads that come meanwhile wait, and the first of them works next. So one transaction serves all
waiting threads, and a single thread never waits. Databases call this group commit.

The main thread works for itself alone: Ctrl-C, or the handler of another signal, may interrupt it
anywhere, and load too. ignis interrupts no other thread here (`queue_core.support.interruption`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

Request = TypeVar("Request")
Result = TypeVar("Result")


class _Asked(Generic[Request, Result]):
    __slots__ = ("done", "error", "request", "result", "woken")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.result: Result | None = None
        self.error: BaseException | None = None
        self.done = False
        self.woken = threading.Event()


class Coalescer(Generic[Request, Result]):
    """
    Calls *work* with several requests at once, as a function of one request.

    Args:
        work: Returns one result per request, in order, or raises for all of them.
        exclusion: Held while *work* runs; coalescers that share it run one at a time.
    """

    def __init__(
        self,
        work: Callable[[list[Request]], Sequence[Result]],
        exclusion: AbstractContextManager[object],
    ) -> None:
        self._work = work
        self._exclusion = exclusion
        self._lock = threading.Lock()
        self._waiting: list[_Asked[Request, Result]] = []
        self._has_leader = False

    def __call__(self, request: Request) -> Result:
        """Wait for the result of a request, and return it."""
        if threading.current_thread() is threading.main_thread():
            with self._exclusion:
                return self._work([request])[0]
        own: _Asked[Request, Result] = _Asked(request)
        with self._lock:
            self._waiting.append(own)
            if not self._has_leader:
                own.woken.set()
            self._has_leader = True
        try:
            own.woken.wait()
        finally:
            # Even if a library interrupts this thread: once it is to lead, others wait for it.
            own.woken.wait()
            if not own.done:
                self._lead()
        if own.error is not None:
            raise own.error
        return own.result  # type: ignore[return-value]

    def _lead(self) -> None:
        with self._exclusion:
            with self._lock:
                calls, self._waiting = self._waiting, []
            try:
                results = self._work([call.request for call in calls])
                for call, result in zip(calls, results, strict=True):
                    call.result = result
            except BaseException as error:  # noqa: BLE001 - each of the calls raises it
                for call in calls:
                    call.error = error
        with self._lock:
            next_leader = self._waiting[0] if self._waiting else None
            self._has_leader = next_leader is not None
        for call in calls:
            call.done = True
            call.woken.set()
        if next_leader is not None:
            next_leader.woken.set()
