"""The call of a handler of batches: one for all messages that can be read.

Its decisions are those of single calls, `calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOutcome
from queue_core.handling.calls import DELETED, NOT_CALLED, HandlerCalls
from queue_core.handling.deadline import finish
from queue_core.handling.gate import failures_of
from queue_core.handling.objects.python_rows import Unreadable
from queue_core.handling.output import Given, only
from queue_core.handling.payloads import Call
from queue_core.handling.verdicts import CallOutcome, Verdicts
from queue_core.values.failure_kinds import TIMEOUT, UNDECIDED
from queue_core.values.outcomes import DELETE, SIDELINE

if TYPE_CHECKING:
    from queue_core.handling.handler import HandlerRunner


class BatchCall(HandlerCalls[Verdicts]):
    """One call for all messages that can be read, if there are any."""

    def __init__(
        self,
        call: Call,
        messages: int,
        runner: HandlerRunner,
        unreadable: list[str | None] | None = None,
    ) -> None:
        # A handler is not called for an empty batch.
        super().__init__(1 if messages else 0, runner)
        self._arguments = call
        self._messages = messages
        self._unreadable = unreadable
        self._verdicts = Verdicts.same(0, SIDELINE, None, None)

    @staticmethod
    def of(calls: Sequence[Call], runner: HandlerRunner) -> BatchCall:
        """Return one call, with lists of the arguments of the single calls."""
        unreadable = [c[0].reason if isinstance(c[0], Unreadable) else None for c in calls]
        read = [call for call in calls if not isinstance(call[0], Unreadable)]
        lists = tuple(map(list, zip(*read, strict=True)))
        return BatchCall(lists, len(read), runner, unreadable)

    @property
    def _ids(self) -> pa.Array | None:
        """The ids of the messages of the call, if the handler sees them as columns."""
        batch = self._arguments[0]
        if isinstance(batch, pa.RecordBatch) and "_message_id" in batch.schema.names:
            return batch.column("_message_id")
        return None

    @property
    def verdicts(self) -> Verdicts:
        """The handler's verdicts, and in their places those of unreadable messages."""
        if self._unreadable is None:
            return self._verdicts
        return self._verdicts.among(self._unreadable)

    @property
    def given(self) -> list[Given]:
        """The rows that the handler has returned."""
        verdicts = self._verdicts
        if not verdicts.given:
            return []
        deleted = pc.equal(verdicts.outcomes, DELETE).to_numpy(zero_copy_only=False)
        given = [only(each, deleted[each.numbers]) for each in verdicts.given]
        if self._unreadable is None:
            return given
        readable = np.array([n for n, why in enumerate(self._unreadable) if why is None], int)
        return [each._replace(numbers=readable[each.numbers]) for each in given]

    def release(self) -> None:
        """Drop the batch or the objects."""
        self._arguments = ()
        self._verdicts = self._verdicts._replace(given=())

    def _call(self, handle: Callable[..., Any], _: int) -> Verdicts:
        if self.results.refused:
            return self._same(NOT_CALLED)
        given: list[Given] = []
        try:
            decisions = finish(handle(*self._arguments))
            if self.output is not None:
                decisions, given = self.output.of_batch(decisions, self._messages, self._ids)
        except BaseException as error:  # noqa: BLE001 - libraries have their own, too
            return self._same(self._failed(error))
        if _decides_nothing(decisions):
            # As if a function without a return were called for each message.
            decisions = None
        if decisions is None and self.results.none():
            return self._same(DELETED)
        try:
            on_none = self.results.on_none
            verdicts = Verdicts.of_batch(
                decisions, self._messages, on_none, self._ids, self.of_error
            )
        except BadOutcome as error:
            dead = self.results.refused
            return self._same(CallOutcome(SIDELINE, UNDECIDED, str(error), dead=dead))
        self.results.decided = True
        if verdicts.put_off and not self.put_off():
            verdicts = verdicts.at_once()
        return verdicts._replace(given=given) if given else verdicts

    def _store(self, _: int, outcome: Verdicts) -> None:
        self._verdicts = outcome
        self.timed_out = pc.index(outcome.kinds, TIMEOUT).as_py() >= 0

    def _tally(self, outcome: Verdicts) -> tuple[int, int]:
        return self._messages, failures_of(outcome.outcomes, outcome.kinds)

    def _same(self, made: CallOutcome) -> Verdicts:
        times = {"delay": made.delay, "dead": made.dead}
        same = Verdicts.same(self._messages, made.outcome, made.kind, made.reason, **times)
        return same.traced(made.trace)


def _decides_nothing(decisions: Any) -> bool:
    """Whether a list has nothing but None. A null in an array is a decision about its message."""
    if not isinstance(decisions, list | tuple) or not decisions or decisions[0] is not None:
        return False
    return not any(each is not None for each in decisions)
