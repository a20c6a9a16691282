"""Judging: calls of a handler, one after another, and what becomes of each message by them.

The decisions are those of IgnisMQ: true deletes, false and an exception sideline, an ignorable
exception deletes. What a handler gives that makes no sense sidelines too, so that nothing is lost
by a handler that forgets its `return`. What cannot be read is sidelined, and no handler sees it.

A call that takes too long can be given up by another thread, which goes on with the rest; whoever
has made that call then finds that its result is not wanted any more.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa

from queue_core.errors import BadOutcome
from queue_core.failure_kinds import (
    EXCEPTION,
    REJECTED,
    TIMEOUT,
    UNDECIDED,
    UNREADABLE,
    reason_of,
)
from queue_core.handlers.deadline import TimedOut
from queue_core.handlers.payloads import Call
from queue_core.handlers.python_rows import Unreadable
from queue_core.handlers.verdicts import Verdicts
from queue_core.outcomes import DELETE, RELOAD, SIDELINE

Ignored: TypeAlias = tuple[type[Exception], ...]


class Superseded(BaseException):
    """Another thread has given this call up. No `Exception`, as it is none of the handler's."""


class CallOutcome(NamedTuple):
    """What becomes of one message."""

    outcome: str
    kind: str | None = None
    reason: str | None = None


_DONE = CallOutcome(DELETE)
_LEFT = CallOutcome(RELOAD)


class Judging(ABC):
    """Some calls of a handler, of which one is being made."""

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._lock = threading.Lock()
        #: How many calls are done with: the number of the one that is being made.
        self.done = 0
        #: Grows when a call is given up.
        self._turn = 0

    def run(self, handle: Callable[..., Any]) -> None:
        """Make the calls that are left; raises `Superseded` when one of them was given up."""
        turn = self._turn
        while self.done < self._calls:
            verdict = self._judge(handle, self.done)
            with self._lock:
                if self._turn != turn:
                    raise Superseded
                self._note(self.done, verdict)
                self.done += 1

    def give_up(self, done: int, reason: str) -> bool:
        """The call of that number has taken too long; False when it is over by now."""
        with self._lock:
            if self.done != done or done == self._calls:
                return False
            self._turn += 1
            self._note(done, self._late(reason))
            self.done += 1
            return True

    def abandon(self) -> bool:
        """Make no further call: what is not decided goes back; False when all is decided."""
        with self._lock:
            if self.done == self._calls:
                return False
            self._turn += 1
            while self.done < self._calls:
                self._note(self.done, self._left())
                self.done += 1
            return True

    @property
    @abstractmethod
    def verdicts(self) -> Verdicts:
        """What becomes of the messages, when all calls are made."""

    @abstractmethod
    def _judge(self, handle: Callable[..., Any], number: int) -> Any: ...

    @abstractmethod
    def _note(self, number: int, verdict: Any) -> None: ...

    @abstractmethod
    def _late(self, reason: str) -> Any: ...

    @abstractmethod
    def _left(self) -> Any: ...


class OneByOne(Judging):
    """A call for each message."""

    def __init__(self, calls: Sequence[Call], ignorable: Ignored) -> None:
        super().__init__(len(calls))
        self._with = calls
        self._ignorable = ignorable
        self._verdicts: list[CallOutcome] = [_LEFT] * len(calls)

    @property
    def verdicts(self) -> Verdicts:
        """As columns."""
        columns = zip(*self._verdicts, strict=True) if self._verdicts else ((), (), ())
        return Verdicts(*(pa.array(texts, pa.string()) for texts in columns))

    def _judge(self, handle: Callable[..., Any], number: int) -> CallOutcome:
        call = self._with[number]
        if isinstance(call[0], Unreadable):
            return CallOutcome(SIDELINE, UNREADABLE, call[0].reason)
        try:
            decided = handle(*call)
        except self._ignorable as error:
            return CallOutcome(DELETE, EXCEPTION, reason_of(error))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return CallOutcome(SIDELINE, EXCEPTION, reason_of(error))
        except TimedOut as late:
            return self._late(str(late))
        if not isinstance(decided, bool | np.bool_):
            given = type(decided).__name__
            return CallOutcome(SIDELINE, UNDECIDED, f"not a bool: the handler returned {given}")
        return _DONE if decided else CallOutcome(SIDELINE, REJECTED)

    def _note(self, number: int, verdict: CallOutcome) -> None:
        self._verdicts[number] = verdict

    def _late(self, reason: str) -> CallOutcome:
        return CallOutcome(SIDELINE, TIMEOUT, reason)

    def _left(self) -> CallOutcome:
        return _LEFT


class AllAtOnce(Judging):
    """One call for all messages that can be read, if there are any."""

    def __init__(
        self, call: Call, count: int, ignorable: Ignored, unreadable: list[str | None] | None = None
    ) -> None:
        # No handler is called for nothing.
        super().__init__(1 if count else 0)
        self._with = call
        self._count = count
        self._ignorable = ignorable
        self._unreadable = unreadable
        self._verdicts = Verdicts.same(0, SIDELINE, None, None)

    @staticmethod
    def of(calls: Sequence[Call], ignorable: Ignored) -> AllAtOnce:
        """One call with lists of what single calls would be made with."""
        unreadable = [c[0].reason if isinstance(c[0], Unreadable) else None for c in calls]
        read = [call for call in calls if not isinstance(call[0], Unreadable)]
        lists = tuple(map(list, zip(*read, strict=True)))
        return AllAtOnce(lists, len(read), ignorable, unreadable)

    @property
    def verdicts(self) -> Verdicts:
        """Those of the handler, and between them those of what could not be read."""
        if self._unreadable is None:
            return self._verdicts
        return self._verdicts.among(self._unreadable)

    def _judge(self, handle: Callable[..., Any], _: int) -> Verdicts:
        try:
            decided = handle(*self._with)
        except self._ignorable as error:
            return self._same(DELETE, EXCEPTION, reason_of(error))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return self._same(SIDELINE, EXCEPTION, reason_of(error))
        except TimedOut as late:
            return self._late(str(late))
        try:
            return Verdicts.of_batch(decided, self._count)
        except BadOutcome as error:
            return self._same(SIDELINE, UNDECIDED, str(error))

    def _note(self, _: int, verdict: Verdicts) -> None:
        self._verdicts = verdict

    def _late(self, reason: str) -> Verdicts:
        return self._same(SIDELINE, TIMEOUT, reason)

    def _left(self) -> Verdicts:
        return self._same(RELOAD, None, None)

    def _same(self, outcome: str, kind: str | None, reason: str | None) -> Verdicts:
        return Verdicts.same(self._count, outcome, kind, reason)
