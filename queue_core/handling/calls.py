"""The calls of a handler for a batch of messages, one after another, and the outcomes they decide.

The decisions are those of IgnisMQ: true deletes, false and an exception sideline, an ignorable
exception deletes. A result that is not a decision sidelines too. A handler that returns nothing is
refused (`results`): then no further call is made, and the other messages are reloaded. A message
that cannot be read is sidelined, and no handler sees it. `Later` reloads the message for a time.

Another thread can time out a call that takes too long, and continue with the rest. The result of
the late call then no longer counts.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Sequence
from math import nan
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np
import pyarrow as pa

from queue_core.handling.deadline import finish
from queue_core.handling.gate import COUNTED
from queue_core.handling.objects.python_rows import Unreadable
from queue_core.handling.output import Given, joined
from queue_core.handling.payloads import Call
from queue_core.handling.results import Later
from queue_core.handling.traces import Tracer
from queue_core.handling.verdicts import CallOutcome, Verdicts, of_error
from queue_core.support import faults
from queue_core.support.interruption import TimedOut
from queue_core.values.failure_kinds import EXCEPTION, REJECTED, TIMEOUT, UNDECIDED, UNREADABLE
from queue_core.values.outcomes import DELETE, OUTCOMES, RELOAD, SIDELINE, UNHANDLED

if TYPE_CHECKING:
    from queue_core.handling.handler import HandlerRunner

#: The outcome of one call: of one message, or of all of a batch.
Outcome = TypeVar("Outcome")

_log = logging.getLogger(__name__)


class Superseded(BaseException):
    """Another thread has taken over. Not an `Exception`, because the handler did not raise it."""


class Uncommitted(BaseException):
    """The transaction of a call was rolled back. Not an `Exception`: no handler may ignore it."""


#: The bytes of the messages of a part; a smaller batch is one part.
PART_BYTES = 1 << 20
#: Errors that do not come from the handler. Any other error only fails its messages: the process
#: and the pool go on.
_NOT_ITS_OWN = (Superseded, faults.InjectedFault)
DELETED = CallOutcome(DELETE)
RELOADED = CallOutcome(RELOAD)
#: No handler was called for it.
NOT_CALLED = CallOutcome(RELOAD, UNHANDLED)


class HandlerCalls(ABC, Generic[Outcome]):
    """The calls of a handler for one batch, made one after another. Thread-safe."""

    def __init__(self, count: int, runner: HandlerRunner) -> None:
        self._count = count
        self._runner = runner
        #: The results of the handler so far, in all its batches.
        self.results = runner.results
        #: The queue for the rows that the handler returns, if it has one.
        self.output = runner.output
        #: The gate of the handler's circuit breaker, if it has one.
        self.gate = runner.gate
        #: Whether the handler may put messages off.
        self.may_put_off = runner.may_put_off
        self._lock = threading.Lock()
        #: How many calls have an outcome, which is also the number of the call in progress.
        self.completed = 0
        #: How many calls have begun, and when the last one did.
        self._begun = 0
        self._began_at = 0.0
        #: The seconds of each call; nan: it was not made.
        self.seconds = array("d", [nan]) * count
        #: Incremented when another thread takes over.
        self._takeovers = 0
        #: Whether a call took too long, or the handler says so of a message.
        self.timed_out = False
        #: Makes the traces of exceptions.
        self.tracer: Tracer | None = None

    def run(self, handle: Callable[..., Any]) -> None:
        """Make the remaining calls; raises `Superseded` when another thread has taken over."""
        takeovers = self._takeovers
        while self.completed < self._count:
            self._begun = self.completed + 1
            admitted = self.gate is None or self.gate.admits()
            self._began_at = perf_counter()
            if admitted:
                outcome = self._call(handle, self.completed)
                took = perf_counter() - self._began_at
            else:
                took = nan
                outcome = self._same(NOT_CALLED)
            with self._lock:
                if self._takeovers != takeovers:
                    raise Superseded
                self._store(self.completed, outcome)
                self.seconds[self.completed] = took
                self.completed += 1
            if self.gate is not None and admitted:
                self.gate.note(*self._tally(outcome))
            if self.results.refused:
                self.cancel()

    def time_out(self, number: int, reason: str, trace: str | None = None) -> bool:
        """Time out the call of that number, which is at *trace*; False when it has ended."""
        with self._lock:
            if self.completed != number or number == self._count:
                return False
            self._takeovers += 1
            self.seconds[number] = perf_counter() - self._began_at
            outcome = self._same(CallOutcome(SIDELINE, TIMEOUT, reason, trace=trace))
            self._store(number, outcome)
            self.completed += 1
        if self.gate is not None:
            self.gate.note(*self._tally(outcome))
        return True

    def cancel(self) -> bool:
        """Make no further call, and reload the undecided messages; False if there are none."""
        with self._lock:
            if self.completed == self._count:
                return False
            self._takeovers += 1
            while self.completed < self._count:
                made = RELOADED if self._begun > self.completed else NOT_CALLED
                self._store(self.completed, self._same(made))
                self.completed += 1
            return True

    def of_error(self, error: BaseException) -> CallOutcome:
        """Return the outcome of a message for which the handler has raised or returned an error."""
        contract = self._runner.contract
        made = of_error(error, contract.ignorable, contract.retry)
        trace = self._trace(error) if made.outcome == SIDELINE and made.kind == EXCEPTION else None
        return made if trace is None else made._replace(trace=trace)

    def _failed(self, error: BaseException) -> CallOutcome:
        """Return the outcome of a call that has raised an error; raises one that is not its own."""
        if isinstance(error, Later):
            if not self.put_off():
                return RELOADED
            _log.debug("a handler put messages off %s", error)
        elif isinstance(error, Uncommitted | TimedOut):
            kind = TIMEOUT if isinstance(error, TimedOut) else EXCEPTION
            return CallOutcome(SIDELINE, kind, str(error), trace=self._trace(error))
        elif isinstance(error, _NOT_ITS_OWN):
            raise error
        is_main = threading.current_thread() is threading.main_thread()
        if isinstance(error, KeyboardInterrupt) and is_main:
            # A person has pressed Ctrl-C, which Python raises in the main thread.
            raise error
        return self.of_error(error)

    def put_off(self) -> bool:
        """Note that the handler puts messages off; return whether it may."""
        return self.may_put_off or self.results.refuse_to_put_off()

    def _trace(self, error: BaseException) -> str | None:
        return None if self.tracer is None else self.tracer.trace_of(error)

    @property
    @abstractmethod
    def verdicts(self) -> Verdicts:
        """The outcomes of all messages, once all calls are made."""

    @property
    @abstractmethod
    def given(self) -> list[Given]:
        """The rows of deleted messages for the output queue, with the numbers of the messages."""

    @abstractmethod
    def release(self) -> None:
        """Drop the arguments of the calls, once all are made."""

    @abstractmethod
    def _call(self, handle: Callable[..., Any], number: int) -> Outcome: ...

    @abstractmethod
    def _store(self, number: int, outcome: Outcome) -> None: ...

    @abstractmethod
    def _same(self, made: CallOutcome) -> Outcome:
        """Return the outcome of a call whose messages all have the same one."""

    @abstractmethod
    def _tally(self, outcome: Outcome) -> tuple[int, int]:
        """Return how many calls an outcome stands for, and how many of them failed."""


class MessageCalls(HandlerCalls[CallOutcome]):
    """One call per message."""

    def __init__(self, calls: Sequence[Call] | CallParts, runner: HandlerRunner) -> None:
        super().__init__(len(calls), runner)
        self._calls = calls
        self._outcomes: list[CallOutcome] = [NOT_CALLED] * len(calls)
        #: The numbers of deleted messages with rows for the output queue, and the rows.
        self._rows: list[tuple[int, Any]] = []

    @property
    def verdicts(self) -> Verdicts:
        """The outcomes as columns."""
        return MessageCalls.joint_verdicts([self])

    @staticmethod
    def joint_verdicts(handled: Sequence[MessageCalls]) -> Verdicts:
        """Return the outcomes of several batches, one after another, as columns."""
        return Verdicts.of([outcome for calls in handled for outcome in calls._outcomes])

    @property
    def given(self) -> list[Given]:
        """The rows of all messages."""
        return joined(self._rows)

    def release(self) -> None:
        """Drop the rows or objects."""
        self._calls, self._rows = (), []

    def _call(self, handle: Callable[..., Any], number: int) -> CallOutcome:
        if self.results.refused:
            return NOT_CALLED
        call = self._calls[number]
        if isinstance(call[0], Unreadable):
            return CallOutcome(SIDELINE, UNREADABLE, call[0].reason)
        try:
            decision = handle(*call)
            if not isinstance(decision, bool | dict):
                decision = finish(decision)
            rows = None
            if self.output is not None:
                decision, rows = self.output.of_message(decision)
        except BaseException as error:  # noqa: BLE001 - libraries have their own, too
            return self._failed(error)
        if decision is None and self.results.none():
            return DELETED._replace(rows=rows)
        if self.output is not None and isinstance(decision, str) and decision in OUTCOMES:
            if decision == RELOAD:
                self.results.decided = True
                return RELOADED
            decision = decision == DELETE
        if not isinstance(decision, bool | np.bool_):
            returned = type(decision).__name__
            reason = f"not a bool: the handler returned {returned}"
            if isinstance(decision, BaseException):
                reason += "; raise it instead"
            # The work of a handler that is refused was done, and is not done again.
            return CallOutcome(SIDELINE, UNDECIDED, reason, dead=self.results.refused)
        self.results.decided = True
        if not decision:
            return CallOutcome(SIDELINE, REJECTED)
        return DELETED if rows is None else CallOutcome(DELETE, rows=rows)

    def _store(self, number: int, outcome: CallOutcome) -> None:
        if outcome.rows is not None:
            self._rows.append((number, outcome.rows))
            outcome = DELETED
        self._outcomes[number] = outcome
        if outcome.kind == TIMEOUT:
            self.timed_out = True

    def _same(self, made: CallOutcome) -> CallOutcome:
        return made

    def _tally(self, outcome: CallOutcome) -> tuple[int, int]:
        failed = outcome.outcome == SIDELINE and outcome.kind in COUNTED
        return int(outcome.kind != UNREADABLE), int(failed)


def in_parts(
    batch: pa.RecordBatch, make: Callable[[pa.RecordBatch], Sequence[Call]]
) -> Sequence[Call] | CallParts:
    """Return the arguments of the call for each message of a batch, which *make* makes."""
    # The exact size takes many times as long as its bound.
    is_small = batch.get_total_buffer_size() <= PART_BYTES or batch.nbytes <= PART_BYTES
    return make(batch) if is_small else CallParts(batch, make)


class CallParts:
    """
    The arguments of calls that are made one after another, by one thread at a time.

    Rows of Python take as much memory as the batch, or more. So only some of them are in memory at
    a time: those up to the call in progress are gone, and most of the later ones are not made yet.
    """

    def __init__(
        self, batch: pa.RecordBatch, make: Callable[[pa.RecordBatch], Sequence[Call]]
    ) -> None:
        self._batch = batch
        self._make = make
        self._rows = max(PART_BYTES * batch.num_rows // max(batch.nbytes, 1), 1)
        #: The number of the first call of the part, and its arguments.
        self._part: tuple[int, Sequence[Call]] = (0, ())

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def __getitem__(self, number: int, /) -> Call:
        first, calls = self._part
        if not first <= number < first + len(calls):
            # The part before it is gone first.
            del calls
            self._part = (number, ())
            first, calls = number, self._make(self._batch.slice(number, self._rows))
            self._part = first, calls
        return calls[number - first]
