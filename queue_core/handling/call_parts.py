"""Call parts: the arguments of the calls for a large batch, made part by part.

Rows of Python take as much memory as the batch, or more. So only some of them are in memory at a
time: those up to the call in progress are gone, and most of the later ones are not made yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import pyarrow as pa

from queue_core.handling.payloads import Call

#: The bytes of the messages of a part; a smaller batch is one part.
PART_BYTES = 1 << 20


class Calls(Protocol):
    """The arguments of calls, by the number of the call."""

    def __len__(self) -> int:
        """Return how many calls there are."""

    def __getitem__(self, number: int, /) -> Call:
        """Return the arguments of a call."""


def in_parts(batch: pa.RecordBatch, make: Callable[[pa.RecordBatch], Sequence[Call]]) -> Calls:
    """Return the arguments of the call for each message of a batch, which *make* makes."""
    # The exact size takes many times as long as its bound.
    is_small = batch.get_total_buffer_size() <= PART_BYTES or batch.nbytes <= PART_BYTES
    return make(batch) if is_small else CallParts(batch, make)


class CallParts:
    """The arguments of calls that are made one after another, by one thread at a time."""

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
