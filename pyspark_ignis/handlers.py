"""Handlers on the executors: messages in, and for each message what becomes of it.

The decisions are those of IgnisMQ: true deletes, false and an exception sideline, an ignorable
exception deletes. What a handler gives that makes no sense sidelines too, so that nothing is lost
by a handler that forgets its `return`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_ignis.deadline import Deadline, TimedOut
from pyspark_ignis.pyrows import as_dicts
from queue_core.errors import BadOutcome
from queue_core.names import nearest
from queue_core.outcomes import DELETE, OUTCOMES, SIDELINE

#: Given one message as a dict of its columns; true when it is done.
RowHandler: TypeAlias = Callable[[dict[str, Any]], bool]
#: Given many messages; the verdicts of all of them, in their order (see `batch_handler`).
BatchHandler: TypeAlias = Callable[[pa.RecordBatch], Any]

#: Reasons that are not an exception's.
REJECTED = "rejected"
UNDECIDED = "undecided"
TIMEOUT = "timeout"

#: What a settle sink takes. An ignored message is deleted and has a reason; no other deleted one.
SETTLEMENT = pa.schema(
    [("_message_id", pa.int64()), ("outcome", pa.string()), ("reason", pa.string())]
)

_MARK = "ignis_batch_handler"
_Handler = TypeVar("_Handler", bound=Callable[[Any], Any])
_Verdicts: TypeAlias = tuple[pa.Array, pa.Array]


def batch_handler(handler: _Handler) -> _Handler:
    """
    Mark a handler that is given record batches instead of single messages.

    It returns one verdict per message: booleans (a pyarrow or numpy array, or a list), or a
    RecordBatch or Table with the column ``outcome`` (``delete``, ``sideline`` or ``reload``) and,
    optionally, ``reason``. When it raises, all messages of the batch have failed.
    """
    try:
        setattr(handler, _MARK, True)
    except AttributeError:
        # Bound methods and builtins take no marks.
        marked: Any = partial(handler)
        setattr(marked, _MARK, True)
        return marked  # type: ignore[no-any-return]
    return handler


def takes_batches(handler: Callable[[Any], Any]) -> bool:
    """Whether a handler was marked by `batch_handler`."""
    return getattr(handler, _MARK, False) is True


@dataclass(frozen=True, slots=True)
class Handling:
    """What `mapInArrow` runs: applies a handler to batches, and gives batches of `SETTLEMENT`."""

    handler: RowHandler | BatchHandler
    ignorable: tuple[type[Exception], ...] = ()
    #: Seconds that one call of the handler may take.
    timeout: float | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle batch after batch."""
        with ExitStack() as stack:
            handle = self.handler
            if self.timeout is not None:
                handle = partial(stack.enter_context(Deadline(self.timeout)).call, self.handler)
            judge = self._judge_batch if takes_batches(self.handler) else self._judge_rows
            for batch in batches:
                if batch.num_rows:
                    outcomes, reasons = judge(handle, batch)
                    columns = [batch.column("_message_id"), outcomes, reasons]
                    yield pa.RecordBatch.from_arrays(columns, schema=SETTLEMENT)

    def _judge_rows(self, handle: RowHandler, batch: pa.RecordBatch) -> _Verdicts:
        try:
            rows = as_dicts(batch)
        except Exception as error:  # noqa: BLE001 - a value that Python cannot hold, of whatever type
            return self._judge_halves(handle, batch, error)
        outcomes: list[str] = [DELETE] * len(rows)
        reasons: list[str | None] = [None] * len(rows)
        for place, row in enumerate(rows):
            try:
                verdict = handle(row)
            except self.ignorable as error:
                reasons[place] = told(error)
            except Exception as error:  # noqa: BLE001 - a handler may raise anything
                outcomes[place], reasons[place] = SIDELINE, told(error)
            except TimedOut:
                outcomes[place], reasons[place] = SIDELINE, TIMEOUT
            else:
                if verdict is not True and not (isinstance(verdict, np.bool_) and verdict):
                    outcomes[place], reasons[place] = SIDELINE, _refusal(verdict)
        return pa.array(outcomes, pa.string()), pa.array(reasons, pa.string())

    def _judge_halves(
        self, handle: RowHandler, batch: pa.RecordBatch, error: Exception
    ) -> _Verdicts:
        """Close in on the message that Python cannot hold; it alone is sidelined."""
        if batch.num_rows == 1:
            return _all(batch, SIDELINE, told(error))
        middle = batch.num_rows // 2
        halves = [
            self._judge_rows(handle, half) for half in (batch.slice(0, middle), batch.slice(middle))
        ]
        outcomes, reasons = (pa.concat_arrays(arrays) for arrays in zip(*halves, strict=True))
        return outcomes, reasons

    def _judge_batch(self, handle: BatchHandler, batch: pa.RecordBatch) -> _Verdicts:
        try:
            given = handle(batch)
        except self.ignorable as error:
            return _all(batch, DELETE, told(error))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return _all(batch, SIDELINE, told(error))
        except TimedOut:
            return _all(batch, SIDELINE, TIMEOUT)
        try:
            return verdicts(given, batch.num_rows)
        except BadOutcome as error:
            return _all(batch, SIDELINE, told(error))


def verdicts(given: Any, count: int) -> _Verdicts:
    """What a batch handler gave, as outcomes and reasons of *count* messages; `BadOutcome`."""
    if isinstance(given, pa.RecordBatch | pa.Table):
        if "outcome" not in given.schema.names:
            raise BadOutcome(
                f"the batch handler's table has no column 'outcome'"
                f"{nearest('outcome', given.schema.names)}"
            )
        outcomes = _strings(given.column("outcome"), "outcome", count)
        has_reasons = "reason" in given.schema.names
        given_reasons = given.column("reason") if has_reasons else pa.nulls(count, pa.string())
        reasons = _strings(given_reasons, "reason", count)
    else:
        decided = _booleans(given, count)
        outcomes = pc.if_else(decided.fill_null(False), DELETE, SIDELINE)
        reasons = pc.if_else(decided.is_valid(), pa.scalar(None, pa.string()), UNDECIDED)
    if not pc.all(pc.is_in(outcomes, value_set=pa.array(OUTCOMES))).as_py():
        raise BadOutcome(f"the batch handler gave an outcome that is none of {', '.join(OUTCOMES)}")
    failed = pc.equal(outcomes, SIDELINE)
    return outcomes, pc.if_else(failed, reasons.fill_null(REJECTED), pa.scalar(None, pa.string()))


def told(error: Exception) -> str:
    """The reason that an exception gives: ``ValueError: no such customer``."""
    kind = type(error).__name__
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - the exception's own text may fail as well
        message = "(its message cannot be shown)"
    return f"{kind}: {message}" if message else kind


def _refusal(verdict: Any) -> str:
    if isinstance(verdict, bool | np.bool_):
        return REJECTED
    return f"not a bool: the handler returned {type(verdict).__name__}"


def _all(batch: pa.RecordBatch, outcome: str, reason: str) -> _Verdicts:
    count = batch.num_rows
    return pa.repeat(pa.scalar(outcome), count), pa.repeat(pa.scalar(reason), count)


def _booleans(given: Any, count: int) -> pa.Array:
    array = _array(given, "verdict", count)
    if not pa.types.is_boolean(array.type):
        raise BadOutcome(
            f"the batch handler gave {array.type} values; give booleans, or a table with the "
            "columns outcome and reason"
        )
    return array


def _strings(given: Any, name: str, count: int) -> pa.Array:
    array = _array(given, name, count)
    try:
        return array.cast(pa.string())
    except pa.ArrowException as error:
        raise BadOutcome(f"the batch handler's {name} column is {array.type}: {error}") from error


def _array(given: Any, name: str, count: int) -> pa.Array:
    try:
        array = given if isinstance(given, pa.Array | pa.ChunkedArray) else pa.array(given)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadOutcome(
            f"the batch handler gave a {type(given).__name__}, not one {name} per message"
        ) from error
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if len(array) != count:
        raise BadOutcome(f"the batch handler gave {len(array)} {name}s for {count} messages")
    return array
