"""Handlers on the executors: messages in, and for each message what becomes of it.

The decisions are those of IgnisMQ: true deletes, false and an exception sideline, an ignorable
exception deletes. What a handler gives that makes no sense sidelines too, so that nothing is lost
by a handler that forgets its `return`. What cannot be read is sidelined, and no handler sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_ignis.deadline import Deadline, TimedOut
from pyspark_ignis.payloads import Call, Payload
from pyspark_ignis.pyrows import Unreadable, rows_of
from pyspark_ignis.verdicts import SETTLEMENT, Verdicts
from queue_core.errors import BadOutcome
from queue_core.outcomes import DELETE, SIDELINE
from queue_core.reasons import EXCEPTION, REJECTED, TIMEOUT, UNDECIDED, UNREADABLE, reason_of

#: Given one message, a dict of its columns or its payload, and its metadata if wanted; true when it
#: is done.
RowHandler: TypeAlias = Callable[..., bool]
#: Given many messages; the verdicts of all of them, in their order (see `batch_handler`).
BatchHandler: TypeAlias = Callable[..., Any]

_MARK = "ignis_batch_handler"
_Handler = TypeVar("_Handler", bound=Callable[..., Any])


def batch_handler(handler: _Handler) -> _Handler:
    """
    Mark a handler that is given record batches instead of single messages.

    It returns one verdict per message: booleans (a pyarrow or numpy array, or a list), or a
    RecordBatch or Table with the column ``outcome`` (``delete``, ``sideline`` or ``reload``) and,
    optionally, ``kind`` and ``reason``. When it raises, all messages of the batch have failed.
    With a payload it is given a list of those that can be read, and decides about them.
    """
    try:
        setattr(handler, _MARK, True)
    except AttributeError:
        # Bound methods and builtins take no marks.
        marked: Any = partial(handler)
        setattr(marked, _MARK, True)
        return marked  # type: ignore[no-any-return]
    return handler


def takes_batches(handler: Callable[..., Any]) -> bool:
    """Whether a handler was marked by `batch_handler`."""
    return getattr(handler, _MARK, False) is True


@dataclass(frozen=True, slots=True)
class Handling:
    """What `mapInArrow` runs: applies a handler to batches, and gives batches of `SETTLEMENT`."""

    handler: RowHandler | BatchHandler
    ignorable: tuple[type[Exception], ...] = ()
    #: Seconds that one call of the handler may take.
    timeout: float | None = None
    #: What the handler is given instead of rows.
    payload: Payload | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle batch after batch."""
        with ExitStack() as stack:
            handle = self.handler
            if self.timeout is not None:
                handle = partial(stack.enter_context(Deadline(self.timeout)).call, self.handler)
            for batch in batches:
                if batch.num_rows:
                    columns = [batch.column("_message_id"), *self._judge(handle, batch)]
                    yield pa.RecordBatch.from_arrays(columns, schema=SETTLEMENT)

    def _judge(self, handle: Callable[..., Any], batch: pa.RecordBatch) -> Verdicts:
        in_batches = takes_batches(self.handler)
        if self.payload is not None:
            calls = self.payload.calls(batch)
            judge = self._judge_list if in_batches else self._judge_each
            return judge(handle, calls, batch.num_rows)
        if in_batches:
            return self._judge_batch(handle, (batch,), batch.num_rows)
        return self._judge_each(handle, zip(rows_of(batch)), batch.num_rows)

    def _judge_each(
        self, handle: Callable[..., Any], calls: Iterable[Call], count: int
    ) -> Verdicts:
        outcomes = [DELETE] * count
        kinds: list[str | None] = [None] * count
        reasons: list[str | None] = [None] * count

        def sideline(place: int, kind: str, reason: str | None) -> None:
            outcomes[place], kinds[place], reasons[place] = SIDELINE, kind, reason

        for place, call in enumerate(calls):
            first = call[0]
            if isinstance(first, Unreadable):
                sideline(place, UNREADABLE, first.reason)
                continue
            try:
                verdict = handle(*call)
            except self.ignorable as error:
                kinds[place], reasons[place] = EXCEPTION, reason_of(error)
            except Exception as error:  # noqa: BLE001 - a handler may raise anything
                sideline(place, EXCEPTION, reason_of(error))
            except TimedOut as late:
                sideline(place, TIMEOUT, str(late))
            else:
                if not isinstance(verdict, bool | np.bool_):
                    given = type(verdict).__name__
                    sideline(place, UNDECIDED, f"not a bool: the handler returned {given}")
                elif not verdict:
                    sideline(place, REJECTED, None)
        return Verdicts(*(pa.array(texts, pa.string()) for texts in (outcomes, kinds, reasons)))

    def _judge_list(
        self, handle: Callable[..., Any], calls: Iterable[Call], count: int
    ) -> Verdicts:
        """The handler decides about those that can be read, if there are any."""
        unreadable: list[str | None] = [None] * count
        read = []
        for place, call in enumerate(calls):
            if isinstance(call[0], Unreadable):
                unreadable[place] = call[0].reason
            else:
                read.append(call)
        lists = tuple(map(list, zip(*read, strict=True)))
        judged = Verdicts.same(0, SIDELINE, None, None)
        # No handler is called for nothing.
        if read:
            judged = self._judge_batch(handle, lists, len(read))
        return judged.among(unreadable)

    def _judge_batch(
        self, handle: Callable[..., Any], given: tuple[Any, ...], count: int
    ) -> Verdicts:
        try:
            decided = handle(*given)
        except self.ignorable as error:
            return Verdicts.same(count, DELETE, EXCEPTION, reason_of(error))
        except Exception as error:  # noqa: BLE001 - a handler may raise anything
            return Verdicts.same(count, SIDELINE, EXCEPTION, reason_of(error))
        except TimedOut as late:
            return Verdicts.same(count, SIDELINE, TIMEOUT, str(late))
        try:
            return Verdicts.of_batch(decided, count)
        except BadOutcome as error:
            return Verdicts.same(count, SIDELINE, UNDECIDED, str(error))
