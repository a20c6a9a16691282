"""Handlers: what a user writes, and how messages come to it and settlements from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias, TypeVar

import pyarrow as pa

from queue_core.handlers.calls import AllAtOnce, Judging, OneByOne
from queue_core.handlers.deadline import Deadline
from queue_core.handlers.payloads import Payload
from queue_core.handlers.python_rows import rows_of
from queue_core.handlers.verdicts import SETTLEMENT

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
    """Applies a handler to batches, and gives batches of `SETTLEMENT`."""

    handler: RowHandler | BatchHandler
    ignorable: tuple[type[Exception], ...] = ()
    #: Seconds that one call of the handler may take.
    timeout: float | None = None
    #: What the handler is given instead of rows.
    payload: Payload | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Handle batch after batch, in the main thread of a process: what `mapInArrow` runs."""
        with ExitStack() as stack:
            handle = self.handler
            if self.timeout is not None:
                handle = partial(stack.enter_context(Deadline(self.timeout)).call, self.handler)
            for batch in batches:
                if batch.num_rows:
                    judging = self.judging(batch)
                    judging.run(handle)
                    yield settlement(batch, judging)

    def judging(self, batch: pa.RecordBatch) -> Judging:
        """The calls that are to be made for a batch."""
        in_batches = takes_batches(self.handler)
        if in_batches and self.payload is None:
            return AllAtOnce((batch,), batch.num_rows, self.ignorable)
        calls = list(zip(rows_of(batch))) if self.payload is None else self.payload.calls(batch)
        return (AllAtOnce.of if in_batches else OneByOne)(calls, self.ignorable)


def settlement(batch: pa.RecordBatch, judging: Judging) -> pa.RecordBatch:
    """`SETTLEMENT` of a batch of which all calls are made."""
    columns = [batch.column("_message_id"), *judging.verdicts]
    return pa.RecordBatch.from_arrays(columns, schema=SETTLEMENT)
