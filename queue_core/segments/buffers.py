"""Buffers: rows are written straight into the memory from which a load writes to the storage.

`Queue.request` returns a buffer: a numpy view per column over Arrow's own memory. A load turns it
into a segment without a copy, because the writer gathers the columns from this memory. (Rows with a
key are sorted by shard first, and small or compressed segments are encoded.) The number of
outstanding buffers of a pool is bounded, so a producer that is faster than the storage waits for
one. A buffer is outstanding until its load is durable or it is released; a forgotten buffer returns
when Python removes it. Source: Herzner, FIFO queue, request/release.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import BadOption, QueueFull, SchemaMismatch
from queue_core.support.interruption import shielded
from queue_core.values.durations import is_whole
from queue_core.values.names import nearest

#: Buffers of a pool by default.
DEFAULT_BUFFERS = 4
#: The most elements of an Arrow list or binary column: its offsets have 32 bits.
_MOST_ELEMENTS = (1 << 31) - 1

_t = pa.types


class BufferPool:
    """At most *size* outstanding buffers for one queue; threads can share it."""

    def __init__(self, queue: str, schema: pa.Schema, size: int) -> None:
        self._queue = queue
        self._schema = schema
        self._size = size
        # No semaphore: the garbage collector may return a buffer within the lock of one.
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(size):
            self._free.put(None)

    def request(self, rows: int, widths: Mapping[str, int], timeout: float | None) -> Buffer:
        """
        Return a buffer for *rows* rows; wait for a free one.

        *widths* has the elements per row of each list or binary column. Raises `SchemaMismatch`
        for a column without a fixed width that may not be null, `BadOption` for impossible
        *widths*, and `QueueFull` when no buffer is free within *timeout* seconds.
        """
        for name in widths:
            if name not in self._schema.names:
                known = nearest(name, self._schema.names)
                raise BadOption(f"widths: queue {self._queue!r} has no column {name!r}{known}")
        makers = {}
        for field in self._schema:
            # Others may have added a column that this caller does not know.
            with suppress(SchemaMismatch) if field.nullable else nullcontext():
                makers[field.name] = _maker(field, widths.get(field.name))
        try:
            self._free.get(timeout != 0, timeout)
        except Empty:
            raise QueueFull(
                f"queue {self._queue!r}: all {self._size} buffers are in use; load or release one, "
                "wait longer with timeout, or open the queue with more buffers"
            ) from None
        try:
            columns = {name: make(rows) for name, make in makers.items()}
            return Buffer(self._queue, self._schema, rows, columns, lambda: self._free.put(None))
        except BaseException:
            self._free.put(None)
            raise


@shielded
class Buffer:
    """Memory for the rows of one load: ``buffer["pixels"][:] = …``, then ``queue.load(buffer)``."""

    def __init__(
        self,
        queue: str,
        schema: pa.Schema,
        rows: int,
        columns: Mapping[str, _Column],
        free: Callable[[], None],
    ) -> None:
        self._queue = queue
        self._schema = schema
        self._columns = columns
        self._rows = rows
        #: The columns that were asked for.
        self._asked: set[str] = set()
        self._state = _REQUESTED
        self._changing = threading.Lock()
        self._give_back = weakref.finalize(self, free)

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"<Buffer for {self._rows} rows of {self._queue!r}, {self._state}>"

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """
        Return a column to write into: one element per row, or one row of elements.

        Elements that are not written are 0. A nullable column that is never returned here is null
        if it holds timestamps or has no fixed width.

        Args:
            column: The name of a column of the queue.

        Returns:
            A writable numpy array over the memory of the column.

        Raises:
            BadOption: The buffer was loaded or released, or the queue has no such column.
            SchemaMismatch: The column has no fixed width, and none was given.
        """
        self._check_requested()
        if column not in self._schema.names:
            known = nearest(column, self._schema.names)
            raise BadOption(f"queue {self._queue!r} has no column {column!r}{known}")
        if column not in self._columns:
            _maker(self._schema.field(column), None)  # It raises what is missing.
        self._asked.add(column)
        return self._columns[column].view

    def release(self) -> None:
        """Return the buffer to its pool without loading it; a second call changes nothing."""
        with self._changing:
            if self._state == _REQUESTED:
                self._end(_RELEASED)

    def __enter__(self) -> Buffer:
        self._check_requested()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # After a block without an error, the buffer is still to be loaded.
        if kind is not None:
            self.release()

    @contextmanager
    def loading(self, queue: str) -> Iterator[pa.Table]:
        """
        Lend the rows to a load. From now on, they are read-only.

        If the load fails, the caller can write the buffer again.

        Args:
            queue: The name of the queue that loads the rows.

        Yields:
            The rows as a table, without copying them.

        Raises:
            BadOption: The buffer belongs to another queue, or is not requested any more.
        """
        if queue != self._queue:
            raise BadOption(f"a buffer of queue {self._queue!r} cannot be loaded into {queue!r}")
        with self._changing:
            self._check_requested()
            self._state = _LOADING
            self._lock(True)
        try:
            arrays = [self._array(field) for field in self._schema]
            yield pa.Table.from_arrays(arrays, schema=self._schema)
        except BaseException:
            self._lock(False)
            self._state = _REQUESTED
            raise
        self._end(_LOADED)

    def _array(self, field: pa.Field) -> pa.Array:
        """Return a column; times that were not asked for are null, since 0 is long past."""
        column = self._columns.get(field.name)
        unasked = field.nullable and field.name not in self._asked
        if column is None or (unasked and _t.is_timestamp(field.type)):
            return pa.nulls(self._rows, field.type)
        return column.array

    def _end(self, state: str) -> None:
        self._state = state
        self._lock(True)
        self._columns = {}
        self._give_back()

    def _lock(self, locked: bool) -> None:
        for column in self._columns.values():
            column.view.flags.writeable = not locked

    def _check_requested(self) -> None:
        if self._state != _REQUESTED:
            raise BadOption(
                f"this buffer of queue {self._queue!r} is {self._state}; request another one"
            )


_REQUESTED, _LOADING, _LOADED, _RELEASED = "requested", "being loaded", "loaded", "released"


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of a buffer, which Arrow reads and numpy writes."""

    array: pa.Array
    view: npt.NDArray[Any]


def _maker(field: pa.Field, width: int | None) -> Callable[[int], _Column]:
    """Return a function that makes a column for a number of rows; raises `SchemaMismatch`."""
    kind = field.type
    varies = _t.is_list(kind) or _t.is_binary(kind)
    element = (pa.uint8() if _t.is_binary(kind) else kind.value_type) if varies else kind
    dtype = _dtype(element)
    if dtype is None:
        raise SchemaMismatch(
            f"column {field.name!r} of type {kind} has no fixed width that numpy can write; load "
            "such rows as a table, without a buffer"
        )
    if not varies:
        if width is not None:
            raise BadOption(f"widths: column {field.name!r} is {kind}, which has a fixed width")
        return lambda rows: _plain(kind, dtype, rows)
    if width is None:
        raise SchemaMismatch(
            f"column {field.name!r} of type {kind} varies in width; pass the number of elements "
            f"of each message: widths={{{field.name!r}: …}}"
        )
    if not is_whole(width) or width < 1:
        raise BadOption(f"widths: {field.name!r}: {width!r}: use a whole number, 1 or more")
    return lambda rows: _wide(field, element, dtype, rows, width)


def _plain(kind: pa.DataType, dtype: np.dtype[Any], rows: int) -> _Column:
    buffer, view = _allocate(dtype, rows)
    return _Column(pa.Array.from_buffers(kind, rows, [None, buffer]), view)


def _wide(
    field: pa.Field, element: pa.DataType, dtype: np.dtype[Any], rows: int, width: int
) -> _Column:
    """Make a column of lists or bytes of one length."""
    if rows * width > _MOST_ELEMENTS:
        raise BadOption(
            f"column {field.name!r}: {rows} rows of {width} elements are too many for one buffer"
        )
    buffer, view = _allocate(dtype, rows * width)
    offsets, ends = _allocate(np.dtype(np.int32), rows + 1)
    ends[:] = np.arange(rows + 1) * width
    if _t.is_binary(field.type):
        array = pa.Array.from_buffers(field.type, rows, [None, offsets, buffer])
    else:
        values = pa.Array.from_buffers(element, rows * width, [None, buffer])
        array = pa.Array.from_buffers(field.type, rows, [None, offsets], children=[values])
    return _Column(array, view.reshape(rows, width))


def _allocate(dtype: np.dtype[Any], count: int) -> tuple[pa.Buffer, npt.NDArray[Any]]:
    buffer = pa.allocate_buffer(count * dtype.itemsize)
    view = np.frombuffer(buffer, dtype)
    # Unwritten elements are 0, and not left-over memory.
    view[:] = np.zeros((), dtype)
    return buffer, view


def _dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """Return numpy's type for the values of an Arrow type, or None if it has none."""
    if _t.is_integer(kind) or _t.is_floating(kind):
        numbers: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return numbers
    if _t.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if _t.is_duration(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    # As numbers: numpy's own dates have another width.
    if _t.is_date32(kind) or _t.is_time64(kind):
        return np.dtype(f"int{kind.bit_width}")
    return None
