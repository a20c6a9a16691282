"""The verdicts of a handler as columns: outcome, kind, reason and time of each message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from queue_core.errors import BadOutcome
from queue_core.handling.results import Later, Reject
from queue_core.values import waits
from queue_core.values.failure_kinds import (
    EXCEPTION,
    REJECTED,
    UNDECIDED,
    UNREADABLE,
    check_kind,
    reason_of,
)
from queue_core.values.names import nearest
from queue_core.values.outcomes import DELETE, OUTCOMES, RELOAD, SIDELINE, check_once
from queue_core.values.retry import Retry
from queue_core.values.valid_text import valid

#: The columns that a settle sink takes. Of the deleted messages only the ignored ones have a kind.
SETTLEMENT = pa.schema(
    [
        ("_message_id", pa.int64()),
        ("outcome", pa.string()),
        ("kind", pa.string()),
        ("reason", pa.string()),
        *waits.COLUMNS.items(),
        #: Of some of the messages whose handler raised an exception.
        ("trace", pa.string()),
    ]
)


class CallOutcome(NamedTuple):
    """The outcome of one message."""

    outcome: str
    kind: str | None = None
    reason: str | None = None
    #: For how many seconds it waits; None: as the policy says.
    delay: float | None = None
    #: Whether it is not tried again.
    dead: bool = False
    #: The rows that its handler gives to the output queue, if any.
    rows: Any = None
    #: The trace of its exception, if it is due.
    trace: str | None = None


def of_error(
    error: BaseException, ignorable: tuple[type[Exception], ...], retry: Retry | None
) -> CallOutcome:
    """Return the outcome of a message whose handler has raised an error, or returned it."""
    if isinstance(error, Later):
        return CallOutcome(RELOAD, delay=error.seconds)
    if isinstance(error, Reject):
        return CallOutcome(SIDELINE, REJECTED, error.reason, dead=True)
    if isinstance(error, ignorable):
        return CallOutcome(DELETE, EXCEPTION, reason_of(error))
    dead = retry is not None and not retry.retries_error(error)
    return CallOutcome(SIDELINE, EXCEPTION, reason_of(error), dead=dead)


class Verdicts(NamedTuple):
    """The outcomes of some messages, with the reasons."""

    outcomes: pa.Array
    kinds: pa.Array
    reasons: pa.Array
    #: `waits.COLUMNS` that have a value, by their names: when messages are due again.
    waits: Mapping[str, pa.Array] = MappingProxyType({})
    #: The rows that the handler gives to the output queue (`queue_core.handling.output.Given`).
    given: Sequence[Any] = ()
    #: The ends of the traces of exceptions; None: there are none.
    traces: pa.Array | None = None

    @property
    def columns(self) -> list[pa.Array]:
        """The columns of `SETTLEMENT` after the id."""
        count = len(self.outcomes)
        nothing = {name: pa.nulls(count, kind) for name, kind in waits.COLUMNS.items()}
        traces = pa.nulls(count, pa.string()) if self.traces is None else self.traces
        times = (nothing | dict(self.waits)).values()
        return [self.outcomes, self.kinds, self.reasons, *times, traces]

    @staticmethod
    def same(
        count: int,
        outcome: str,
        kind: str | None = None,
        reason: str | None = None,
        **given: float | bool | None,
    ) -> Verdicts:
        """Return the same verdict for *count* messages; *given*: values of `waits.COLUMNS`."""
        texts = (pa.scalar(text, pa.string()) for text in (outcome, kind, reason))
        outcomes, kinds, reasons = (pa.repeat(text, count) for text in texts)
        times = {
            name: pa.repeat(pa.scalar(value, waits.COLUMNS[name]), count)
            for name, value in given.items()
            if value is not None and value is not False
        }
        return Verdicts(outcomes, kinds, reasons, times)

    @staticmethod
    def of(made: Sequence[CallOutcome]) -> Verdicts:
        """Return the outcomes of single messages as columns."""
        columns = list(zip(*made, strict=True)) if made else [()] * 7
        outcomes, kinds, reasons = (pa.array(column, pa.string()) for column in columns[:3])
        delays, dead, _, traces = columns[3:]
        has_none = traces.count(None) == len(traces)
        kept = None if has_none else pa.array(traces, pa.string())
        if not any(dead) and all(delay is None for delay in delays):
            return Verdicts(outcomes, kinds, reasons, traces=kept)
        times = {"delay": pa.array(delays, pa.float64()), "dead": pa.array(dead)}
        return Verdicts(outcomes, kinds, reasons, times, traces=kept)

    @staticmethod
    def of_batch(
        result: Any,
        count: int,
        on_none: str | None = None,
        ids: pa.Array | None = None,
        raised: Callable[[BaseException], CallOutcome] = lambda error: of_error(error, (), None),
    ) -> Verdicts:
        """
        Read the result of a batch handler for *count* messages; raises `BadOutcome`.

        *on_none* is the outcome of a message whose decision is null, by default the sideline. With
        *ids*, the rows of a table that has ids may be in any order. *raised* gives the outcome of
        an exception in a list.
        """
        if isinstance(result, list | tuple) and any(
            isinstance(e, BaseException | str) for e in result
        ):
            return _of_list(result, count, on_none, raised)
        is_rows = isinstance(result, list) and result and isinstance(result[0], Mapping)
        if is_rows or isinstance(result, Mapping):
            result = _as_table(result)
        if isinstance(result, pa.RecordBatch | pa.Table):
            check_once(result.schema.names, "the batch handler's table")
            if ids is not None and "_message_id" in result.schema.names:
                result = _in_order(result, ids)
            return _of_table(result, count, on_none)
        decisions = _booleans(result, count)
        done = decisions.fill_null(on_none == DELETE)
        outcomes = pc.if_else(done, DELETE, SIDELINE)
        kinds = pc.if_else(done, _NONE, pc.if_else(decisions.is_valid(), REJECTED, UNDECIDED))
        return Verdicts(outcomes, kinds, pa.nulls(count, pa.string()))

    def traced(self, trace: str | None) -> Verdicts:
        """Return the same verdicts of one call, with the trace of its exception."""
        if trace is None or not len(self.outcomes):
            return self
        return self._replace(traces=pa.array([trace, *[None] * (len(self.outcomes) - 1)]))

    def among(self, unreadable: list[str | None]) -> Verdicts:
        """
        Insert the verdicts of the messages that cannot be read.

        *unreadable* holds one entry per message: why it cannot be read, or None if it can.
        """
        reasons = pa.array(unreadable, pa.string())
        readable = reasons.is_null()
        rows = np.cumsum(readable.to_numpy(zero_copy_only=False)) - 1
        rows = pa.array(rows, mask=reasons.is_valid().to_numpy(zero_copy_only=False))
        return Verdicts(
            pc.if_else(readable, self.outcomes.take(rows), SIDELINE),
            pc.if_else(readable, self.kinds.take(rows), UNREADABLE),
            pc.if_else(readable, self.reasons.take(rows), reasons),
            {name: column.take(rows) for name, column in self.waits.items()},
            traces=None if self.traces is None else self.traces.take(rows),
        )

    @property
    def put_off(self) -> bool:
        """Whether some messages are reloaded for a time to come."""
        reloaded = pc.equal(self.outcomes, RELOAD)
        return any(
            pc.any(pc.and_(reloaded, times.is_valid()), min_count=0).as_py()
            for name, times in self.waits.items()
            if name != "dead"
        )

    def at_once(self) -> Verdicts:
        """Return the same outcomes without times."""
        return self._replace(waits={n: each for n, each in self.waits.items() if n == "dead"})


def _of_list(
    decisions: Sequence[Any],
    count: int,
    on_none: str | None,
    raised: Callable[[BaseException], CallOutcome],
) -> Verdicts:
    """Return the verdicts of a list with one entry for each message; raises `BadOutcome`."""
    made = []
    for each in decisions:
        if isinstance(each, BaseException):
            made.append(raised(each))
        elif isinstance(each, bool | np.bool_):
            made.append(CallOutcome(DELETE) if each else CallOutcome(SIDELINE, REJECTED))
        elif each is None:
            deleted = on_none == DELETE
            made.append(CallOutcome(DELETE) if deleted else CallOutcome(SIDELINE, UNDECIDED))
        elif isinstance(each, str) and each in OUTCOMES:
            made.append(CallOutcome(each, REJECTED if each == SIDELINE else None))
        else:
            raise BadOutcome(
                f"the batch handler gave {each!r} for a message{nearest(str(each), OUTCOMES)}; "
                f"give True, False, {', '.join(OUTCOMES)}, Later, Reject or another exception"
            )
    if len(made) != count:
        raise BadOutcome(f"the batch handler gave {len(made)} outcomes for {count} messages")
    return Verdicts.of(made)


def _as_table(result: Any) -> pa.Table:
    """Return a table of outcomes that is given as dicts; raises `BadOutcome`."""
    columns = dict(result) if isinstance(result, Mapping) else {}
    if not columns:
        names = dict.fromkeys(name for row in result for name in row)
        columns = {name: [row.get(name) for row in result] for name in names}
    try:
        return pa.table(columns)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadOutcome(f"the batch handler's outcomes cannot be a table: {error}") from error


# Not pa.scalar(None): it imports pandas, which would delay each command of `ignis`.
_NONE = pa.nulls(1, pa.string())[0]


def _in_order(result: pa.RecordBatch | pa.Table, ids: pa.Array) -> pa.RecordBatch | pa.Table:
    """Return the rows of a table in the order of the messages; raises `BadOutcome`."""
    given = _array(result.column("_message_id"), "_message_id", len(ids))
    if given.type != pa.int64():
        raise BadOutcome(f"the batch handler's _message_id column is {given.type}, not int64")
    if given.equals(ids):
        return result
    rows = pc.index_in(ids, value_set=given)
    if rows.null_count:
        missing = ids.filter(rows.is_null())[0]
        raise BadOutcome(
            f"the batch handler's table has ids, and no row for message {missing}; give one row "
            "for each message of the batch, or leave the ids out and keep the order"
        )
    return result.take(rows)


def _of_table(
    result: pa.RecordBatch | pa.Table, count: int, on_none: str | None = None
) -> Verdicts:
    names = result.schema.names
    if "outcome" not in names:
        raise BadOutcome(
            f"the batch handler's table has no column 'outcome'{nearest('outcome', names)}"
        )
    outcomes = _strings(result.column("outcome"), "outcome", count)
    undecided = outcomes.is_null()
    outcomes = outcomes.fill_null(DELETE if on_none == DELETE else SIDELINE)
    if not pc.all(pc.is_in(outcomes, value_set=pa.array(OUTCOMES)), min_count=0).as_py():
        raise BadOutcome(
            f"the batch handler gave an outcome that is not one of {', '.join(OUTCOMES)}"
        )
    kinds, reasons = (
        _strings(result.column(name), name, count)
        if name in names
        else pa.nulls(count, pa.string())
        for name in ("kind", "reason")
    )
    failed = pc.equal(outcomes, SIDELINE)
    kinds = pc.if_else(undecided, UNDECIDED, kinds.fill_null(REJECTED))
    kinds = pc.if_else(failed, kinds, _NONE)
    for kind in pc.unique(kinds.drop_null()).to_pylist():
        check_kind(kind)
    times = {
        name: waits.checked(name, _array(result.column(name), name, count))
        for name in waits.COLUMNS
        if name in names
    }
    found = Verdicts(outcomes, kinds, pc.if_else(failed, reasons, _NONE), times)
    # What makes no sense would otherwise end the worker.
    waits.waits_of(
        pa.table({"_message_id": np.arange(count), **times}),
        failed,
        pc.equal(outcomes, RELOAD),
    )
    return found


def _booleans(result: Any, count: int) -> pa.Array:
    array = _array(result, "verdict", count)
    if pa.types.is_null(array.type):
        array = array.cast(pa.bool_())
    if not pa.types.is_boolean(array.type):
        raise BadOutcome(
            f"the batch handler gave {array.type} values; give booleans, or a table with the "
            "columns outcome, kind, reason, not_before, delay and dead"
        )
    return array


def _strings(result: Any, name: str, count: int) -> pa.Array:
    array = _array(result, name, count)
    try:
        return valid(array.cast(pa.string()))
    except pa.ArrowException as error:
        raise BadOutcome(f"the batch handler's {name} column is {array.type}: {error}") from error


def _array(result: Any, name: str, count: int) -> pa.Array:
    try:
        array = result if isinstance(result, pa.Array | pa.ChunkedArray) else pa.array(result)
    except Exception as error:
        # Whatever an object raises that is no array: a DataFrame raises KeyError.
        raise BadOutcome(
            f"the batch handler gave a {type(result).__name__}, not one {name} per message"
        ) from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if len(array) != count:
        raise BadOutcome(f"the batch handler gave {len(array)} {name}s for {count} messages")
    return array
