"""Handlers, which users write: their messages and their settlements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from queue_core.handling.batch_call import BatchCall
from queue_core.handling.breaker import Breaker
from queue_core.handling.calls import HandlerCalls, MessageCalls, in_parts
from queue_core.handling.deadline import Deadline
from queue_core.handling.gate import STOPPED, Gate
from queue_core.handling.objects.python_rows import rows_of
from queue_core.handling.output import OUTPUT, Output, failed, fitted, packed
from queue_core.handling.payloads import Call
from queue_core.handling.results import REFUSAL, Results
from queue_core.handling.took import TOOK, CallTimes, took_column
from queue_core.handling.traces import Tracer
from queue_core.handling.verdicts import SETTLEMENT, Verdicts
from queue_core.values.schema import stored

if TYPE_CHECKING:
    from queue_core.handling.contract import Contract

#: Takes one message: a dict of its columns, or its payload and, if requested, the other columns. It
#: returns True if the message is done.
RowHandler: TypeAlias = Callable[..., bool]
#: Takes many messages, and returns the verdicts of all of them in their order (`batch_handler`).
BatchHandler: TypeAlias = Callable[..., Any]

#: The column that says to which queue a message belongs.
QUEUE = "_queue"
_MARK = "ignis_batch_handler"
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def batch_handler(handler: _Handler) -> _Handler:
    """
    Mark a handler that takes record batches instead of single messages.

    Without a payload, the handler takes one ``pyarrow.RecordBatch``. With a payload, it takes a
    list of the objects, and with ``with_metadata=True`` also a list of dicts with the other
    columns. Messages that cannot be read are left out. If the handler raises, the exception counts
    for all messages of the batch.

    Args:
        handler: Returns one verdict per message, in order. Either booleans (a pyarrow or numpy
            array, or a list), true to delete the message and false to sideline it; a list can also
            have `Later`, `Reject` or another exception for a message. Or a RecordBatch or Table, or
            a dict of lists or a list of dicts, with the column ``outcome`` (``delete``,
            ``sideline`` or ``reload``) and, optionally, the text columns ``kind`` and ``reason``,
            which say why it was sidelined, the column ``_message_id``, with which the rows may be
            in any order, and the columns ``not_before``, ``delay`` and ``dead`` of `Settlement.of`,
            which say when it is tried again. A null is no decision about its message, as None of a
            handler of single messages.

    Returns:
        The same handler, or a wrapper of one that cannot be marked, such as a bound method.
    """
    try:
        setattr(handler, _MARK, True)
    except AttributeError:
        # Bound methods and builtins have no attributes to set.
        marked: Any = partial(handler)
        setattr(marked, _MARK, True)
        return marked  # type: ignore[no-any-return]
    return handler


def takes_batches(handler: Callable[..., Any]) -> bool:
    """Return whether a handler was marked by `batch_handler`."""
    marked = getattr(handler, _MARK, False) is True
    return marked or (isinstance(handler, partial) and takes_batches(handler.func))


@dataclass(frozen=True, slots=True)
class HandlerRunner:
    """Runs the handler of a contract on batches of messages, and returns their `SETTLEMENT`."""

    contract: Contract
    #: Seconds that one call of the handler may take, by the contract or a queue; None for no limit.
    timeout: float | None = None
    #: The gate of its circuit breaker.
    gate: Gate | None = None
    #: The queue for the rows that the handler returns, if it has one.
    output: Output | None = None
    #: In a task of Spark, the breaker itself: each task has a gate of its own.
    breaker: Breaker | None = None
    #: Whether messages can wait for a time: not those of a sideline, which are fired before it.
    may_put_off: bool = True
    #: The results so far. `dataclasses.replace` makes a runner without any.
    results: Results = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Begin without results."""
        object.__setattr__(self, "results", Results(self.contract.on_none))

    def run(self, batches: Iterable[pa.RecordBatch], queue: str = "") -> Iterator[pa.RecordBatch]:
        """
        Handle batch after batch, in a process's main thread; yield their settlements.

        With an output, the column `OUTPUT` has the rows for it. The column `TOOK` says how long the
        calls took; *queue*: the name of the queue, empty for the only one.
        """
        tracer = Tracer()
        with ExitStack() as stack:
            handle = self.contract.handler
            if self.timeout is not None:
                handle = partial(stack.enter_context(Deadline(self.timeout)).call, handle)
            for batch in batches:
                if batch.num_rows:
                    calls = self.calls_for(batch)
                    calls.tracer = tracer
                    calls.run(handle)
                    settled = settlement_rows(batch.column("_message_id"), calls.verdicts)
                    if self.output is not None:
                        settled = self._with_output(settled, calls)
                    times = CallTimes(calls.seconds, batch.num_rows)
                    yield settled.append_column(TOOK, took_column(settled, times, queue))

    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """
        Do the same with the column `REFUSAL`: the function for `mapInArrow`.

        With a breaker, the column `STOPPED` says whether the task makes no further calls.
        """
        gate = None if self.breaker is None else Gate(self.breaker)
        runner = replace(self, gate=gate)
        for settled in runner.run(map(stored, batches)):
            refusal = pa.repeat(pa.scalar(runner.refusal, pa.string()), settled.num_rows)
            noted = settled.append_column(REFUSAL, refusal)
            if gate is not None:
                noted = noted.append_column(STOPPED, pa.repeat(gate.stopped, settled.num_rows))
            yield noted

    def _with_output(self, settled: pa.RecordBatch, calls: HandlerCalls[Any]) -> pa.RecordBatch:
        assert self.output is not None
        rows, failures = fitted(calls.given, self.output.conformed)
        if failures:
            table = failed(pa.Table.from_batches([settled]), failures, self.contract.retry)
            (settled,) = table.combine_chunks().to_batches()
        data = None if rows is None else packed(rows, settled.column("_message_id"))
        nothing = [None] * (settled.num_rows - 1)
        return settled.append_column(OUTPUT, pa.array([data, *nothing], pa.binary()))

    @property
    def refusal(self) -> str | None:
        """Why the handler is refused, if it is."""
        return self.results.refusal(self.contract.handler)

    def calls_for(self, batch: pa.RecordBatch) -> HandlerCalls[Any]:
        """Return the calls to make for a batch."""
        if not takes_batches(self.contract.handler):
            return MessageCalls(in_parts(batch, self._single_calls), self)
        if self.contract.payload is None:
            return BatchCall((batch,), batch.num_rows, self)
        return BatchCall.of(self._single_calls(batch), self)

    def _single_calls(self, batch: pa.RecordBatch) -> list[Call]:
        """Return the arguments of the call for each message."""
        payload = self.contract.payload
        return list(zip(rows_of(batch))) if payload is None else payload.calls(batch)


@dataclass(frozen=True, slots=True)
class RunnerByQueue:
    """Runs the handler of each message's queue, as `HandlerRunner` runs the one of all messages."""

    #: By the name of the queue; each contract has the columns that its handler is given.
    runners: Mapping[str, HandlerRunner]

    def run_task(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle batch after batch, in a process's main thread: the function for `mapInArrow`."""
        # New runners, because a handler's first result in a task decides whether it is refused.
        runners = {name: replace(each) for name, each in self.runners.items()}
        for batch in map(stored, batches):
            for name, part in _parts(batch):
                runner = runners[name]
                for settled in runner.run([part.select(runner.contract.columns)], queue=name):
                    refusal = runner.refusal
                    why = None if refusal is None else f"queue {name!r}: {refusal}"
                    noted = pa.repeat(pa.scalar(why, pa.string()), settled.num_rows)
                    yield settled.append_column(REFUSAL, noted)


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split a batch by the queue of its messages; each part keeps their order."""
    queues = batch.column(QUEUE)
    names = pc.unique(queues).to_pylist()
    for name in names:
        yield name, batch if len(names) == 1 else batch.filter(pc.equal(queues, name))


def settlement_rows(ids: pa.Array, verdicts: Verdicts) -> pa.RecordBatch:
    """Return the `SETTLEMENT` of messages with their verdicts."""
    return pa.RecordBatch.from_arrays([ids, *verdicts.columns], schema=SETTLEMENT)
