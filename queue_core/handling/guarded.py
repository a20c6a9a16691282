"""Calls of a handler that a circuit breaker guards: it watches them, and holds messages back.

A message that is held back is reloaded. In a batch, the messages of other keys are handled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.handling.breakers.gate import Gate
from queue_core.handling.breakers.keys import keys_of, listed
from queue_core.handling.breakers.tallies import COUNTED
from queue_core.handling.call_parts import Calls
from queue_core.handling.calls import CallOutcome, HandlerCalls, IgnorableClasses, MessageCalls
from queue_core.handling.results import Results
from queue_core.handling.verdicts import Verdicts
from queue_core.values.failure_kinds import UNREADABLE
from queue_core.values.outcomes import RELOAD, SIDELINE, UNHANDLED
from queue_core.values.retry import Retry


class GuardedCalls(MessageCalls):
    """One call per message that the gate admits."""

    def __init__(
        self,
        calls: Calls,
        ignorable: IgnorableClasses,
        results: Results,
        retry: Retry | None,
        gate: Gate,
        batch: pa.RecordBatch,
    ) -> None:
        super().__init__(calls, ignorable, results, retry)
        self._gate = gate
        self._keys = listed(batch, gate.by)
        #: The number of the last message that was admitted.
        self._admitted = -1

    def _call(self, handle: Callable[..., Any], number: int) -> CallOutcome:
        if not self._gate.admits(self._keys[number]):
            return self._reloaded(begun=False)
        self._admitted = number
        return super()._call(handle, number)

    def _store(self, number: int, outcome: CallOutcome) -> None:
        super()._store(number, outcome)
        if self._admitted == number:
            failed = outcome.outcome == SIDELINE and outcome.kind in COUNTED
            self._gate.note(self._keys[number], int(outcome.kind != UNREADABLE), int(failed))


class GuardedBatch:
    """
    The calls for the messages of a batch that the gate admits; has the methods of `HandlerCalls`.

    *calls_for* returns the calls for a part of the batch.
    """

    def __init__(
        self,
        batch: pa.RecordBatch,
        gate: Gate,
        calls_for: Callable[[pa.RecordBatch], HandlerCalls[Any]],
    ) -> None:
        self._gate = gate
        keys = keys_of(batch, gate.by)
        self._texts = keys.dictionary.to_pylist()
        admitted = np.array([gate.admits(key) for key in self._texts], dtype=bool)
        indices = keys.indices.to_numpy(zero_copy_only=False)
        #: Whether each message is admitted, and the keys of those that are.
        self._mask = admitted[indices]
        self._indices = indices[self._mask]
        self._calls = calls_for(batch.filter(pa.array(self._mask)))

    @property
    def results(self) -> Results:
        """The results of the handler so far."""
        return self._calls.results

    @property
    def completed(self) -> int:
        """How many calls have an outcome."""
        return self._calls.completed

    def run(self, handle: Callable[..., Any]) -> None:
        """Make the remaining calls."""
        open_before = self._calls.completed
        self._calls.run(handle)
        if self._calls.completed > open_before or not len(self._indices):
            self._note()

    def time_out(self, number: int, reason: str) -> bool:
        """Time out the call of that number; False when it has ended."""
        timed_out = self._calls.time_out(number, reason)
        if timed_out:
            self._note()
        return timed_out

    def cancel(self) -> bool:
        """Make no further call, and reload the undecided messages."""
        return self._calls.cancel()

    def release(self) -> None:
        """Drop the arguments of the calls."""
        self._calls.release()

    @property
    def verdicts(self) -> Verdicts:
        """The outcomes of all messages."""
        rows = np.cumsum(self._mask) - 1
        places = pa.array(rows, mask=~self._mask)
        made = self._calls.verdicts
        return Verdicts(
            made.outcomes.take(places).fill_null(RELOAD),
            pc.if_else(self._mask, made.kinds.take(places), UNHANDLED),
            made.reasons.take(places),
            {name: column.take(places) for name, column in made.waits.items()},
        )

    def _note(self) -> None:
        """Note how many messages of each key failed."""
        verdicts = self._calls.verdicts
        failed = pc.and_(
            pc.equal(verdicts.outcomes, SIDELINE),
            pc.is_in(verdicts.kinds, value_set=pa.array(COUNTED)),
        )
        failures = np.bincount(
            self._indices,
            weights=failed.fill_null(False).to_numpy(zero_copy_only=False),
            minlength=len(self._texts),
        )
        calls = np.bincount(self._indices, minlength=len(self._texts))
        for key, made, bad in zip(self._texts, calls.tolist(), failures.tolist(), strict=True):
            if made:
                self._gate.note(key, made, int(bad))
