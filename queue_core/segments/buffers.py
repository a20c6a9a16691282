"""Buffers: rows are written straight into the memory that a load then writes to the storage.

`request` gives a buffer of so many rows: a numpy view per column, over Arrow's own memory. Loaded,
it becomes a segment without being copied: the writer gathers the columns from where they are. (Rows
that a key spreads over shards are put in order first; those of a small or compressed segment are
encoded.) Only so many buffers of a pool are out at a time: a producer that is faster than the
storage waits for one. A buffer is out until its load is durable, or until it is released; one that
is forgotten goes back when Python removes it. Source: Herzner, FIFO queue, request/release.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from queue_core.errors import BadOption, QueueFull, SchemaMismatch
from queue_core.names import nearest
from queue_core.settings import is_whole

#: Buffers of a pool that does not say.
DEFAULT_BUFFERS = 4
#: What an Arrow list or binary column can count to.
_MOST_ELEMENTS = (1 << 31) - 1

_t = pa.types


class BufferPool:
    """Buffers for the rows of one queue, of which *size* are out at most; safe for threads."""

    def __init__(self, queue: str, schema: pa.Schema, size: int) -> None:
        self._queue = queue
        self._schema = schema
        self._size = size
        self._free = threading.BoundedSemaphore(size)

    def request(self, rows: int, widths: Mapping[str, int], timeout: float | None) -> Buffer:
        """
        A buffer for so many rows; waits for a free one.

        Raises `SchemaMismatch` where a column has no fixed width, and `QueueFull` when no buffer is
        free within *timeout* seconds.
        """
        for name in widths:
            if name not in self._schema.names:
                known = nearest(name, self._schema.names)
                raise BadOption(f"widths: queue {self._queue!r} has no column {name!r}{known}")
        makers = {field.name: _maker(field, widths.get(field.name)) for field in self._schema}
        if not self._free.acquire(timeout=timeout):
            raise QueueFull(
                f"queue {self._queue!r}: all {self._size} buffers are out; load or release one, "
                "wait longer with timeout, or open the queue with more buffers"
            )
        try:
            columns = {name: make(rows) for name, make in makers.items()}
            return Buffer(self._queue, self._schema, rows, columns, self._free.release)
        except BaseException:
            self._free.release()
            raise


class Buffer:
    """Room for the rows of one load: ``buffer["pixels"][:] = …``, then ``queue.load(buffer)``."""

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
        self._state = _REQUESTED
        self._changing = threading.Lock()
        self._give_back = weakref.finalize(self, free)

    def __len__(self) -> int:
        return self._rows

    def __repr__(self) -> str:
        return f"<Buffer for {self._rows} rows of {self._queue!r}, {self._state}>"

    def __getitem__(self, column: str) -> npt.NDArray[Any]:
        """
        The column, to be written: one element per row, or one row of elements.

        Raises `BadOption` for a buffer that was loaded or released.
        """
        self._check_requested()
        if column not in self._columns:
            raise BadOption(
                f"queue {self._queue!r} has no column {column!r}{nearest(column, self._columns)}"
            )
        return self._columns[column].view

    def release(self) -> None:
        """Give the buffer back without loading it; a second time changes nothing."""
        with self._changing:
            if self._state == _REQUESTED:
                self._end(_RELEASED)

    def __enter__(self) -> Buffer:
        self._check_requested()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        # Filled, it is still to be loaded.
        if kind is not None:
            self.release()

    @contextmanager
    def loading(self, queue: str) -> Iterator[pa.Table]:
        """
        The rows, while they are loaded; nobody can write them any more.

        Where that fails, the buffer is the caller's again.
        """
        if queue != self._queue:
            raise BadOption(f"a buffer of queue {self._queue!r} cannot be loaded into {queue!r}")
        with self._changing:
            self._check_requested()
            self._state = _LOADING
            self._lock(True)
        try:
            arrays = [column.array for column in self._columns.values()]
            yield pa.Table.from_arrays(arrays, schema=self._schema)
        except BaseException:
            self._lock(False)
            self._state = _REQUESTED
            raise
        self._end(_LOADED)

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
    """A column of a buffer: as Arrow reads it, and as numpy writes it."""

    array: pa.Array
    view: npt.NDArray[Any]


def _maker(field: pa.Field, width: int | None) -> Callable[[int], _Column]:
    """What makes a column for so many rows; raises `SchemaMismatch` and `BadOption`."""
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
            raise BadOption(f"widths: column {field.name!r} is {kind}, which has a width")
        return lambda rows: _plain(kind, dtype, rows)
    if width is None:
        raise SchemaMismatch(
            f"column {field.name!r} of type {kind} varies in width; say how many elements each "
            f"message has: widths={{{field.name!r}: …}}"
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
    """Lists or bytes, all of one length."""
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
    # What nobody writes is 0, and not what somebody has left in memory.
    view[:] = np.zeros((), dtype)
    return buffer, view


def _dtype(kind: pa.DataType) -> np.dtype[Any] | None:
    """How numpy calls the values of a type; None where it has no such values."""
    if _t.is_integer(kind) or _t.is_floating(kind):
        numbers: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
        return numbers
    if _t.is_timestamp(kind):
        return np.dtype(f"datetime64[{kind.unit}]")
    if _t.is_duration(kind):
        return np.dtype(f"timedelta64[{kind.unit}]")
    # Days, or parts of a day, as numbers: numpy's own dates are of another width.
    if _t.is_date32(kind) or _t.is_time64(kind):
        return np.dtype(f"int{kind.bit_width}")
    return None
